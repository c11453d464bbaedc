package fleet

import (
	"slices"
	"sync"
	"time"

	"github.com/hitless/hitless/record"
)

const (
	// journalLimit is how many attempts a worker keeps for a collector that does not come: almost three hours at ten a
	// second, in some 25 MB. One that is full makes no more, so that none is lost.
	journalLimit = 100_000
	// batchLimit is how many records one answer has: about a megabyte.
	batchLimit = 20_000
)

// journal is a worker's own history: its attempts, numbered from 0 without a hole, until they are acknowledged. It is safe
// for concurrent use.
type journal struct {
	incarnation string
	batch       int // records in an answer, at most

	mu          sync.Mutex
	state       string
	reached     bool
	begin       time.Duration
	endReason   string
	first       uint64 // number of records[0]
	records     []record.Attempt
	lastRequest time.Duration // when it last heard of a collector
}

func newJournal(incarnation string) *journal {
	return &journal{incarnation: incarnation, batch: batchLimit, state: stateWaiting}
}

// add takes an attempt, and returns false when there should be no more: they would still be taken.
func (j *journal) add(a record.Attempt) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.records = append(j.records, a)
	return len(j.records) < journalLimit
}

// answer obeys a question at an instant of the worker's clock: it forgets what is acknowledged and hands out what follows.
func (j *journal) answer(r Request, now time.Duration) answer {
	j.mu.Lock()
	defer j.mu.Unlock()
	a := answer{head: head{Incarnation: j.incarnation, Number: r.Number, Now: now, State: j.state, Reached: j.reached,
		Begin: j.begin, First: j.first, Total: j.first + uint64(len(j.records)), EndReason: j.endReason}}
	if r.Incarnation != j.incarnation || r.From > a.Total {
		return a
	}
	j.lastRequest = now
	if r.From > j.first {
		j.records = slices.Clone(j.records[r.From-j.first:]) // what is forgotten is let go of
		j.first, a.First = r.From, r.From
	}
	a.records = slices.Clone(j.records[:min(len(j.records), j.batch)])
	return a
}

// run notes when attempt 0 is intended, unless that is known, or the worker has ended.
func (j *journal) run(begin time.Duration) (first bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.state != stateWaiting {
		return false
	}
	j.state, j.begin = stateRunning, begin
	return true
}

// end notes that no attempt is to come.
func (j *journal) end() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.state = stateEnded
}

// blame notes why the worker is about to end by itself; the first reason stays.
func (j *journal) setEndReason(why string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.endReason == "" && j.state != stateEnded {
		j.endReason = why
	}
}

func (j *journal) setReached() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.reached = true
}

// silence is for how long no collector has asked.
func (j *journal) sinceLastRequest(now time.Duration) time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	return now - j.lastRequest
}

// empty reports whether everything was acknowledged.
func (j *journal) empty() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.records) == 0
}
