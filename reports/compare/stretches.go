package compare

import (
	"fmt"
	"strings"

	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/reports/chart"
)

// stretch is a part of a run in which each bucket of the drawing has a lost connection: the drawing as text.
type stretch struct {
	Subject                    string
	Seed                       int64
	From, To                   string // from the beginning of the scenario
	Attempts, Dropped, Delayed int
}

const maxStretches = 200

// stretchesOf lists the stretches of a run in order of time.
func stretchesOf(subject string, seed int64, x chart.Axis, n *chart.Tally) (all []stretch) {
	at := func(bucket int) string { return units.Clock(x.Start(bucket)) }
	open := false
	for i := range n.Dropped {
		lost := n.Dropped[i]+n.Delayed[i] > 0
		if lost && !open {
			all = append(all, stretch{Subject: subject, Seed: seed, From: at(i)})
		}
		if open = lost; !lost {
			continue
		}
		s := &all[len(all)-1]
		s.To = at(i + 1)
		s.Attempts, s.Dropped, s.Delayed = s.Attempts+n.Attempts[i], s.Dropped+n.Dropped[i], s.Delayed+n.Delayed[i]
	}
	return all
}

// attempted is the outline of a run's attempts, up to the given height where there are most. top is the top of its row.
func attempted(x chart.Axis, n *chart.Tally, most int, height float64, top int) chart.Area {
	var b strings.Builder
	command := 'M'
	for i, attempts := range n.Attempts {
		if attempts == 0 {
			command = 'M'
			continue
		}
		y := units.Tenth(float64(top) + height - float64(attempts)/float64(most)*height)
		fmt.Fprintf(&b, "%c%v %vH%v", command, x.X(x.Start(i)), y, x.X(x.Start(i+1)))
		command = 'L'
	}
	return chart.Area{Class: "attempted", Outline: b.String()}
}
