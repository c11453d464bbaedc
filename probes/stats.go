package probes

import (
	"maps"
	"sync"

	"github.com/hitless/hitless/record"
)

// LaneStats has the counts of a lane.
type LaneStats struct {
	lane Lane

	mu         sync.Mutex
	attempts   uint64
	classes    [record.WrongAnswer + 1]uint64
	lateness   record.Bins
	peakFlight int
}

// Counts is a snapshot of LaneStats.
type Counts struct {
	Lane         Lane
	Attempts     uint64                  // with a known outcome
	Classes      map[record.Class]uint64 // without zero counts
	Lateness     record.Bins             // of starts
	PeakInFlight int
}

func newLaneStats(l Lane) *LaneStats {
	return &LaneStats{lane: l, lateness: record.Bins{}}
}

func (s *LaneStats) count(a *record.Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts++
	s.classes[a.Class]++
	s.lateness.Add(a.Lateness(), 1)
}

func (s *LaneStats) peak(inFlight int) {
	if inFlight > s.peakFlight { // only the engine's goroutine writes it, so this read needs no lock
		s.mu.Lock()
		s.peakFlight = inFlight
		s.mu.Unlock()
	}
}

// Counts returns a snapshot of the counts.
func (s *LaneStats) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := Counts{Lane: s.lane, Attempts: s.attempts, Classes: map[record.Class]uint64{}, PeakInFlight: s.peakFlight,
		Lateness: maps.Clone(s.lateness)}
	for class, n := range s.classes {
		if n > 0 {
			c.Classes[record.Class(class)] = n
		}
	}
	return c
}

// Stats returns the counts of all lanes in the order of Start.
func (e *Engine) Stats() []Counts {
	e.mu.Lock()
	all := e.stats
	e.mu.Unlock()
	counts := make([]Counts, len(all))
	for i, s := range all {
		counts[i] = s.Counts()
	}
	return counts
}
