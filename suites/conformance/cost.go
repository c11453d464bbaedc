package conformance

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/routing"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// The numbers of other Services of the specs of costs.
const (
	fewOthers  = 20
	manyOthers = 2000
)

// mostGrowth is how many times more a change may cost with manyOthers than with fewOthers other Services, which are a hundred times as
// many. docs/conformance.md has the reason.
const mostGrowth = 4

// costSource is where it is promised.
const costSource = "KEP-3453, KEP-3866: a sync writes what has changed, whatever the number of Services"

// costs are the specs of costs: one for each cost of a change.
var costs = sync.OnceValue(func() (all []Spec) {
	run := &Run{Name: "cost", Scenario: "cost", Set: set("few", strconv.Itoa(fewOthers), "many", strconv.Itoa(manyOthers))}
	for _, c := range []struct {
		name, what string
		of         func(record.Cost) time.Duration
	}{
		{"time", "the time from a change of endpoints until traffic follows", func(c record.Cost) time.Duration { return c.Took }},
		{"CPU", "the CPU time of the proxy for a change of endpoints", func(c record.Cost) time.Duration { return c.CPU }},
	} {
		promise := fmt.Sprintf("%s is at most %d times as long with %d other Services as with %d", c.what, mostGrowth, manyOthers, fewOthers)
		all = append(all, Spec{Name: "cost of a change, " + c.name, Promise: promise, Source: costSource, Level: Extended, Kind: Cost, Family: IPv4,
			Features: []string{manyServices}, Run: run, cost: c.of})
	}
	return all
})

// judgeCost judges a spec of costs by the medians of the changes in the record.
func (s Spec) judgeCost(h *record.History) (outcome, error) {
	found := map[int][]time.Duration{}
	for e, err := range h.Events() {
		if err != nil {
			return outcome{}, err
		}
		if c, is := e.Body.(record.Cost); is {
			found[c.Others] = append(found[c.Others], s.cost(c))
		}
	}
	few, many := found[fewOthers], found[manyOthers]
	if len(few) < routing.CostChanges || len(many) < routing.CostChanges {
		return outcome{State: Invalid, Reasons: []string{fmt.Sprintf("the record has %d changes with %d other Services and %d with %d; %d of each are needed",
			len(few), fewOthers, len(many), manyOthers, routing.CostChanges)}}, nil
	}
	slices.Sort(few)
	slices.Sort(many)
	before, after := analysis.Quantile(few, 0.5), analysis.Quantile(many, 0.5)
	if before <= 0 {
		return outcome{State: Invalid, Reasons: []string{fmt.Sprintf("a change with %d other Services cost nothing that could be measured", fewOthers)}}, nil
	}
	if growth := float64(after) / float64(before); growth > mostGrowth {
		return outcome{State: Failed, Reasons: []string{fmt.Sprintf("%.1f times as long: %.2f ms with %d other Services, %.2f ms with %d; at most %d times is accepted",
			growth, units.Millis(before), fewOthers, units.Millis(after), manyOthers, mostGrowth)}}, nil
	}
	return outcome{State: Passed}, nil
}
