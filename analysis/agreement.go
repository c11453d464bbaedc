package analysis

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// CheckAgreement recounts a history attempt by attempt and compares the counts with the report's: totals, classes,
// drops per second, lanes, paths and outages must agree with the history and with each other. It shares no arithmetic
// with Build but the choice of the path. The error lists every disagreement.
func CheckAgreement(h *record.History, r *Report) error {
	counts, lanes, err := recountAll(h)
	if err != nil {
		return err
	}
	var errs []error
	differ := func(what string, reported, counted any) {
		if fmt.Sprint(reported) != fmt.Sprint(counted) {
			errs = append(errs, fmt.Errorf("%s: the report says %v, the history %v", what, reported, counted))
		}
	}
	sum := newRecount()
	for i, l := range lanes {
		where, c := r.Lanes, counts[i]
		if l.Control {
			where = r.Controls
		} else {
			sum.merge(c)
		}
		k := slices.IndexFunc(where, func(x LaneReport) bool { return x.Name == l.Name })
		if k < 0 {
			errs = append(errs, fmt.Errorf("lane %s is missing from the report", l.Name))
			continue
		}
		c.compareLane(where[k], differ)
	}
	differ("number of lanes", len(r.Lanes)+len(r.Controls), len(lanes))
	t := r.Totals
	differ("totals.byClass", t.ByClass, sum.words())
	differ("totals", []int{t.Attempts, t.OK, t.Delayed, t.Dropped}, []int{sum.attempts, sum.class[record.OK], sum.class[record.Delayed], sum.dropped()})
	differ("totals: attempts = ok + delayed + dropped + probe", t.Attempts, t.OK+t.Delayed+t.Dropped+t.ByClass[record.Probe.String()])
	return errors.Join(errs...)
}

// recount is a count of attempts made from the history alone.
type recount struct {
	attempts  int
	class     map[record.Class]int
	perSecond map[int]int
	path      map[string][2]int // attempts and dropped
	failed    map[string]int    // by node
}

func newRecount() *recount {
	return &recount{class: map[record.Class]int{}, perSecond: map[int]int{}, path: map[string][2]int{}, failed: map[string]int{}}
}

func recountAll(h *record.History) ([]*recount, []*Lane, error) {
	a, err := eventsOnly(h)
	if err != nil {
		return nil, nil, err
	}
	counts := make([]*recount, len(a.Lanes))
	for i := range counts {
		counts[i] = newRecount()
	}
	for e, err := range h.Entries() {
		if err != nil {
			return nil, nil, fmt.Errorf("recounting the history: %w", err)
		}
		attempt := e.Attempt
		if e.Bucket != nil {
			attempt.Lane = e.Bucket.Lane
		}
		i := slices.IndexFunc(a.Lanes, func(l *Lane) bool { return l.ID == attempt.Lane })
		if i < 0 {
			return nil, nil, fmt.Errorf("recounting the history: attempt %d is of lane %d, which no event declares", attempt.Seq, attempt.Lane)
		}
		l := a.Lanes[i]
		if e.Bucket != nil {
			counts[i].addBucket(e.Bucket)
			continue
		}
		counts[i].add(&attempt, a.Paths.Path(l.DeclaredLane, &attempt).Node)
	}
	return counts, a.Lanes, nil
}

func eventsOnly(h *record.History) (*Analysis, error) {
	a := newAnalysis(h.Run)
	if err := a.readEvents(h); err != nil {
		return nil, fmt.Errorf("recounting the history: %w", err)
	}
	return a, nil
}

func (c *recount) add(a *record.Attempt, node string) {
	c.attempts++
	c.class[a.Class]++
	path := c.path[node]
	path[0]++
	if a.Class.Dropped() {
		path[1]++
		c.perSecond[int(a.Intended/time.Second)]++
	}
	c.path[node] = path
	if a.Class.Dropped() || a.Class == record.Delayed {
		c.failed[node]++
	}
}

// addBucket counts the attempts of a bucket. All are good, and the bucket names their paths.
func (c *recount) addBucket(b *record.Bucket) {
	for _, g := range b.Groups {
		c.attempts += int(g.Count)
		c.class[record.OK] += int(g.Count)
		path := c.path[g.Path]
		path[0] += int(g.Count)
		c.path[g.Path] = path
	}
}

func (c *recount) merge(o *recount) {
	c.attempts += o.attempts
	for class, n := range o.class {
		c.class[class] += n
	}
}

func (c *recount) dropped() int {
	n := 0
	for class, k := range c.class {
		if class.Dropped() {
			n += k
		}
	}
	return n
}

func (c *recount) words() map[string]int {
	words := map[string]int{}
	for _, class := range record.Classes() {
		words[class.String()] = c.class[class]
	}
	return words
}

func (c *recount) compareLane(l LaneReport, differ func(what string, reported, counted any)) {
	differ("lane "+l.Name, []int{l.Attempts, l.OK, l.Delayed, l.Dropped}, []int{c.attempts, c.class[record.OK], c.class[record.Delayed], c.dropped()})
	perSecond := map[int]int{}
	for second, n := range l.DroppedPerSecond {
		if n > 0 {
			perSecond[second] = n
		}
	}
	differ("lane "+l.Name+": droppedPerSecond", perSecond, c.perSecond)
	paths := map[string][2]int{}
	for _, p := range l.Paths {
		paths[p.Node] = [2]int{p.Attempts, p.Dropped}
	}
	differ("lane "+l.Name+": paths", paths, c.path)
	failed := map[string]int{}
	for _, o := range l.Outages {
		failed[o.Node] += o.Failed()
	}
	differ("lane "+l.Name+": failed attempts in outages by node", failed, c.failed)
}

// CheckPaths checks the computed or logged choice of the load balancer on lanes that only pods of the path's own node can answer:
// every answer must come from the computed or logged node. Answers during a change of membership are left out, because they decide
// the path themselves. The error counts the answers that disagree, and names the first.
func CheckPaths(h *record.History) error {
	a, err := eventsOnly(h)
	if err != nil {
		return err
	}
	lanes := map[uint16]*Lane{}
	for _, l := range a.Lanes {
		lanes[l.ID] = l
	}
	checked, wrong, first := 0, map[string]int{}, ""
	for e, err := range h.Entries() {
		if err != nil {
			return fmt.Errorf("checking the paths: %w", err)
		}
		if e.Bucket != nil { // its paths were computed like those of other attempts
			continue
		}
		attempt := e.Attempt
		l := lanes[attempt.Lane]
		if l == nil || !l.Local || attempt.Node == "" || attempt.Class == record.Misrouted { // a wrong backend may be on any node
			continue
		}
		checked++
		if node, source := a.chosen(l, &attempt); node != attempt.Node {
			if len(wrong) == 0 {
				first = fmt.Sprintf("attempt %d at %s was answered on %s, the balancer's %s gives %s", attempt.Seq,
					units.At(units.Seconds(attempt.Intended)), attempt.Node, source, NodeText(node))
			}
			wrong[l.Name]++
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(wrong)) {
		errs = append(errs, fmt.Errorf("lane %s: %d of %d answers came over another node than the balancer chose; first: %s", name, wrong[name], checked, first))
	}
	return errors.Join(errs...)
}

// chosen is the node that the load balancer chose for an answered attempt, and the source: its table or its log.
func (a *Analysis) chosen(l *Lane, at *record.Attempt) (node, source string) {
	key := l.Frontend()
	if ts := a.Paths.Of(key); !ts.Logged() {
		return a.Paths.Path(l.DeclaredLane, at).Node, "table" // lanes that only pods of the path's own node can answer
	}
	return a.Paths.FlowNode(l.DeclaredLane, at), "log"
}
