package analysis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// ledger sums up lost attempts by the rule of the budget that covers them. The last tally is for what no rule covers. Excused
// attempts are in none.
type ledger struct {
	budget  record.Budget
	tallies []tally
}

// tally is what a rule covers.
type tally struct {
	dropped, delayed int
	parts            []part // in the order of lanes and outages
}

// part is the attempts of an outage that a rule covers.
type part struct {
	outage      *Outage
	first, last time.Duration // scheduled starts
	attempts    int
}

func newLedger(b record.Budget) *ledger {
	return &ledger{budget: b, tallies: make([]tally, len(b.Rules)+1)}
}

// add counts a lost attempt under a rule.
func (g *ledger) add(rule int, o *Outage, r *Sample) {
	t := &g.tallies[rule]
	if r.Class == record.Delayed {
		t.delayed++
	} else {
		t.dropped++
	}
	if n := len(t.parts); n == 0 || t.parts[n-1].outage != o {
		t.parts = append(t.parts, part{outage: o, first: r.Intended, last: r.Intended})
	}
	p := &t.parts[len(t.parts)-1]
	p.first, p.last, p.attempts = min(p.first, r.Intended), max(p.last, r.Intended), p.attempts+1
}

// bounds are the begin and the end of a part at their widest.
func (p part) bounds() (from, to time.Duration) {
	o := p.outage
	from, to = p.first-o.Lane.Interval, p.last+o.Lane.Interval
	if p.first == o.from {
		from = min(o.before, o.from)
	}
	if p.last == o.to {
		to = max(o.after, o.to)
	}
	if p.attempts == o.failed {
		to = max(to, from+o.upper)
	}
	return from, to
}

// longest is the length of the longest part, and since when it lasted.
func (t tally) longest() (length, since time.Duration) {
	for _, p := range t.parts {
		if from, to := p.bounds(); to-from > length {
			length, since = to-from, p.first
		}
	}
	return length, since
}

// outage is the time in which any of the parts lasts.
func (t tally) outage() time.Duration {
	var all []window
	for _, p := range t.parts {
		from, to := p.bounds()
		all = append(all, window{from, to})
	}
	return covered(all)
}

// window is a time from one instant to another.
type window struct{ from, to time.Duration }

// covered is the time that any of the windows covers. It sorts them.
func covered(all []window) (sum time.Duration) {
	slices.SortFunc(all, func(x, y window) int { return cmp.Compare(x.from, y.from) })
	var until time.Duration
	for i, w := range all {
		if i == 0 {
			until = w.from
		}
		sum += max(0, w.to-max(w.from, until))
		until = max(until, w.to)
	}
	return sum
}

// exceeded lists the limits of loss that are exceeded, as sentences.
func (g *ledger) exceeded() (why []string) {
	for i, rule := range g.budget.Rules {
		why = append(why, exceededBy(ruleName(i, rule), rule.Limits, g.tallies[i])...)
	}
	which := ""
	if len(g.budget.Rules) > 0 {
		which = " that no rule covers"
	}
	return append(why, tooMany(g.tallies[len(g.budget.Rules)], g.budget.Dropped, g.budget.Delayed, which, "the budget")...)
}

// tooMany lists the limits of counts that a tally exceeds, as sentences. which follows the connections; name is what has the limits.
func tooMany(t tally, dropped, delayed int, which, name string) (why []string) {
	if t.dropped > dropped {
		why = append(why, fmt.Sprintf("%s dropped, %s allows %s", were(t.dropped, which), name, units.Thousands(dropped)))
	}
	if t.delayed > delayed {
		why = append(why, fmt.Sprintf("%s delayed, %s allows %s", were(t.delayed, which), name, units.Thousands(delayed)))
	}
	return why
}

// were is the begin of a sentence about a number of connections.
func were(n int, which string) string {
	if n == 1 {
		return "1 connection" + which + " was"
	}
	return units.Plural(n, "connection") + which + " were"
}

func ruleName(i int, rule record.BudgetRule) string {
	selects := rule.Selector.String()
	if selects == "" {
		selects = "everything"
	}
	return fmt.Sprintf("rule %d of the budget (%s)", i+1, selects)
}

// exceededBy lists the limits of a rule that its tally exceeds.
func exceededBy(name string, limits record.Limits, t tally) (why []string) {
	if dropped, delayed, counts := limits.Counts(); counts {
		why = tooMany(t, dropped, delayed, "", name)
	}
	if gap, since := t.longest(); limits.LongestGap != nil && gap > time.Duration(*limits.LongestGap) {
		why = append(why, fmt.Sprintf("an outage at %s lasted up to %s, %s allows %s", units.At(units.Seconds(since)), units.MsText(units.MillisUp(gap)), name,
			time.Duration(*limits.LongestGap)))
	}
	if sum := t.outage(); limits.Outage != nil && sum > time.Duration(*limits.Outage) {
		why = append(why, fmt.Sprintf("outages lasted up to %s together, %s allows %s", units.MsText(units.MillisUp(sum)), name, time.Duration(*limits.Outage)))
	}
	return why
}

// covered tells what rules covered, as sentences: a pass must not hide it.
func (g *ledger) covered() (texts []string) {
	for i, rule := range g.budget.Rules {
		if t := g.tallies[i]; t.dropped+t.delayed > 0 {
			gap, _ := t.longest()
			texts = append(texts, fmt.Sprintf("%s covers %s dropped and %s delayed; the longest outage lasted up to %s", ruleName(i, rule), units.Thousands(t.dropped),
				units.Thousands(t.delayed), units.MsText(units.MillisUp(gap))))
		}
	}
	return texts
}

// eachLost visits the lost attempts of a lane that are not excused, each once with its outage.
func (a *Analysis) eachLost(l *Lane, visit func(*Outage, *Sample)) {
	seen := map[*Sample]bool{}
	for _, o := range l.Outages {
		o.EachFailed(func(r *Sample) {
			if !seen[r] && a.excuseOf(l, r) == nil {
				visit(o, r)
			}
			seen[r] = true
		})
	}
}

// ledger sums up the lost attempts that were scheduled before an instant.
func (a *Analysis) ledger(until time.Duration) *ledger {
	g := newLedger(a.Run.Budget)
	for _, l := range a.Measured() {
		a.eachLost(l, func(o *Outage, r *Sample) {
			if r.Intended < until {
				g.add(a.ruleOf(o, r), o, r)
			}
		})
	}
	return g
}

// ruleOf is the index of the first rule that selects a lost attempt, or the number of rules.
func (a *Analysis) ruleOf(o *Outage, r *Sample) int {
	i := slices.IndexFunc(a.Run.Budget.Rules, func(rule record.BudgetRule) bool { return rule.BoundsLoss() && a.selects(rule.Selector, o, r) })
	if i < 0 {
		return len(a.Run.Budget.Rules)
	}
	return i
}

func (a *Analysis) selects(s record.Selector, o *Outage, r *Sample) bool {
	is := func(want, have string) bool { return want == "" || want == have }
	cause := ""
	if o.cause.suspect != nil {
		cause = o.cause.suspect.event
	}
	node := a.Nodes[r.Node]
	return is(s.Scenario, a.Run.Scenario) && is(s.Lane, o.Lane.Name) && is(s.Class, r.Class.String()) && is(s.Node, node) &&
		is(s.Cause, cause) && (s.Role == "" || (s.Role == record.RoleDisturbed) == a.disturbed[node])
}

// disturbedNodes are the nodes on which a step of the scenario acted. On a live cluster nodes and proxies change without a step too.
func (a *Analysis) disturbedNodes() map[string]bool {
	nodes, began := map[string]bool{}, a.scenarioBegan()
	for _, e := range a.Events {
		if e.Node == "" || e.At < began {
			continue
		}
		switch body := e.Body.(type) {
		case record.Step, record.Interference:
			nodes[e.Node] = true
		case record.Node:
			nodes[e.Node] = nodes[e.Node] || a.inLab()
		case record.Fault:
			nodes[e.Node] = nodes[e.Node] || !body.Control
		case record.Proxy: // the states that only a step makes
			nodes[e.Node] = nodes[e.Node] || a.inLab() && slices.Contains([]record.ProxyState{record.ProxyStopped, record.ProxyKilled, record.ProxyContinued, record.ProxyFlushed,
				record.ProxyRestored, record.ProxyBlocked, record.ProxyUnblocked, record.ProxyCleanup}, body.State)
		}
	}
	return nodes
}

// tooSlowByRule tells how the lanes exceed the p99 of rules, and which of these limits nothing measured.
func (a *Analysis) tooSlowByRule(lanes []LaneReport) (exceeded, unmeasured []string) {
	bounded := map[string]bool{}
	for i, rule := range a.Run.Budget.Rules {
		if rule.P99 == nil || rule.Scenario != "" && rule.Scenario != a.Run.Scenario {
			continue
		}
		measured := 0
		for _, l := range lanes {
			if l.Slow == nil || rule.Lane != "" && rule.Lane != l.Name {
				continue
			}
			measured++
			if bounded[l.Name] {
				continue
			}
			bounded[l.Name] = true
			limit, name := time.Duration(*rule.P99), ruleName(i, rule)
			switch {
			case l.Slow.Connections < fewestAfter:
				unmeasured = append(unmeasured, fmt.Sprintf("lane %s has %s from the begin of the scenario on; the p99 of %s needs %d", l.Name,
					units.Plural(l.Slow.Connections, "good connection"), name, fewestAfter))
			case l.Slow.P99 > units.Seconds(limit):
				exceeded = append(exceeded, fmt.Sprintf("lane %s: connections needed %s (p99) until connected, %s allows %s", l.Name,
					units.MsText(l.Slow.P99*1e3), name, limit))
			}
		}
		if measured == 0 {
			unmeasured = append(unmeasured, ruleName(i, rule)+" limits the p99 of the time to connect, and no lane that it selects opens connections")
		}
	}
	return exceeded, unmeasured
}

// CheckBudget returns an error for each rule for the scenario of the run that names a lane or a node that the run lacks. The key is
// the index of the rule.
func (a *Analysis) CheckBudget(b record.Budget) map[int]error {
	bad := map[int]error{}
	if len(a.Measured()) == 0 {
		return bad // the run says why
	}
	for i, rule := range b.Rules {
		if rule.Scenario != "" && rule.Scenario != a.Run.Scenario {
			continue
		}
		if rule.Lane != "" && !slices.ContainsFunc(a.Measured(), func(l *Lane) bool { return l.Name == rule.Lane }) && !a.skippedLane(rule.Lane) {
			var names []string
			for _, l := range a.Measured() {
				names = append(names, l.Name)
			}
			bad[i] = fmt.Errorf("the run has no measured lane %q; it has %s", rule.Lane, strings.Join(names, ", "))
		} else if rule.Node != "" && len(a.Run.Nodes) > 0 && !slices.Contains(a.Run.Nodes, rule.Node) {
			bad[i] = fmt.Errorf("the run has no node %q; it has %v", rule.Node, a.Run.Nodes)
		}
	}
	return bad
}

// skippedLane reports whether the run could not measure a lane, and said so.
func (a *Analysis) skippedLane(name string) bool {
	return slices.ContainsFunc(a.Events, func(e record.Event) bool { return e.Kind() == record.KindSkipped && e.Object == name })
}

// badBudget tells which rules of the run's own budget name what the run lacks.
func (a *Analysis) badBudget() (why []string) {
	bad := a.CheckBudget(a.Run.Budget)
	for i, rule := range a.Run.Budget.Rules {
		if bad[i] != nil {
			why = append(why, fmt.Sprintf("%s: %v", ruleName(i, rule), bad[i]))
		}
	}
	return why
}
