package analysis

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// cause is the event that explains an outage best; its zero value explains nothing.
type cause struct {
	suspect *Candidate
	score   float64
	after   time.Duration // from the event to the first failed attempt
	or      *Candidate    // what may be it instead; nil where the record decides
}

const (
	// An event explains what begins within causeWindow after it. It is kept short on purpose: with events that are wrong
	// by 10 s the explained share has to collapse.
	causeWindow = 5 * time.Second
	// A watcher may record a change this much after it took effect.
	watcherLag = 20 * time.Millisecond
	// But what was recorded before weighs more.
	laterShare = 0.5
	// An event of this age counts half.
	causeHalf = 4 * time.Second
	// An outage that begins so soon after another one on the same path may have its cause: a stale backend among
	// several makes many short outages of one event.
	carryWindow = 2 * time.Second
	// But not for ever, and only if it fails in the same way.
	carryLimit = 15 * time.Second
	// Where a node may send traffic to pods of other nodes (externalTrafficPolicy Cluster), the end of a backend on
	// another node weighs a little less. Nothing else that happens on another node explains an outage.
	elsewhere = 0.8
	// The end of the very pod that the kernel gave the failed attempts, its exit or the loss of its node's power, weighs more than
	// anything else of its age; so does the loss of power of the path's own node, over which nothing passes.
	metShare = 2
	// The pods of a node without power stay endpoints until the node lifecycle controller has missed its heartbeats for 50 s
	// (--node-monitor-grace-period) and the proxies have followed; so long does it explain what fails over other nodes.
	nodeLost = 2 * time.Minute
)

// attribute finds the cause of every outage.
func (a *Analysis) attribute() {
	byNode, standing := a.suspectsOf()
	exits := exitsIn(byNode)
	for _, l := range a.Lanes {
		service := a.serviceOf(l)
		last := map[uint16]*Outage{}
		dead := map[deadKey]deadPod{}
		for _, o := range l.Outages {
			o.chosen = a.chosenIn(o)
			o.met = o.podsMet()
			o.cause = a.either(o, a.explain(byNode, l, o, service), a.standingCause(standing, l, o, service))
			if p := last[o.node]; p != nil && p.carriesTo(o) {
				o.cause = cause{suspect: p.cause.suspect, score: p.cause.score, after: max(0, o.from-p.cause.suspect.at)}
				if len(o.chosen) == 0 {
					o.cause.or = p.cause.or
				}
			}
			last[o.node] = o
			o.goOn(dead, exits)
		}
	}
}

// either is the better of what happened before an outage and what stood when it began. The exit of a pod and the loss of another
// node's power are both the end of a backend: which of the two an attempt was given to only the kernel knows, and where it was not
// asked the one is told beside the other.
func (a *Analysis) either(o *Outage, happened, stood cause) cause {
	best, other := happened, stood
	if stood.score > happened.score {
		best, other = stood, happened
	}
	exit, off := happened.suspect, stood.suspect
	if exit != nil && off != nil && exit.event == podExited && off.event == nodeOff && off.node != a.Nodes[o.node] && len(o.chosen) == 0 {
		best.or = other.suspect
	}
	return best
}

// deadKey is a path's node and a pod that the kernel there gives connections to, although it has exited.
type deadKey struct {
	node uint16
	pod  string
}

// deadPod is the exit of such a pod, which explains outage after outage for as long as they follow each other, and the end of
// the last of them.
type deadPod struct {
	exit *Candidate
	last time.Duration
}

const (
	podExited = "pod exited"
	nodeOff   = "node off"
)

// exitsIn are the exits of each pod, in order of time: a pod has one node.
func exitsIn(byNode map[string][]Candidate) map[string][]*Candidate {
	exits := map[string][]*Candidate{}
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		for i := range byNode[node] {
			if s := &byNode[node][i]; s.event == podExited {
				exits[s.pod] = append(exits[s.pod], s)
			}
		}
	}
	return exits
}

// goOn gives an outage the exit of a pod that it met for its cause, if that explained an earlier one on its path or could have.
func (o *Outage) goOn(dead map[deadKey]deadPod, exits map[string][]*Candidate) {
	for _, pod := range o.met {
		if d, known := dead[deadKey{o.node, pod}]; known && o.from-d.last <= carryWindow {
			o.cause = cause{suspect: d.exit, score: d.exit.weight * metShare, after: max(0, o.from-d.exit.at)}
			break
		}
	}
	for _, pod := range o.met {
		d, known := dead[deadKey{o.node, pod}]
		if !known || o.from-d.last > carryWindow {
			d.exit = o.justExited(exits[pod])
		}
		if d.exit != nil {
			dead[deadKey{o.node, pod}] = deadPod{d.exit, o.to}
		}
	}
}

// justExited is the last of a pod's exits that is as near to the outage as a cause has to be; nil for none.
func (o *Outage) justExited(exits []*Candidate) *Candidate {
	for _, s := range slices.Backward(exits) {
		if s.at <= o.struck+watcherLag+o.Lane.fleet.clock && o.from-s.at <= causeWindow+o.Lane.fleet.clock {
			return s
		}
	}
	return nil
}

// serviceOf is the service behind a lane, as the balancer names it if there is one.
func (a *Analysis) serviceOf(l *Lane) string {
	if ts := a.Paths.Of(l.Frontend()); len(ts) > 0 {
		return ts[0].Service
	}
	return l.Service
}

// carriesTo reports whether the cause of an outage explains the next one on its path as well, and better than its own.
func (o *Outage) carriesTo(next *Outage) bool {
	if o.cause.suspect == nil || o.cause.score <= next.cause.score || next.from-o.to > carryWindow || next.from-o.cause.suspect.at > carryLimit {
		return false
	}
	for class := range next.classes {
		if o.classes[class] > 0 {
			return true
		}
	}
	return false
}

// blur is how well the beginning of an outage is known: it lies between the last good attempt and the first failed one, and a slow
// lane knows it less well.
func (o *Outage) blur() time.Duration { return min(max(o.from-o.before, 0), 10*o.Lane.Interval) }

// explain ranks the suspects of the path's node that precede the outage: the nearest and the heaviest first.
func (a *Analysis) explain(byNode map[string][]Candidate, l *Lane, o *Outage, service string) cause {
	blur := o.blur()
	clock := l.fleet.clock // of the attempts, against that of the events
	var best cause
	consider := func(list []Candidate, share float64, fits func(*Candidate) bool) {
		i, _ := slices.BinarySearchFunc(list, o.from-causeWindow-blur-clock, func(s Candidate, t time.Duration) int { return cmp.Compare(s.at, t) })
		for ; i < len(list) && list[i].at <= o.struck+watcherLag+clock; i++ {
			s := &list[i]
			if !fits(s) || !s.concerns(l, service, a.pods) || (s.until > 0 && s.until < o.before-clock) {
				continue
			}
			age := max(0, o.from-s.at)
			score := share * s.weight / (1 + float64(age)/float64(causeHalf+blur))
			if s.at > o.struck+clock {
				score *= laterShare
			}
			if s.event == podExited && slices.Contains(o.met, s.pod) {
				score *= metShare
			}
			if score >= best.score {
				best = cause{suspect: s, score: score, after: age}
			}
		}
	}
	node := a.Nodes[o.node]
	if node == "" && a.Paths.Of(l.Frontend()).Logged() {
		// The balancer answers clients itself, whatever becomes of nodes and pods behind it.
		consider(byNode[""], 1, func(s *Candidate) bool { return s.kind == record.KindMembership || s.kind == record.KindFault })
		return best
	}
	// An endpoint whose node is unknown says nothing about a lane that only pods of the path's own node can answer.
	consider(byNode[""], 1, func(s *Candidate) bool { return !l.Local || s.kind != record.KindEndpoint })
	if node != "" {
		consider(byNode[node], 1, func(*Candidate) bool { return true })
	}
	// A balancer of somebody else's gave the attempt to a node that nobody knows: then it is any node's backend.
	anywhere := node == "" && len(a.Paths.Of(l.Frontend())) == 0
	if service == "" || l.Local && !anywhere {
		return best // only pods on the path's own node can answer
	}
	for _, other := range slices.Sorted(maps.Keys(byNode)) {
		if other != "" && other != node {
			consider(byNode[other], elsewhere, func(s *Candidate) bool { return s.backend })
		}
	}
	return best
}

// standingCause ranks what stands while the outage begins: beyond causeHalf its age makes it no less likely, so that what happened
// just before counts more.
func (a *Analysis) standingCause(standing []Candidate, l *Lane, o *Outage, service string) (best cause) {
	node := a.Nodes[o.node]
	for i := range standing {
		s := &standing[i]
		age := max(0, o.from-s.at)
		share := 1.0
		if s.event == nodeOff && (s.node == node || a.metOn(o, s.node)) {
			share = metShare
		} else if s.node != "" && s.node != node {
			if !s.backend || l.Local || service == "" || age > nodeLost {
				continue
			}
			share = elsewhere
		}
		if clock := l.fleet.clock; s.at > o.struck+watcherLag+clock || (s.until > 0 && s.until < o.before-clock) || !s.concerns(l, service, a.pods) {
			continue
		}
		if score := share * s.weight / (1 + float64(min(age, causeHalf))/float64(causeHalf+o.blur())); score >= best.score {
			best = cause{suspect: s, score: score, after: age}
		}
	}
	return best
}

// causeText tells the cause in one sentence without a capital and a full stop, and how the outage ended when it did not end
// by itself.
func (a *Analysis) causeText(o *Outage) string {
	text := "nothing in the record explains it"
	if o.cause.suspect != nil {
		text = a.suspectText(o, o.cause.suspect)
	}
	if o.cause.or != nil {
		text += ", or " + a.suspectText(o, o.cause.or) + ": the kernel was not asked which pod it chose"
	}
	if rule := a.ruleText(o); rule != "" && o.cause.suspect == nil {
		text = "no event explains it, but " + rule
	} else if rule != "" {
		text += "; " + rule
	}
	if whose := podsText(a.podsBeside(o)); whose != "" {
		text += "; " + whose
	}
	if seen := a.freshBeside(o); seen.tried > 0 {
		text += "; " + seen.text(o)
	}
	switch {
	case o.left > 0:
		if check, status := a.failingCheck(o); check > 0 {
			text += fmt.Sprintf("; %s failed its health checks from %s on%s", a.Nodes[o.node], units.At(units.Seconds(check)), status)
		}
		text += fmt.Sprintf("; it ended when the load balancer took %s out at %s", a.Nodes[o.node], units.At(units.Seconds(o.left)))
	case o.open:
		text += "; it lasted until the lane ended"
	}
	return text
}

// suspectText is a clause that tells what happened and how long before the outage.
func (a *Analysis) suspectText(o *Outage, s *Candidate) string {
	what := s.what
	if s.event == "pod terminating" && a.pods.onlyReady(s.pod, s.at) {
		what = "the only local " + what
	}
	clock := o.Lane.fleet.clock
	when := " at the same moment"
	if after := o.from - s.at; after >= max(50*time.Microsecond, clock) {
		when = " " + units.MsText(units.Millis(after)) + " before"
	}
	if clock > 0 {
		when += ", give or take " + units.MsText(units.MillisUp(clock)) + " between two clocks"
	}
	text := what + when
	if s.until > 0 {
		text += fmt.Sprintf(" and lasted %s", units.MsText(units.Millis(s.until-s.at)))
	}
	return text
}

// failingCheck is the first of the failed health checks that took the outage's node out of the balancer, and how it
// failed, in brackets.
func (a *Analysis) failingCheck(o *Outage) (at time.Duration, status string) {
	node, service := a.Nodes[o.node], a.serviceOf(o.Lane)
	for _, e := range a.Events {
		if e.At > o.left {
			break
		}
		check, is := e.Body.(record.HealthCheck)
		if !is || e.Node != node || (service != "" && !sameService(e.Object, service)) {
			continue
		}
		switch {
		case check.Result != "fail":
			at = 0
		case at == 0:
			at, status = e.At, ""
			if check.Status != "" {
				status = " (" + check.Status + ")"
			}
		}
	}
	return at, status
}
