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

// sim is a fleet in a world of its own: workers with clocks that are wrong, that are killed, start anew and are told to go, and a
// network that loses questions and answers, cuts them short, and delivers old ones. What really happened is known. The
// workers' journals and the collector are the real ones.
type sim struct {
	rt      *rapid.T
	random  *rand.Rand // for what goroutines of the collector ask for
	clock   time.Duration
	workers []*simWorker // one for each process that ever was
	old     [][]byte     // answers that were given
	calm    bool         // nothing is lost any more

	collector *Collector

	events   []record.Event
	attempts []record.Attempt
}

// simWorker is a process.
type simWorker struct {
	*journal
	name    string
	born    time.Duration
	was     time.Duration // its clock when it was born
	rate    float64       // of its clock
	cut     bool          // from everybody
	dead    time.Duration // 0 while it lives
	closing bool
	closed  time.Duration // of its clock
	seq     uint64
	flying  []flying
	made    map[uint64]time.Duration // by number: when it was intended, by the true clock
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

func (s *sim) spawn(name string) {
	s.workers = append(s.workers, &simWorker{journal: newJournal(fmt.Sprintf("process-%d", len(s.workers))), name: name, born: s.clock,
		was: time.Duration(s.random.IntN(1_000_000_000)), rate: 1 + float64(s.random.IntN(401)-200)/1e6,
		made: map[uint64]time.Duration{}})
	w := s.workers[len(s.workers)-1]
	w.batch = 1 + s.random.IntN(50)
	w.setReached()
}

// pass lets time pass: the workers make their attempts, and learn what becomes of them.
func (s *sim) pass(d time.Duration) {
	s.clock += d
	for _, w := range s.workers {
		if w.dead == 0 {
			w.work(s.random, w.at(s.clock))
		}
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

// living is the process behind a name; nil when there is none.
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
	fate := "arrives"
	if !s.calm {
		fate = pick(s.random, []string{"arrives", "arrives", "arrives", "no question", "no answer", "half", "an old answer"})
	}
	trip()
	w := s.living(name)
	if w == nil && s.random.IntN(2) == 0 && !slices.ContainsFunc(s.workers, func(w *simWorker) bool { return w.name == name && w.dead == 0 }) {
		return nil, fmt.Errorf("no such pod: %w", ErrGone)
	}
	if w == nil || w.cut || fate == "no question" {
		return nil, errors.New("nobody there")
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
		s.rt.Fatal(err)
	}
	s.old = append(s.old, body)
	trip()
	switch fate {
	case "no answer":
		return nil, errors.New("the answer was lost")
	case "half":
		return body[:s.random.IntN(len(body))], nil
	case "an old answer":
		return pick(s.random, s.old), nil
	}
	return body, nil
}

// disturb does something to the fleet.
func (s *sim) disturb() {
	w := pick(s.random, s.workers)
	if w.dead > 0 {
		return
	}
	switch pick(s.random, []string{"kill", "kill and start anew", "replace", "cut", "heal", "tell to go", "nothing"}) {
	case "kill":
		w.dead = s.clock
	case "kill and start anew":
		w.dead = s.clock
		s.pass(time.Duration(s.random.IntN(3000)) * time.Millisecond)
		s.spawn(w.name)
	case "replace":
		w.dead = s.clock
		s.spawn("worker-" + strconv.Itoa(len(s.workers)))
	case "cut":
		w.cut = true
	case "heal":
		w.cut = false
	case "tell to go":
		w.setEndReason("it was told to go")
		w.stop(w.at(s.clock))
	}
}

func newSim(rt *rapid.T, workers int) (*sim, *Collector) {
	s := &sim{rt: rt, random: rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1)), clock: time.Minute}
	for i := range workers {
		s.spawn("worker-" + strconv.Itoa(i))
	}
	c, err := New(Config{Transport: s, Record: s, Now: s.now, Wanted: workers, FirstLane: 100, Parallel: 1,
		Lane: probes.Lane{Name: "fleet", Target: netip.MustParseAddrPort("192.0.2.1:80"), Rate: simRate}})
	if err != nil {
		rt.Fatal(err)
	}
	c.sleep = func(context.Context, time.Duration) error { return nil } // the world's time passes on the way of questions
	s.collector = c
	return s, c
}

// Whatever happens to workers and to the network: every attempt that a worker made is in the record once, or within a gap that is told
// of its lane; nothing else is in the record; and no time in it is wrong by more than what is told of the clock.
func TestEveryAttemptIsRecordedOnceOrMissing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s, c := newSim(rt, rapid.IntRange(1, 4).Draw(rt, "workers"))
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
	})
}

// told is what the record says of a lane.
type told struct {
	from, to, bound time.Duration
	seq             uint64
	gap             bool
}

func (s *sim) lanes() map[uint16]*told {
	lanes := map[uint16]*told{}
	for _, e := range s.events {
		switch b := e.Body.(type) {
		case record.Lane:
			lanes[b.ID] = &told{}
		case record.ClockBound:
			lanes[b.Lane].bound = b.Bound
		case record.MissingRecord:
			l := lanes[b.Lane]
			l.from, l.to, l.seq, l.gap = b.From, b.To, b.Seq, true
		}
	}
	return lanes
}

// wrong compares the record with what happened.
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
			all = append(all, fmt.Sprintf("attempt %d of lane %d stands twice", a.Seq, a.Lane))
		}
		come[a.Lane][a.Seq] = a
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
			if !there && !(l.gap && seq >= l.seq && l.from <= intended && intended <= l.to) {
				all = append(all, fmt.Sprintf("attempt %d of lane %d at %v is lost unnoticed: %+v", seq, id, intended, *l))
			}
			if there && (a.Intended-intended).Abs() > l.bound+time.Microsecond {
				all = append(all, fmt.Sprintf("attempt %d of lane %d at %v stands at %v, and the clock at %v", seq, id, intended, a.Intended, l.bound))
			}
		}
		for seq := range come[id] {
			if _, made := w.made[seq]; !made {
				all = append(all, fmt.Sprintf("attempt %d of lane %d was never made", seq, id))
			}
		}
		if lived := w.dead == 0 && w.endReason == "" && s.calm; lived && l.gap {
			all = append(all, fmt.Sprintf("lane %d has a gap, and its worker did what it was told: %+v", id, *l))
		}
	}
	if known != len(s.attempts) {
		all = append(all, fmt.Sprintf("%d attempts of %d belong to no worker", len(s.attempts)-known, len(s.attempts)))
	}
	return all
}
