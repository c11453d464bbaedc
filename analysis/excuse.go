package analysis

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// excuse is a loss that a step of the scenario made unavoidable, with the attempts that it excuses.
type excuse struct {
	record.Excuse
	node, text       string
	classes          map[record.Class]bool // nil for all
	dropped, delayed int
	byClass          map[record.Class]int
}

// excuseOf is the excuse of a failed attempt; nil for none.
func (a *Analysis) excuseOf(l *Lane, r *Sample) *excuse {
	return a.excused[AttemptKey{l.ID, uint64(r.Seq)}]
}

// longestUnderWay bounds the time that an attempt before the begin of an excuse may have been under way. ownWork is how long the run's own
// work may delay an answer meanwhile: a VM has one CPU, and the step of a scenario takes 1 ms of it.
const (
	longestUnderWay = 250 * time.Millisecond
	ownWork         = 2 * time.Millisecond
)

// addExcuse stores an excuse.
func (a *Analysis) addExcuse(e record.Event, body record.Excuse) {
	if err := body.Valid(); err != nil {
		a.damaged("an event (%s) at %v: %v", e.Kind(), e.At, err)
		return
	}
	x := &excuse{Excuse: body, node: e.Node, text: e.Text, classes: map[record.Class]bool{}, byClass: map[record.Class]int{}}
	for _, word := range body.Classes {
		var c record.Class
		_ = c.UnmarshalText([]byte(word)) // it is valid
		x.classes[c] = true
	}
	a.excuses = append(a.excuses, x)
}

// addStall excuses what failed in the window of a guard, because its attempts prove nothing.
func (a *Analysis) addStall(e record.Event, g record.Guard) {
	if g.Until == 0 {
		return
	}
	if !plausible(g.From) || !plausible(g.Until) || g.From >= g.Until {
		a.damaged("a guard at %v has an impossible window, from %v to %v", e.At, g.From, g.Until)
		return
	}
	a.stalls = append(a.stalls, g)
	a.excuses = append(a.excuses, &excuse{Excuse: record.Excuse{Path: record.PathAll, From: g.From, Until: g.Until}, text: e.Text, byClass: map[record.Class]int{}})
}

// excuseAttempts finds the failed attempts that excuses explain by path, time and class. The first excuse that explains an attempt
// counts it.
func (a *Analysis) excuseAttempts() {
	a.excused = map[AttemptKey]*excuse{}
	var all []*excuse
	for _, x := range a.excuses {
		if x.Path == record.PathExits {
			all = append(all, x.ofPods(a)...)
		} else {
			all = append(all, x)
		}
	}
	if a.excuses = all; len(all) == 0 {
		return
	}
	for _, l := range a.Measured() {
		lead := l.underWay(a.scenarioBegan())
		for _, x := range a.excuses {
			if x.concerns(a, l) {
				x.take(a, l, lead)
			}
		}
	}
}

// ofPods are the excuses of the pods that PathExits is about, each for the pod's node.
func (x *excuse) ofPods(a *Analysis) (all []*excuse) {
	for _, e := range a.Events {
		body, is := e.Body.(record.Pod)
		name, node := PodOf(e), NodeOf(e)
		life := a.pods.byName[name]
		if !is || body.State != record.PodTerminating || e.At < x.From || e.At >= x.Until || node == "" || x.node != "" && node != x.node ||
			life == nil || !life.serves(x.Service) || a.pods.otherReady(name, node, x.Service, e.At+x.After) {
			continue
		}
		one := *x
		one.Path, one.node, one.byClass = record.PathNode, node, map[record.Class]int{}
		// The pod began to terminate before a watcher recorded it.
		one.From, one.Until = e.At+x.After-watcherLag, e.At+x.Most
		if ready, is := a.pods.nextReady(name, node, x.Service, e.At+x.After); is && x.Follow > 0 {
			one.Until = min(one.Until, ready+x.Follow)
		}
		one.text = "pod " + name + " ended there, and " + x.text
		all = append(all, &one)
	}
	return all
}

// otherReady reports whether a node has another ready pod of a Service just before an instant.
func (p pods) otherReady(name, node, service string, at time.Duration) bool {
	for other, l := range p.byName {
		if other != name && l.node == node && l.serves(service) && l.readyBefore(at) {
			return true
		}
	}
	return false
}

// nextReady is when another pod of a Service became ready on a node, from an instant on; false if none did.
func (p pods) nextReady(name, node, service string, from time.Duration) (at time.Duration, is bool) {
	for other, l := range p.byName {
		if other == name || l.node != node || !l.serves(service) {
			continue
		}
		for _, c := range l.changes {
			if c.ready && c.at >= from && (!is || c.at < at) {
				at, is = c.at, true
			}
		}
	}
	return at, is
}

// concerns reports whether the excuse is about attempts of the lane.
func (x *excuse) concerns(a *Analysis, l *Lane) bool {
	open := l.Keeps()
	service := a.serviceOf(l)
	return (open || !x.Open) && (x.Lane == 0 || x.Lane == l.ID) && (service == "" || x.Service == "" || sameService(x.Service, service))
}

// take excuses failed attempts of a lane that were under way for up to lead when the excuse began, or started in its window.
func (x *excuse) take(a *Analysis, l *Lane, lead time.Duration) {
	var unknown []*Sample // attempts that may have gone to a pod on the node
	sure, all := 0, 0     // on the paths of which a share is excused
	for i := l.RecordAt(x.From - lead); i < len(l.Records) && l.Records[i].Start() < x.Until; i++ {
		r := &l.Records[i]
		if r.Class == record.Probe || r.failed() && a.excuseOf(l, r) != nil || r.end() < x.From-ownWork {
			continue
		}
		if x.Path != record.PathNode || a.Nodes[r.Node] == x.node {
			all += int(r.N)
		}
		if !r.failed() || x.classes != nil && !x.classes[r.Class] {
			continue
		}
		switch x.onPath(a, l, r) {
		case yes:
			x.count(a, l, r)
			sure++
		case unclear:
			unknown = append(unknown, r)
		}
	}
	for _, r := range unknown[:min(len(unknown), max(0, mostOfShare(all, x.Share)-sure))] {
		x.count(a, l, r)
	}
}

func (x *excuse) count(a *Analysis, l *Lane, r *Sample) {
	a.excused[AttemptKey{l.ID, uint64(r.Seq)}] = x
	x.byClass[r.Class]++
	if r.Class == record.Delayed {
		x.delayed++
	} else {
		x.dropped++
	}
}

// answer is whether an attempt went over the path of an excuse.
type answer int

const (
	no answer = iota
	yes
	unclear
)

func answerOf(is bool) answer {
	if is {
		return yes
	}
	return no
}

// onPath tells whether a failed attempt went over the excuse's path.
func (x *excuse) onPath(a *Analysis, l *Lane, r *Sample) answer {
	switch x.Path {
	case record.PathAll:
		return yes
	case record.PathNode:
		if a.Nodes[r.Node] == x.node && x.Share > 0 && x.Share < 1 {
			return unclear // which of the node's attempts the share is
		}
		return answerOf(a.Nodes[r.Node] == x.node)
	case record.PathNone:
		ms := a.Paths.Of(l.Frontend())
		return answerOf(r.Node == 0 && r.epoch >= 0 && int(r.epoch) < len(ms) && len(ms[r.epoch].Nodes) == 0)
	}
	return a.wentToPodOn(l, r, x.node, x.Service)
}

// wentToPodOn tells whether the kernel gave a failed attempt to a pod of a Service on a node. It is unclear where the kernel was not
// asked, no longer knew a connection that stays open, or may have changed its choice because the pod is no longer an endpoint.
func (a *Analysis) wentToPodOn(l *Lane, r *Sample, node, service string) answer {
	choice, asked := a.choices[AttemptKey{l.ID, uint64(r.Seq)}]
	chosen := asked && choice.backend.IsValid()
	switch {
	case chosen && a.pods.isOn(node, a.pods.podAt(choice.backend.Addr().String(), r.Start())):
		return yes
	case asked && a.pods.leftEndpoints(node, service, r.Start(), choice.asked):
		return unclear
	case chosen, asked && (l.Opens() || l.Protocol == record.ProtocolFresh):
		return no
	}
	return unclear
}

// mostOfShare is the number of attempts that chance makes of a share, three standard deviations above it.
func mostOfShare(attempts int, share float64) int {
	expected := float64(attempts) * share
	return int(math.Ceil(expected + 3*math.Sqrt(expected*(1-share))))
}

// underWay is how long a good attempt of the lane takes from its start to its answer (p99 before the scenario, and ownWork): what began
// this long before an excuse may have met it.
func (l *Lane) underWay(began time.Duration) time.Duration {
	before, _, _ := l.speeds(began-l.fleet.clock, began)
	if before.answer.Count() == 0 {
		return 0
	}
	return min(before.answer.Quantile(0.99)+ownWork, longestUnderWay)
}

// pathText names the path of an excuse.
func (x *excuse) pathText() string {
	text := "on all paths"
	switch x.Path {
	case record.PathNode:
		text = "over " + x.node
	case record.PathPods:
		text = "to the pods on " + x.node
	case record.PathNone:
		text = "while the load balancer had no node"
	}
	if x.Open {
		text = "on open connections " + text
	}
	return text
}

// ExcusedReport is loss that a step of the scenario made unavoidable. It counts in the totals, and not for the verdict.
type ExcusedReport struct {
	Text    string         `json:"text"` // why, a clause without its full stop
	Path    string         `json:"path"` // all, node, pods or none
	Node    string         `json:"node"` // of the paths node and pods; empty for others
	Where   string         `json:"where"`
	Service string         `json:"service"`
	From    float64        `json:"from"` // the window, in seconds; an attempt that starts at until is not excused
	Until   float64        `json:"until"`
	Dropped int            `json:"dropped"`
	Delayed int            `json:"delayed"`
	ByClass map[string]int `json:"byClass"` // only classes that occur
}

// Attempts is the number of attempts that are excused.
func (e ExcusedReport) Attempts() int { return e.Dropped + e.Delayed }

// Sentence says what was excused, where, when and why.
func (e ExcusedReport) Sentence() string {
	return fmt.Sprintf("excused: %s %s from %s to %s (%s), because %s", units.Plural(e.Attempts(), "failed attempt"), e.Where, units.At(e.From), units.At(e.Until),
		ClassesText(e.ByClass), e.Text)
}

// excusedReports are the excuses that excused an attempt, in order of their windows.
func (a *Analysis) excusedReports() (all []ExcusedReport) {
	for _, x := range a.excuses {
		if x.dropped+x.delayed == 0 {
			continue
		}
		r := ExcusedReport{Text: strings.TrimSuffix(x.text, "."), Path: x.Path, Node: x.node, Where: x.pathText(), Service: x.Service, From: units.Seconds(x.From),
			Until: units.Seconds(x.Until), Dropped: x.dropped, Delayed: x.delayed, ByClass: map[string]int{}}
		for c, n := range x.byClass {
			r.ByClass[c.String()] = n
		}
		all = append(all, r)
	}
	slices.SortStableFunc(all, func(x, y ExcusedReport) int { return cmp.Compare(x.From, y.From) })
	return all
}

// ExcusedAttempts is the number of failed attempts that are excused.
func (r *Report) ExcusedAttempts() (n int) {
	for _, e := range r.Excused {
		n += e.Attempts()
	}
	return n
}

// mostExcuses is how many excuses the reasons tell; report.json has all.
const mostExcuses = 20

// ExcusedText says how many of the failed attempts are excused.
func (r *Report) ExcusedText() string {
	return fmt.Sprintf("%s of %s failed connections", units.Thousands(r.ExcusedAttempts()), units.Thousands(r.Totals.Dropped+r.Totals.Delayed))
}

// ExcuseTexts are sentences about the excused attempts.
func (r *Report) ExcuseTexts() (texts []string) {
	for i, e := range r.Excused {
		if i == mostExcuses {
			losses := " losses more"
			if len(r.Excused)-i == 1 {
				losses = " loss more"
			}
			return append(texts, "excused: "+units.Thousands(len(r.Excused)-i)+losses)
		}
		texts = append(texts, e.Sentence())
	}
	return texts
}

// excusedClause tells in the sentence of the run how many of the failed attempts are excused, and why; empty for none.
func (r *Report) excusedClause() string {
	if len(r.Excused) == 0 {
		return ""
	}
	whose := "all in"
	if n, failed := r.ExcusedAttempts(), r.Totals.Dropped+r.Totals.Delayed; n < failed {
		whose = units.Thousands(n) + " of them in"
	}
	text := fmt.Sprintf(", %s the loss that is unavoidable because %s", whose, r.Excused[0].Text)
	if more := len(r.Excused) - 1; more > 0 {
		text += fmt.Sprintf(" (and for %s more)", units.Plural(more, "reason"))
	}
	return text
}
