package fleet

import (
	"slices"
	"sync"
	"time"

	"github.com/hitless/hitless/record"
)

const (
	// journalLimit is the number of attempts that a worker keeps without a collector: almost three hours at 10 per second, in some 25 MB. A
	// worker with a full journal ends, so that no attempt is lost.
	journalLimit = 100_000
	// batchLimit is the number of records in an answer, about a megabyte.
	batchLimit = 20_000
)

// journal has a worker's attempts, numbered from 0 without interruption, until they are acknowledged. It is safe for concurrent use.
type journal struct {
	incarnation string
	batch       int // most records in an answer

	mu          sync.Mutex
	state       string
	reached     bool
	begin       time.Duration
	endReason   string
	first       uint64 // number of records[0]
	records     []record.Attempt
	lastRequest time.Duration // time of the last request
}

func newJournal(incarnation string) *journal {
	return &journal{incarnation: incarnation, batch: batchLimit, state: stateWaiting}
}

// add stores an attempt. It returns false when the journal is full, but later attempts are stored too.
func (j *journal) add(a record.Attempt) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.records = append(j.records, a)
	return len(j.records) < journalLimit
}

// answer removes acknowledged attempts and returns the following ones; now is the time of the worker's clock.
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
		j.records = slices.Clone(j.records[r.From-j.first:]) // releases the memory of the others
		j.first, a.First = r.From, r.From
	}
	a.records = slices.Clone(j.records[:min(len(j.records), j.batch)])
	return a
}

// run sets the time of attempt 0, and returns false if the worker has started or ended before.
func (j *journal) run(begin time.Duration) (first bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.state != stateWaiting {
		return false
	}
	j.state, j.begin = stateRunning, begin
	return true
}

// end sets the state in which no more attempts are added.
func (j *journal) end() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.state = stateEnded
}

// setEndReason sets why the worker ends early, unless a reason is set.
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

// sinceLastRequest returns the time since the last request.
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
