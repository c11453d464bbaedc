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

// cause is the candidate with the highest score; the zero value means unexplained.
type cause struct {
	suspect *Candidate
	score   float64
	after   time.Duration // from the event to the first failed attempt
	or      *Candidate    // an equally possible cause; nil where the record decides
}

const (
	// An event explains outages that begin within causeWindow after it. The window is short, so that events with times that are
	// wrong by 10 s explain nothing.
	causeWindow = 5 * time.Second
	// A watcher may record a change this much after it took effect.
	watcherLag = 20 * time.Millisecond
	// An event recorded before the outage weighs more.
	laterShare = 0.5
	// An event of this age counts half.
	causeHalf = 4 * time.Second
	// An outage within this time after another one on its path may have the same cause: one stale backend among several causes
	// many short outages.
	carryWindow = 2 * time.Second
	// The cause carries over for this long, and only to outages of the same class.
	carryLimit = 15 * time.Second
	// Where a node may send traffic to pods of other nodes (externalTrafficPolicy Cluster), the end of a backend on
	// another node weighs a little less. Nothing else that happens on another node explains an outage.
	elsewhere = 0.8
	// The exit of the pod that the kernel chose for the failed attempts, or the loss of that pod's node, weighs more than other events
	// of its age. So does the loss of power of the path's own node.
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
			if end := a.endCause(o, service); end.score > o.cause.score {
				o.cause = end
			}
			last[o.node] = o
			o.goOn(dead, exits)
		}
	}
}

// either returns the better of two causes: an event before the outage, and a lasting event. A pod's exit and another node's loss of
// power both end a backend. Without the kernel's choice the sentence names both.
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

// deadKey is a path's node and an exited pod to which the kernel of that node still sends connections.
type deadKey struct {
	node uint16
	pod  string
}

// deadPod is the exit of such a pod and the end of the last outage that it explains. It explains further outages that follow closely.
type deadPod struct {
	exit *Candidate
	last time.Duration
}

const (
	podExited = "pod exited"
	nodeOff   = "node off"
)

// exitsIn returns the exits of each pod, in order of time.
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

// goOn makes a pod's exit the cause of an outage whose attempts met that pod, if the exit explained an earlier outage on the path or
// could have.
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

// justExited is the pod's last exit within causeWindow before the outage; nil for none.
func (o *Outage) justExited(exits []*Candidate) *Candidate {
	for _, s := range slices.Backward(exits) {
		if s.at <= o.struck+watcherLag+o.Lane.fleet.clock && o.from-s.at <= causeWindow+o.Lane.fleet.clock {
			return s
		}
	}
	return nil
}

// endCause is the change of the Service that ended the lane, for an outage that lasted until then. A watcher sees the change after the
// proxies and the load balancer, and later still where the API was away; the outage may have begun within causeWindow before.
func (a *Analysis) endCause(o *Outage, service string) (best cause) {
	if !o.open || o.Lane.ended == 0 {
		return best
	}
	for _, e := range a.Events {
		body, is := e.Body.(record.Service)
		if !is || e.At != o.Lane.ended || !sameService(body.Service, service) {
			continue
		}
		earliest := e.At
		if body.From != nil {
			earliest = min(*body.From, e.At)
		}
		if s := a.suspectOf(e); o.from >= earliest-causeWindow && s.weight > 0 {
			s.until = 0
			best = cause{suspect: &s, score: s.weight}
		}
	}
	return best
}

// serviceOf is the Service behind a lane, as the load balancer names it if there is one.
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

// blur is the uncertainty of an outage's begin: the time between the last good attempt and the first failed one.
func (o *Outage) blur() time.Duration { return min(max(o.from-o.before, 0), 10*o.Lane.Interval) }

// explain ranks the candidates on the path's node before the outage, by age and weight.
func (a *Analysis) explain(byNode map[string][]Candidate, l *Lane, o *Outage, service string) cause {
	blur := o.blur()
	clock := l.fleet.clock // of the attempts, against that of the events
	baseline, _ := a.Phase("baseline")
	var best cause
	consider := func(list []Candidate, share float64, fits func(*Candidate) bool) {
		i, _ := slices.BinarySearchFunc(list, o.from-causeWindow-blur-clock, func(s Candidate, t time.Duration) int { return cmp.Compare(s.at, t) })
		for ; i < len(list) && list[i].at <= o.struck+watcherLag+clock; i++ {
			s := &list[i]
			if o.healthy && s.at < baseline.From { // the path was good after the set-up
				continue
			}
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
		// This load balancer answers clients itself, so nodes and pods behind it explain no lost connection to it.
		consider(byNode[""], 1, func(s *Candidate) bool { return s.kind == record.KindMembership || s.kind == record.KindFault })
		return best
	}
	// An endpoint whose node is unknown says nothing about a lane that only pods of the path's own node can answer.
	consider(byNode[""], 1, func(s *Candidate) bool { return !l.Local || s.kind != record.KindEndpoint })
	if node != "" {
		consider(byNode[node], 1, func(*Candidate) bool { return true })
	}
	// An external load balancer chose an unknown node, so a backend on any node may be the one.
	anywhere := node == "" && len(a.Paths.Of(l.Frontend())) == 0
	if service == "" || l.Local && !anywhere {
		return best // only pods on the path's own node can answer
	}
	for _, other := range slices.Sorted(maps.Keys(byNode)) {
		if other != "" && other != node {
			consider(byNode[other], elsewhere, func(s *Candidate) bool { return s.backend || anywhere && s.anywhere })
		}
	}
	return best
}

// standingCause ranks events that last while the outage begins. Their age counts for at most causeHalf, so that more recent events
// rank higher.
func (a *Analysis) standingCause(standing []Candidate, l *Lane, o *Outage, service string) (best cause) {
	node := a.Nodes[o.node]
	for i := range standing {
		s := &standing[i]
		if node == "" && s.node != "" && a.Paths.Of(l.Frontend()).Logged() { // as in explain
			continue
		}
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

// suspectText is a clause with the event and its time before the outage.
func (a *Analysis) suspectText(o *Outage, s *Candidate) string {
	what, local := s.what, ""
	if s.event == "pod terminating" && a.pods.onlyReady(s.pod, s.at) {
		what = "the only local " + what
		if o.Lane.Local {
			local = "; externalTrafficPolicy: Local allows the node no other pod"
		}
	}
	clock := o.Lane.fleet.clock
	when := " at the same moment"
	if after := o.from - s.at; after >= max(50*time.Microsecond, clock) {
		when = " " + units.MsText(units.Millis(after)) + " before"
	} else if s.kind != record.KindService && -after >= max(time.Millisecond, clock) {
		when = ", recorded " + units.MsText(units.Millis(-after)) + " after the first failed attempt was due"
	} else if s.kind == record.KindService && -after > watcherLag {
		when = ", which the API showed " + units.MsText(units.Millis(-after)) + " after it began"
	}
	if clock > 0 {
		when += ", give or take " + units.MsText(units.MillisUp(clock)) + " between two clocks"
	}
	text := what + when + local
	if s.until > 0 {
		text += fmt.Sprintf(" and lasted %s", units.MsText(units.Millis(s.until-s.at)))
	}
	return text
}

// failingCheck is the first of the failed health checks that removed the outage's node from the load balancer, with the failure in
// brackets.
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
		case check.Result != record.HealthFail:
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
