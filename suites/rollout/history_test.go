//go:build lab

package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/record"
)

// rollout is one rollout in the history.
type rollout struct {
	from, to           time.Duration
	terminatingAnswers int
	removed, added     []string // nodes of the load balancer's membership
}

func events(h *record.History) []record.Event {
	GinkgoHelper()
	var all []record.Event
	for e, err := range h.Events() {
		Expect(err).NotTo(HaveOccurred())
		all = append(all, e)
	}
	return all
}

// attempts returns the attempts of the measured lane.
func attempts(h *record.History) []record.Attempt {
	GinkgoHelper()
	var lane uint16
	for _, e := range events(h) {
		if b, is := e.Body.(record.Lane); is && !b.Control {
			lane = b.ID
		}
	}
	Expect(lane).To(BeEquivalentTo(1), "the id of the measured lane must be 1")
	var all []record.Attempt
	for a, err := range h.Attempts() {
		Expect(err).NotTo(HaveOccurred())
		if a.Lane == 1 {
			all = append(all, a)
		}
	}
	return all
}

func rolloutsOf(h *record.History) []rollout {
	GinkgoHelper()
	var all []rollout
	var membership []string
	for _, e := range events(h) {
		switch b := e.Body.(type) {
		case record.Rollout:
			if b.State == record.RolloutBegin {
				all = append(all, rollout{from: e.At})
			} else {
				all[len(all)-1].to = e.At
			}
		case record.Membership:
			if !strings.HasSuffix(b.Service, "web") {
				break
			}
			if len(all) > 0 {
				r := &all[len(all)-1]
				r.removed = append(r.removed, without(membership, b.Nodes)...)
				r.added = append(r.added, without(b.Nodes, membership)...)
			}
			membership = b.Nodes
		}
	}
	for _, a := range attempts(h) {
		for i := range all {
			if a.Terminating > 0 && a.Class == record.OK && a.Intended >= all[i].from && a.Intended <= all[i].to {
				all[i].terminatingAnswers++
			}
		}
	}
	return all
}

func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(other, s) })
}

func generations(h *record.History) int {
	GinkgoHelper()
	set := map[string]bool{}
	for _, a := range attempts(h) {
		if a.Generation != "" {
			set[a.Generation] = true
		}
	}
	return len(set)
}

// checkReplaced returns an error unless two rollouts replaced pods while the load balancer followed.
func checkReplaced(h *record.History) error {
	GinkgoHelper()
	rollouts := rolloutsOf(h)
	if len(rollouts) != 2 {
		return fmt.Errorf("%d rollouts, want 2", len(rollouts))
	}
	if n := generations(h); n < 3 {
		return fmt.Errorf("pods of %d generations answered, want 3", n)
	}
	for _, r := range rollouts {
		switch {
		case r.terminatingAnswers == 0:
			return fmt.Errorf("no terminating pod answered: %+v", r)
		case len(r.removed) == 0 || len(r.added) == 0:
			return fmt.Errorf("the membership does not change: %+v", r)
		}
	}
	return nil
}

// window returns the times of the first and the last rollout event.
func window(h *record.History) (first, last time.Duration) {
	GinkgoHelper()
	for _, e := range events(h) {
		if e.Kind() == record.KindRollout {
			if first == 0 {
				first = e.At
			}
			last = e.At
		}
	}
	return first, last
}

// secondsWithout are those without an attempt, from 10 s before the first event of a rollout to 20 s after the last.
func secondsWithout(h *record.History) (seconds []int) {
	GinkgoHelper()
	counts := map[int]int{}
	for _, a := range attempts(h) {
		counts[int(a.Intended.Seconds())]++
	}
	first, last := window(h)
	for second := int((first - 10*time.Second).Seconds()) + 1; second < int((last + 20*time.Second).Seconds()); second++ {
		if counts[second] == 0 {
			seconds = append(seconds, second)
		}
	}
	return seconds
}

// terminationAndRemoval returns when a node's pod started terminating before an outage that begins at from, and when the load balancer
// then removed the node, in seconds.
func terminationAndRemoval(h *record.History, node string, from float64) (began, ended float64) {
	GinkgoHelper()
	for _, e := range events(h) {
		at := e.At.Seconds()
		switch b := e.Body.(type) {
		case record.Endpoint:
			if e.Node == node && b.Service == "web" && b.State == record.EndpointServingTerminating && at < from+0.5 {
				began = at
			}
		case record.Membership:
			if strings.HasSuffix(b.Service, "web") && at > from && ended == 0 && !slices.Contains(b.Nodes, node) {
				ended = at
			}
		}
	}
	return began, ended
}

func latencies(h *record.History) []time.Duration {
	GinkgoHelper()
	var all []time.Duration
	for _, a := range attempts(h) {
		all = append(all, a.Connect)
	}
	return all
}
