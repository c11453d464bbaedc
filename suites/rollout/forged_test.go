//go:build lab

package rollout

import (
	"path/filepath"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/record"
)

// kept decides what a forged record has of another one. Without a function it has all.
type kept struct {
	event   func(record.Event) bool
	attempt prober
}

// forged is a record with a part of another one.
func forged(h *record.History, keep kept) *record.History {
	GinkgoHelper()
	dir := filepath.Join(GinkgoT().TempDir(), record.HistoryDir)
	w, err := record.NewHistoryWriter(dir, h.Run)
	Expect(err).NotTo(HaveOccurred())
	for e, err := range h.Events() {
		Expect(err).NotTo(HaveOccurred())
		if keep.event == nil || keep.event(e) {
			w.Event(e)
		}
	}
	failed := 0
	for a, err := range h.Attempts() {
		Expect(err).NotTo(HaveOccurred())
		if a.Class.Dropped() {
			failed++
		}
		if keep.attempt == nil || keep.attempt(&a, failed) {
			w.Attempt(a)
		}
	}
	Expect(w.Close()).To(Succeed())
	spoiled, err := record.OpenUnsealed(filepath.Dir(dir))
	Expect(err).NotTo(HaveOccurred())
	return spoiled
}

// firstRollout keeps the events of the first rollout, and all others.
func firstRollout() func(record.Event) bool {
	n := 0
	return func(e record.Event) bool {
		_, is := e.Body.(record.Rollout)
		if is {
			n++
		}
		return !is || n <= 2 // it begins and ends
	}
}

// twoGenerations gives the answers of later generations, on the measured lane, to the first one.
func twoGenerations() prober {
	var seen []string
	return func(a *record.Attempt, _ int) bool {
		switch {
		case a.Lane != 1 || a.Generation == "" || slices.Contains(seen, a.Generation):
		case len(seen) < 2:
			seen = append(seen, a.Generation)
		default:
			a.Generation = seen[0]
		}
		return true
	}
}

func noMembership(e record.Event) bool { return e.Kind() != record.KindMembership }

func noneTerminating(a *record.Attempt, _ int) bool {
	a.Terminating = 0
	return true
}

// outside keeps the attempts of other seconds.
func outside(seconds []int) prober {
	return func(a *record.Attempt, _ int) bool { return !slices.Contains(seconds, int(a.Intended.Seconds())) }
}

// slower lets one attempt take a nanosecond longer.
func slower(which int) prober {
	n := 0
	return func(a *record.Attempt, _ int) bool {
		if n++; n == which {
			a.Connect += time.Nanosecond
		}
		return true
	}
}
