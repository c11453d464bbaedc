package museum

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
)

// answering is a bug that gives answers where none may come. Its method search is a Signature.
type answering struct {
	occasions func(r *Record) []step // times from which on no answer may come
	name      string                 // what the occasions are, in the plural
	protocol  string                 // of the lane that gets answers
	least     time.Duration          // the lane gets answers for this long after the end of the occasion
	until     func(r *Record) []step // the first step after which answers may come again; nil for none
	silent    string                 // protocol of a lane that gets no answer in that time; empty for none
}

// search looks for answers.
func (a answering) search(r *Record) Finding {
	occasions := a.occasions(r)
	if len(occasions) == 0 {
		return cannotTell("the run has no %s", a.name)
	}
	first, end := occasions[0], r.end()
	if a.until != nil {
		again := a.until(r)
		if len(again) == 0 {
			return cannotTell("the run has no step that ends the time without answers")
		}
		end = again[0].begin
	}
	from := first.end + effectWithin
	switch {
	case !r.answered(a.protocol, "", 0, first.begin):
		return cannotTell("no attempt of a lane %s was answered before the %s", a.protocol, a.name)
	case end < from+a.least:
		return cannotTell("the run lasted for %s after the first of the %s; the bug needs %s", end-first.end, a.name, effectWithin+a.least)
	case a.silent != "" && r.answered(a.silent, "", from, end):
		return cannotTell("lane %s was answered too, so that the occasion had no effect", a.silent)
	}
	if last, by := r.answersGoOn(a.protocol, from, end); last >= first.end+a.least {
		return Finding{Seen, []string{fmt.Sprintf("%s still answered lane %s at %.1f s, %.1f s after %q", by, a.protocol, last.Seconds(), (last - first.end).Seconds(), first.name)}}
	}
	return Finding{NotSeen, []string{fmt.Sprintf("lane %s was not answered from %q on for %s", a.protocol, first.name, a.least)}}
}

// answersGoOn returns the last of the answers of a lane that come without a pause of more than silence from one time on and until another, and the
// pod that gave it. It is the first time if none comes then.
func (r *Record) answersGoOn(protocol string, from, to time.Duration) (last time.Duration, by string) {
	last = from
	all := slices.DeleteFunc(slices.Clone(r.Answers), func(a Answers) bool { return a.Protocol != protocol })
	slices.SortStableFunc(all, func(a, b Answers) int { return cmp.Compare(a.First, b.First) })
	for _, a := range all {
		if a.First <= last+silence && a.Last > last && last < to {
			last, by = min(a.Last, to), a.Pod
		}
	}
	return last, by
}

// asksUnserved reports whether a lane connected to a port without a Service.
func (r *Record) asksUnserved() bool {
	return slices.ContainsFunc(r.Report.Controls, func(l analysis.LaneReport) bool { return l.Role == record.RoleUnserved && l.Attempts > 0 })
}

// unservedAnswers searches for answers at a port that no Service has, before any change of endpoints.
func unservedAnswers(r *Record) Finding {
	ends := atExits(r)
	switch {
	case len(ends) == 0:
		return cannotTell("the run has no ends of pods")
	case !r.asksUnserved():
		return cannotTell("no lane connected to a port without a Service")
	}
	for _, a := range r.Answers {
		if a.Protocol == record.RoleUnserved && a.First < ends[0].begin {
			return Finding{Seen, []string{fmt.Sprintf("%d connections to a port without a Service were accepted from %.1f s to %.1f s", a.Count, a.First.Seconds(), a.Last.Seconds())}}
		}
	}
	return Finding{NotSeen, []string{"no connection to a port without a Service was accepted"}}
}

// neverServed searches for a node whose own programs do not answer at an address that it got. The load balancer's health checks, which ask the
// proxy of the node, tell that one listens.
func neverServed(r *Record) Finding {
	const least = syncPeriod + 10*time.Second // after the next sync
	got := r.steps("node address ")
	switch {
	case len(got) == 0:
		return cannotTell("no node got an address")
	case !r.asksUnserved():
		return cannotTell("no lane connected to a port without a Service")
	case r.end()-got[0].end < least:
		return cannotTell("the lanes ran for %s after the node got its address; the bug needs %s", r.end()-got[0].end, least)
	case r.answered(record.RoleUnserved, "", got[0].end, r.end()):
		return Finding{NotSeen, []string{"the node's own program answered at its address"}}
	case !r.member(got[0].node, got[0].begin):
		return cannotTell("%s failed health checks of the load balancer: perhaps no program listens", got[0].node)
	}
	return Finding{Seen, []string{fmt.Sprintf("no program of the node answered at its address in %.0f s", (r.end() - got[0].end).Seconds())}}
}

// answersOfNodes searches for an ARP request that more than one node answers.
func answersOfNodes(r *Record) Finding {
	asked := r.steps("ask arp ")
	if len(asked) == 0 {
		return cannotTell("no ARP request was sent")
	}
	for _, e := range r.Events {
		c, is := e.Body.(record.Check)
		during := slices.ContainsFunc(asked, func(s step) bool { return e.At >= s.begin && e.At <= s.end })
		if is && during && strings.HasPrefix(c.Target, record.ARPTarget) && len(strings.Fields(c.Got)) > 1 && c.Got != "no node" {
			return Finding{Seen, []string{fmt.Sprintf("%s answered an ARP request for %s at %.1f s", c.Got, e.Object, e.At.Seconds())}}
		}
	}
	return Finding{NotSeen, []string{fmt.Sprintf("at most one node answered each of %d ARP requests", len(asked))}}
}

// unreadyAnswers searches for a pod that continues to answer new connections while it is unready, later than effectWithin after the change.
func unreadyAnswers(r *Record) Finding {
	const least = 10 * time.Second
	unready := slices.DeleteFunc(r.unready(), func(u step) bool { return u.end-u.begin < effectWithin+least })
	if len(unready) == 0 {
		return cannotTell("no pod was unready for %s in the scenario", effectWithin+least)
	}
	for _, u := range unready {
		from := u.begin + effectWithin
		kept := func(a Answers) bool { return a.Pod == u.name && a.First <= from }
		if answered := r.newAnswersFor(from, u.end, kept); answered >= least {
			return Finding{Seen, []string{fmt.Sprintf("%s answered new connections until %.1f s, although it was unready since %.1f s", u.name,
				(from + answered).Seconds(), u.begin.Seconds())}}
		}
	}
	for _, u := range unready {
		from := u.begin + effectWithin
		if r.newAnswersFor(from, u.end, func(a Answers) bool { return a.Pod != u.name }) < least {
			return cannotTell("no other pod answered new connections for %s while %s was unready", least, u.name)
		}
	}
	return Finding{NotSeen, []string{fmt.Sprintf("no pod answered new connections while it was unready; %d were", len(unready))}}
}

// newAnswersFor returns for how long lane tcp-new had answers without a pause between two times, of those that a condition holds for.
func (r *Record) newAnswersFor(from, to time.Duration, holds func(Answers) bool) (longest time.Duration) {
	for _, a := range r.Answers {
		if a.Protocol == record.ProtocolNew && holds(a) {
			longest = max(longest, min(a.Last, to)-max(a.First, from))
		}
	}
	return longest
}

// unready returns the times in the scenario in which a pod was unready; the name is the pod's.
func (r *Record) unready() (found []step) {
	scenario, open := r.phase("scenario"), map[string]int{}
	for _, e := range r.Events {
		b, is := e.Body.(record.Pod)
		if !is || e.At < scenario {
			continue
		}
		if i, was := open[b.Pod]; was {
			found[i].end = e.At
			delete(open, b.Pod)
		}
		if b.State == record.PodUnready {
			open[b.Pod] = len(found)
			found = append(found, step{b.Pod, b.Node, e.At, r.end()})
		}
	}
	return found
}
