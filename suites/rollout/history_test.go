//go:build lab

package rollout

import (
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/record"
)

// seen is what the history shows of one rollout.
type seen struct {
	from, to           time.Duration
	terminatingAnswers int
	left, entered      []string // nodes, of the balancer's table
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

// attempts are those of the measured lane.
func attempts(h *record.History) []record.Attempt {
	GinkgoHelper()
	var lane uint16
	for _, e := range events(h) {
		if b, is := e.Body.(record.Lane); is && !b.Control {
			lane = b.ID
		}
	}
	Expect(lane).To(BeEquivalentTo(1), "the measured lane is the first")
	var all []record.Attempt
	for a, err := range h.Attempts() {
		Expect(err).NotTo(HaveOccurred())
		if a.Lane == 1 {
			all = append(all, a)
		}
	}
	return all
}

func rolloutsOf(h *record.History) []seen {
	GinkgoHelper()
	var all []seen
	var table []string
	for _, e := range events(h) {
		switch b := e.Body.(type) {
		case record.Rollout:
			if b.State == "begin" {
				all = append(all, seen{from: e.At})
			} else {
				all[len(all)-1].to = e.At
			}
		case record.Membership:
			if !strings.HasSuffix(b.Service, "web") {
				break
			}
			if len(all) > 0 {
				r := &all[len(all)-1]
				r.left = append(r.left, without(table, b.Nodes)...)
				r.entered = append(r.entered, without(b.Nodes, table)...)
			}
			table = b.Nodes
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

// window is the time of the first and the last event of the scenario.
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

func attemptsPerSecond(h *record.History) map[int]int {
	GinkgoHelper()
	counts := map[int]int{}
	for _, a := range attempts(h) {
		counts[int(a.Intended.Seconds())]++
	}
	return counts
}

// detection is when, around an outage that begins at a time, the node's pod starts terminating and when the balancer
// takes the node out, in seconds.
func detection(h *record.History, node string, from float64) (began, ended float64) {
	GinkgoHelper()
	for _, e := range events(h) {
		at := e.At.Seconds()
		switch b := e.Body.(type) {
		case record.Endpoint:
			if e.Node == node && b.Service == "web" && b.State == "serving-terminating" && at < from+0.5 {
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
