package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/record"
)

const simRate = 10

// sim simulates a fleet: workers with wrong clocks that are killed, restarted and stopped, and a network that loses, cuts off and delays
// requests and answers. The journals and the collector are real.
type sim struct {
	t       interface{ Fatal(...any) }
	random  *rand.Rand // for the collector's goroutines
	clock   time.Duration
	workers []*simWorker // all processes so far
	old     [][]byte     // previous answers
	calm    bool         // the network loses nothing any more
	took    map[fate]int // how often each fate took effect

	collector *Collector

	events   []record.Event
	attempts []record.Attempt
}

// fate is what happens to a request.
type fate string

const (
	arrives     fate = "it arrives"
	requestLost fate = "the request is lost"
	answerLost  fate = "the answer is lost"
	cutShort    fate = "the answer is cut short"
	repeated    fate = "an old answer comes instead"
)

// fates has what the network does with a request.
var fates = []fate{arrives, arrives, arrives, requestLost, answerLost, cutShort, repeated}

// change is what happens to a worker.
type change int

const (
	nothing change = iota
	kill
	restart
	replace
	cut
	heal
	stop
)

// simWorker is a simulated process.
type simWorker struct {
	*journal
	name    string
	born    time.Duration
	was     time.Duration // its clock at its start
	rate    float64       // of its clock
	cut     bool          // partitioned from the network
	dead    time.Duration // time of its end; 0 while it runs
	answers time.Duration // when its target first answers
	closing bool
	closed  time.Duration // of its clock
	seq     uint64
	flying  []flying
	made    map[uint64]time.Duration // scheduled times by number, of the true clock
}

type flying struct {
	record.Attempt
	known time.Duration // by its clock
}

func (w *simWorker) at(now time.Duration) time.Duration {
	return w.was + time.Duration(float64(now-w.born)*w.rate)
}

func (w *simWorker) truly(own time.Duration) time.Duration {
	return w.born + time.Duration(float64(own-w.was)/w.rate)
}

func pick[T any](random *rand.Rand, from []T) T { return from[random.IntN(len(from))] }

func (s *sim) Event(e record.Event)     { s.events = append(s.events, e) }
func (s *sim) Attempt(a record.Attempt) { s.attempts = append(s.attempts, a) }
func (s *sim) now() time.Duration       { return s.clock }

// targetNever is longer than any simulation.
const targetNever = 1000 * time.Hour

// spawn starts a process whose target first answers after a time.
func (s *sim) spawn(name string, after time.Duration) {
	s.workers = append(s.workers, &simWorker{journal: newJournal(fmt.Sprintf("process-%d", len(s.workers))), name: name, born: s.clock,
		was: time.Duration(s.random.IntN(1_000_000_000)), rate: 1 + float64(s.random.IntN(401)-200)/1e6, answers: s.clock + after,
		made: map[uint64]time.Duration{}})
	w := s.workers[len(s.workers)-1]
	w.batch = 1 + s.random.IntN(50)
	s.pass(0)
}

// soon draws when the target of a new process answers: at once, before or after the collector's patience ends, or never.
func (s *sim) soon() time.Duration {
	return pick(s.random, []time.Duration{0, 0, time.Duration(s.random.Int64N(int64(2 * joinTimeout))), targetNever})
}

// pass advances the time: the workers make attempts and record outcomes.
func (s *sim) pass(d time.Duration) {
	s.clock += d
	for _, w := range s.workers {
		if w.dead > 0 {
			continue
		}
		if w.answers <= s.clock {
			w.setReached()
		}
		w.work(s.random, w.at(s.clock))
	}
}

func (w *simWorker) work(random *rand.Rand, now time.Duration) {
	if w.state == stateRunning {
		for {
			intended := w.begin + time.Duration(w.seq)*time.Second/simRate
			if intended > now || w.closing && intended >= w.closed {
				break
			}
			took := time.Duration(pick(random, []int{1, 1, 1, 2, 150, 3000})) * time.Millisecond
			w.made[w.seq] = w.truly(intended)
			w.flying = append(w.flying, flying{record.Attempt{Lane: laneID, Seq: w.seq, Intended: intended, Start: intended, Total: took, Class: record.OK}, intended + took})
			w.seq++
		}
	}
	slices.SortStableFunc(w.flying, func(a, b flying) int { return int(a.known - b.known) })
	for len(w.flying) > 0 && w.flying[0].known <= now {
		w.add(w.flying[0].Attempt)
		w.flying = w.flying[1:]
	}
	if w.closing && len(w.flying) == 0 {
		w.journal.end()
	}
}

func (w *simWorker) stop(now time.Duration) {
	if !w.closing {
		w.closing, w.closed = true, now
	}
}

// living returns the running process of a worker; nil for none.
func (s *sim) living(name string) *simWorker {
	for _, w := range slices.Backward(s.workers) {
		if w.name == name && w.dead == 0 {
			return w
		}
	}
	return nil
}

func (s *sim) Workers(context.Context) (all []Member, err error) {
	for _, w := range s.workers {
		if m := (Member{Name: w.name, Node: "node-1"}); !slices.Contains(all, m) && w.dead == 0 {
			all = append(all, m)
		}
	}
	return all, nil
}

func (s *sim) Send(_ context.Context, name string, r Request) ([]byte, error) {
	trip := func() { s.pass(time.Duration(s.random.IntN(40)) * time.Millisecond) }
	f := arrives
	if !s.calm {
		f = pick(s.random, fates)
	}
	trip()
	w := s.living(name)
	if w == nil && s.random.IntN(2) == 0 && !slices.ContainsFunc(s.workers, func(w *simWorker) bool { return w.name == name && w.dead == 0 }) {
		return nil, fmt.Errorf("no such pod: %w", ErrGone)
	}
	if w == nil || w.cut {
		return nil, errors.New("no running process")
	}
	if f == requestLost {
		s.took[f]++
		return nil, errors.New("the request was lost")
	}
	now := w.at(s.clock)
	if r.Incarnation == w.incarnation {
		switch r.Command {
		case commandRun:
			w.run(now + lead)
		case commandEnd:
			w.stop(now)
		}
	}
	body, err := w.answer(r, now).encode()
	if err != nil {
		s.t.Fatal(err)
	}
	s.old = append(s.old, body)
	trip()
	return s.carry(body, f)
}

// carry returns what comes of the newest answer, and counts the fates that change it.
func (s *sim) carry(body []byte, f fate) ([]byte, error) {
	i := s.random.IntN(len(s.old))
	switch {
	case f == answerLost:
		s.took[f]++
		return nil, errors.New("the answer was lost")
	case f == cutShort:
		s.took[f]++
		return body[:s.random.IntN(len(body))], nil
	case f == repeated && i < len(s.old)-1:
		s.took[f]++
		return s.old[i], nil
	}
	s.took[arrives]++
	return body, nil
}

// disturb applies a random change to the fleet.
func (s *sim) disturb() {
	w := pick(s.random, s.workers)
	if w.dead > 0 {
		return
	}
	switch pick(s.random, []change{nothing, kill, restart, replace, cut, heal, stop}) {
	case kill:
		w.dead = s.clock
	case restart:
		w.dead = s.clock
		s.pass(time.Duration(s.random.IntN(3000)) * time.Millisecond)
		s.spawn(w.name, s.soon())
	case replace:
		w.dead = s.clock
		s.spawn("worker-"+strconv.Itoa(len(s.workers)), s.soon())
	case cut:
		w.cut = true
	case heal:
		w.cut = false
	case stop:
		w.setEndReason("it was stopped")
		w.stop(w.at(s.clock))
	}
}

// newSim is a simulation of a collector that wants these workers, and counts fates in took.
func newSim(t interface{ Fatal(...any) }, seed uint64, workers int, took map[fate]int) (*sim, *Collector) {
	s := &sim{t: t, random: rand.New(rand.NewPCG(seed, 1)), clock: time.Minute, took: took}
	c, err := New(Config{Transport: s, Record: s, Now: s.now, Wanted: workers, FirstLane: 100, Parallel: 1,
		Lane: probes.Lane{Name: "fleet", Target: netip.MustParseAddrPort("192.0.2.1:80"), Rate: simRate}})
	if err != nil {
		t.Fatal(err)
	}
	c.sleep = func(context.Context, time.Duration) error { return nil } // Send advances the simulated time
	s.collector = c
	return s, c
}

// With any failures of workers and network, each attempt is in the record once or within its lane's missing record. The record has no
// other attempts, and no time is wrong by more than the recorded bound of the clock.
func TestEveryAttemptIsRecordedOnceOrMissing(t *testing.T) {
	took, unanswered := map[fate]int{}, 0
	rapid.Check(t, func(rt *rapid.T) {
		workers := rapid.IntRange(1, 4).Draw(rt, "workers")
		s, c := newSim(rt, rapid.Uint64().Draw(rt, "seed"), workers, took)
		for i := range workers {
			s.spawn("worker-"+strconv.Itoa(i), s.soon())
		}
		ctx := t.Context()
		for range rapid.IntRange(2, 4).Draw(rt, "before") {
			c.pollAll(ctx, never, 0)
		}
		c.launch()
		for range rapid.IntRange(1, 12).Draw(rt, "rounds") {
			s.disturb()
			s.pass(time.Duration(rapid.IntRange(0, 4000).Draw(rt, "between")) * time.Millisecond)
			c.pollAll(ctx, never, 0)
		}
		s.calm = rapid.Bool().Draw(rt, "calm in the end")
		if s.calm {
			for _, w := range s.workers {
				w.cut = false
			}
		}
		c.setCommand(commandEnd)
		for i := 0; i < 12 && c.unfinished() != ""; i++ {
			c.pollAll(ctx, never, 0)
			s.pass(time.Second)
		}
		c.recordMissing()
		for _, wrong := range s.wrong() {
			rt.Error(wrong)
		}
		unanswered += len(s.unanswered())
	})
	for _, f := range fates {
		if took[f] == 0 {
			t.Errorf("in no history happened: %s", f)
		}
	}
	if unanswered == 0 {
		t.Error("no worker started without an answer of its target")
	}
}

// unanswered returns the histories of the workers that were started before their targets answered.
func (s *sim) unanswered() (all []*history) {
	for _, h := range s.collector.all {
		w := s.workers[slices.IndexFunc(s.workers, func(w *simWorker) bool { return w.incarnation == h.incarnation })]
		if h.lane > 0 && h.declared < w.answers {
			all = append(all, h)
		}
	}
	return all
}

// laneRecord is a lane in the record.
type laneRecord struct {
	from, to, bound time.Duration
	seq             uint64
	missing         bool
}

func (s *sim) lanes() map[uint16]*laneRecord {
	lanes := map[uint16]*laneRecord{}
	for _, e := range s.events {
		switch b := e.Body.(type) {
		case record.Lane:
			lanes[b.ID] = &laneRecord{}
		case record.ClockBound:
			lanes[b.Lane].bound = b.Bound
		case record.MissingRecord:
			l := lanes[b.Lane]
			l.from, l.to, l.seq, l.missing = b.From, b.To, b.Seq, true
		}
	}
	return lanes
}

// wrong returns the differences between the record and the simulation.
func (s *sim) wrong() (all []string) {
	lanes := s.lanes()
	lane := map[string]uint16{}
	for _, h := range s.collector.all {
		lane[h.incarnation] = h.lane
	}
	come := map[uint16]map[uint64]record.Attempt{}
	for _, a := range s.attempts {
		if come[a.Lane] == nil {
			come[a.Lane] = map[uint64]record.Attempt{}
		}
		if _, twice := come[a.Lane][a.Seq]; twice {
			all = append(all, fmt.Sprintf("attempt %d of lane %d is in the record twice", a.Seq, a.Lane))
		}
		come[a.Lane][a.Seq] = a
	}
	for _, h := range s.unanswered() {
		if waited := h.declared - h.firstHeard; waited <= joinTimeout {
			all = append(all, fmt.Sprintf("%s was started without an answer of its target after only %v", h.Name, waited))
		}
	}
	known := 0
	for _, w := range s.workers {
		id := lane[w.incarnation]
		if id == 0 {
			if len(w.made) > 0 {
				all = append(all, fmt.Sprintf("%s made %d attempts, and has no lane", w.name, len(w.made)))
			}
			continue
		}
		l := lanes[id]
		known += len(come[id])
		for seq, intended := range w.made {
			a, there := come[id][seq]
			if !there && !(l.missing && seq >= l.seq && l.from <= intended && intended <= l.to) {
				all = append(all, fmt.Sprintf("attempt %d of lane %d at %v is neither in the record nor in the missing record: %+v", seq, id, intended, *l))
			}
			if there && (a.Intended-intended).Abs() > l.bound+time.Microsecond {
				all = append(all, fmt.Sprintf("attempt %d of lane %d at %v is recorded at %v, with a bound of the clock of %v", seq, id, intended, a.Intended, l.bound))
			}
		}
		for seq := range come[id] {
			if _, made := w.made[seq]; !made {
				all = append(all, fmt.Sprintf("attempt %d of lane %d was never made", seq, id))
			}
		}
		if lived := w.dead == 0 && w.endReason == "" && s.calm; lived && l.missing {
			all = append(all, fmt.Sprintf("lane %d has a missing record without a failure of its worker: %+v", id, *l))
		}
	}
	if known != len(s.attempts) {
		all = append(all, fmt.Sprintf("%d attempts of %d belong to no worker", len(s.attempts)-known, len(s.attempts)))
	}
	return all
}
