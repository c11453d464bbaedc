package probes

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/hitless/hitless/record"
)

// fakeHost is a host whose time advances only in wait, with the delays of the test.
type fakeHost struct {
	at    time.Duration
	late  func(until time.Duration) time.Duration // delay of a wait's end; nil for none
	onEnd func(now time.Duration)                 // called at the end of each wait
	more  func(now time.Duration) bool            // reports whether events are pending; nil for no
	waits int
}

func (h *fakeHost) now() time.Duration { return h.at }
func (h *fakeHost) wake()              {}
func (h *fakeHost) close()             {}

func (h *fakeHost) wait(until time.Duration) ([]socketEvent, bool, error) {
	if until == never {
		return nil, false, errors.New("the engine waits without a deadline")
	}
	h.waits++
	h.at = max(h.at, until)
	if h.late != nil {
		h.at += h.late(until)
	}
	if h.onEnd != nil {
		h.onEnd(h.at)
	}
	return nil, h.more == nil || !h.more(h.at), nil
}

// fakeProtocol ends each attempt after a duration with a class, both functions of its number.
type fakeProtocol struct {
	engine   *Engine
	duration func(seq uint64) time.Duration // constant per lane: a lane has one deadline
	class    func(seq uint64) record.Class
}

func (p *fakeProtocol) start(f *flight) {
	if !p.engine.drawTuple(f) {
		return
	}
	if d := p.duration(f.Seq); d > 0 {
		f.lane.dialing.add(f, f.Start+d)
		return
	}
	p.engine.finish(f, p.class(f.Seq), "")
}
func (p *fakeProtocol) ready(*flight, uint32) {}
func (p *fakeProtocol) cancel(*flight)        {}
func (p *fakeProtocol) closeLane(*lane)       {}
func (p *fakeProtocol) expire(f *flight)      { p.engine.finish(f, p.class(f.Seq), "") }

func alwaysOK(uint64) record.Class     { return record.OK }
func immediately(uint64) time.Duration { return 0 }
func after(d time.Duration) func(uint64) time.Duration {
	return func(uint64) time.Duration { return d }
}

// trial is an engine on a fake host, with its recorded attempts.
type trial struct {
	*Engine
	host     *fakeHost
	protocol *fakeProtocol
	attempts []record.Attempt
	flushes  []time.Duration
}

func newTrial() *trial {
	t := &trial{host: &fakeHost{}}
	t.Engine = newEngine(Config{Seed: 1,
		Record: func(a record.Attempt) { t.attempts = append(t.attempts, a) },
		Flush:  func() { t.flushes = append(t.flushes, t.host.at) },
	}, t.host)
	t.protocol = &fakeProtocol{engine: t.Engine, duration: immediately, class: alwaysOK}
	t.Engine.protocols = map[string]protocol{ProtocolTCPNew: t.protocol}
	return t
}

type failer interface {
	Helper()
	Fatal(...any)
}

// run runs the lane from from to to and waits for its end.
func (t *trial) run(f failer, l Lane, from, to time.Duration) []record.Attempt {
	f.Helper()
	if err := t.Start(l, from); err != nil {
		f.Fatal(err)
	}
	if err := t.Stop(l.ID, to); err != nil {
		f.Fatal(err)
	}
	t.runUntil(f, to)
	return t.attempts
}

func (t *trial) runUntil(f failer, to time.Duration) {
	f.Helper()
	t.host.onEnd = func(now time.Duration) {
		if now >= to {
			t.Close()
		}
	}
	t.commands = append(t.commands, func(time.Duration) { t.closed = true }) // the engine ends once its lanes have ended
	if err := t.Run(context.Background()); err != nil {
		f.Fatal(err)
	}
}

func testLane(rate float64) Lane {
	return Lane{ID: 1, Name: "vip", Target: netip.MustParseAddrPort("203.0.113.10:80"), Rate: rate,
		SourcePrefix: netip.MustParsePrefix("10.200.0.0/16")}
}

// exactTime returns start + k/rate in rational numbers, rounded to nanoseconds.
func exactTime(start time.Duration, k uint64, rate float64) time.Duration {
	r := new(big.Rat).Quo(new(big.Rat).SetInt(new(big.Int).Mul(big.NewInt(int64(k)), big.NewInt(1e9))), new(big.Rat).SetFloat64(rate))
	half := new(big.Rat).Add(r, big.NewRat(1, 2))
	return start + time.Duration(new(big.Int).Quo(half.Num(), half.Denom()).Int64())
}

func TestScheduleIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.OneOf(rapid.SampledFrom([]float64{0.1, 1, 3, 7, 30, 100, 200, 999.9, 1000, 5000}), rapid.Float64Range(0.01, 5000)).Draw(t, "rate")
		hundredDays := uint64(100 * 86400 * rate)
		k := rapid.Uint64Range(0, hundredDays).Draw(t, "k")
		s := schedule{start: time.Duration(rapid.Int64Range(-1e12, 1e12).Draw(t, "start")), rate: rate}
		if got, want := s.at(k), exactTime(s.start, k, rate); got < want-1 || got > want+1 {
			t.Fatalf("attempt %d at %v/s: %d, want %d", k, rate, got, want)
		}
		if s.at(k+1) < s.at(k) {
			t.Fatalf("attempt %d before attempt %d", k+1, k)
		}
	})
}

func TestRoundingErrorsDoNotAddUp(t *testing.T) {
	s := schedule{start: time.Second, rate: 3}
	for _, want := range []struct {
		k  uint64
		at time.Duration
	}{{0, time.Second}, {1, 1333333333}, {2, 1666666667}, {3, 2 * time.Second}, {3_000_000, 1_000_001 * time.Second}} {
		if got := s.at(want.k); got != want.at {
			t.Errorf("attempt %d: %d, want %d", want.k, got, want.at)
		}
	}
}

// For any outcomes and any delays of the machine, each number of the schedule is recorded once, has its exact time, and
// starts at or after it.
func TestEveryScheduledAttemptIsRecordedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		trial := newTrial()
		rate := rapid.Float64Range(0.5, 500).Draw(t, "rate")
		from := time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "from"))
		to := from + time.Duration(rapid.Int64Range(0, 4e9).Draw(t, "length"))
		lates := rapid.SliceOfN(rapid.Int64Range(0, 5e8), 1, 20).Draw(t, "lates")
		trial.protocol.duration = after(time.Duration(rapid.Int64Range(0, 2e9).Draw(t, "takes")))
		classes := record.Classes()
		trial.protocol.class = func(seq uint64) record.Class { return classes[seq%uint64(len(classes))] }
		trial.host.late = func(time.Duration) time.Duration {
			return time.Duration(lates[trial.host.waits%len(lates)])
		}
		l := testLane(rate)
		l.InFlight = rapid.IntRange(1, 100).Draw(t, "cap")
		seen := map[uint64]bool{}
		for _, a := range trial.run(t, l, from, to) {
			if seen[a.Seq] {
				t.Fatalf("attempt %d was recorded twice", a.Seq)
			}
			seen[a.Seq] = true
			if a.Intended != (schedule{from, rate}).at(a.Seq) || a.Start < a.Intended || a.Intended >= to {
				t.Fatalf("attempt %d was scheduled at %v and started at %v", a.Seq, a.Intended, a.Start)
			}
		}
		want := 0
		for (schedule{from, rate}).at(uint64(want)) < to {
			want++
		}
		for seq := range uint64(want) {
			if !seen[seq] {
				t.Fatalf("attempt %d of %d is missing", seq, want)
			}
		}
		if len(seen) != want {
			t.Fatalf("%d attempts, want %d", len(seen), want)
		}
	})
}

func TestSlowTargetDoesNotShiftTheSchedule(t *testing.T) {
	fast, slow := newTrial(), newTrial()
	slow.protocol.duration = after(3 * time.Second)
	starts := func(attempts []record.Attempt) (all []time.Duration) {
		for _, a := range attempts {
			all = append(all, a.Start)
		}
		return all
	}
	want := starts(fast.run(t, testLane(50), 0, time.Second))
	if diff := cmp.Diff(want, starts(slow.run(t, testLane(50), 0, time.Second))); diff != "" {
		t.Error(diff)
	}
	if len(want) != 50 {
		t.Errorf("%d attempts in a second at 50/s", len(want))
	}
}

func TestConcurrentLanesKeepTheirSchedules(t *testing.T) {
	trial := newTrial()
	for i, rate := range []float64{100, 30, 7} {
		l := testLane(rate)
		l.ID = uint16(10 - i)
		if err := trial.Start(l, time.Duration(i)*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if err := trial.Stop(l.ID, time.Second); err != nil {
			t.Fatal(err)
		}
	}
	trial.runUntil(t, time.Second)
	counts := map[uint16]int{}
	last := time.Duration(-1)
	tuples := map[netip.AddrPort]bool{}
	for _, a := range trial.attempts {
		counts[a.Lane]++
		if a.Start < last {
			t.Errorf("attempt %d of lane %d starts before one that was recorded earlier", a.Seq, a.Lane)
		}
		if last = a.Start; tuples[a.Source] {
			t.Errorf("source %s was used twice", a.Source)
		}
		tuples[a.Source] = true
	}
	if diff := cmp.Diff(map[uint16]int{10: 100, 9: 30, 8: 7}, counts); diff != "" {
		t.Error(diff)
	}
}

func TestAttemptsThatCannotStartHaveClassProbe(t *testing.T) {
	t.Run("too late", func(t *testing.T) {
		trial := newTrial()
		trial.host.late = func(until time.Duration) time.Duration {
			if until == 500*time.Millisecond {
				return time.Second // the machine stalls
			}
			return 0
		}
		details := map[string]int{}
		for _, a := range trial.run(t, testLane(100), 0, 2*time.Second) {
			if (a.Class == record.Probe) != (a.Lateness() > lateLimit) {
				t.Errorf("attempt %d, %v late, is %v", a.Seq, a.Lateness(), a.Class)
			}
			details[a.Detail]++
		}
		// 0.50 s up to, not including, 1.25 s: at 1.50 s they are later than the limit.
		if diff := cmp.Diff(map[string]int{"": 125, DetailLate: 75}, details); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("slow lanes may be an interval late", func(t *testing.T) {
		trial := newTrial()
		trial.host.late = func(time.Duration) time.Duration { return 900 * time.Millisecond }
		for _, a := range trial.run(t, testLane(1), time.Second, 3*time.Second) {
			if a.Class != record.OK {
				t.Errorf("attempt %d, %v late, is %v", a.Seq, a.Lateness(), a.Class)
			}
		}
	})
	t.Run("in-flight cap", func(t *testing.T) {
		trial := newTrial()
		trial.protocol.duration = after(time.Second)
		l := testLane(100)
		l.InFlight = 10
		attempts := trial.run(t, l, 0, 500*time.Millisecond)
		for _, a := range attempts {
			if want := a.Seq >= 10; want != (a.Class == record.Probe && a.Detail == DetailInFlight) {
				t.Errorf("attempt %d is %v (%s)", a.Seq, a.Class, a.Detail)
			}
		}
		if peak := mostInFlight(attempts); peak != 11 {
			t.Errorf("the peak is %d, want 10 and the one above the cap", peak)
		}
	})
	t.Run("no fresh five-tuple", func(t *testing.T) {
		trial := newTrial()
		l := testLane(1000)
		l.SourcePrefix = netip.MustParsePrefix("10.200.0.1/32")
		classes := map[string]int{}
		for _, a := range trial.run(t, l, 0, 40*time.Second) {
			classes[a.Class.String()+" "+a.Detail]++
		}
		if diff := cmp.Diff(map[string]int{"ok ": portCount, "probe " + DetailNoTuple: 40_000 - portCount}, classes); diff != "" {
			t.Error(diff)
		}
	})
}

// mostInFlight is the largest number of attempts at one time, with the one that starts then.
func mostInFlight(attempts []record.Attempt) (most int) {
	for _, a := range attempts {
		n := 1
		for _, b := range attempts {
			if b.Seq != a.Seq && b.Start <= a.Start && a.Start < b.Start+b.Total {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

func TestStopKeepsAttemptsInFlight(t *testing.T) {
	trial := newTrial()
	trial.protocol.duration = after(700 * time.Millisecond)
	attempts := trial.run(t, testLane(10), 0, time.Second)
	if len(attempts) != 10 {
		t.Errorf("%d attempts before the stop at 1 s, want 10 (0.0 to 0.9 s)", len(attempts))
	}
	for _, a := range attempts {
		if a.Class != record.OK || a.Total != 700*time.Millisecond {
			t.Errorf("attempt %d is %v after %v", a.Seq, a.Class, a.Total)
		}
	}
}

func TestCancelledAttemptsAreRecorded(t *testing.T) {
	trial := newTrial()
	trial.protocol.duration = after(time.Second)
	why := errors.New("the run was interrupted")
	ctx, cancel := context.WithCancelCause(context.Background())
	trial.host.onEnd = func(now time.Duration) {
		if now >= 500*time.Millisecond {
			cancel(why)
		}
	}
	if err := trial.Start(testLane(10), 0); err != nil {
		t.Fatal(err)
	}
	if err := trial.Run(ctx); !errors.Is(err, why) {
		t.Fatalf("Run: %v, want %v", err, why)
	}
	if len(trial.attempts) != 5 {
		t.Errorf("%d attempts, want 5", len(trial.attempts))
	}
	for i, a := range trial.attempts {
		if a.Class != record.Probe || a.Detail != DetailCancelled || a.Seq != uint64(i) {
			t.Errorf("attempt %d is %v (%s)", a.Seq, a.Class, a.Detail)
		}
	}
	if err := trial.Start(Lane{ID: 2, Name: "x", Target: testLane(1).Target, Rate: 1}, 0); !errors.Is(err, errDone) {
		t.Errorf("a lane started after the end: %v", err)
	}
}

func TestLatenessIsRecorded(t *testing.T) {
	trial := newTrial()
	trial.host.late = func(time.Duration) time.Duration { return 3 * time.Millisecond }
	attempts := trial.run(t, testLane(10), time.Second, 3*time.Second)
	for _, a := range attempts {
		if a.Lateness() != 3*time.Millisecond || a.Class != record.OK {
			t.Errorf("attempt %d is %v, %v late, want ok, 3 ms late", a.Seq, a.Class, a.Lateness())
		}
	}
	if len(attempts) != 20 {
		t.Errorf("%d attempts, want 20", len(attempts))
	}
}

// Attempts are flushed within FlushAfter, without additional wake-ups.
func TestFlushing(t *testing.T) {
	for _, test := range []struct {
		rate           float64
		length         time.Duration
		flushes, waits int
	}{
		{rate: 0.5, length: 20 * time.Second, flushes: 10, waits: 10}, // idle between: flushed before each sleep
		{rate: 1000, length: time.Second, flushes: 10, waits: 1000},   // busy: every 100 ms
	} {
		t.Run(fmt.Sprint(test.rate), func(t *testing.T) {
			trial := newTrial()
			attempts := trial.run(t, testLane(test.rate), time.Second, time.Second+test.length)
			if len(trial.flushes) != test.flushes || trial.host.waits > test.waits {
				t.Errorf("%d flushes and %d waits, want %d and at most %d", len(trial.flushes), trial.host.waits, test.flushes, test.waits)
			}
			i := 0
			for _, a := range attempts {
				for i < len(trial.flushes) && trial.flushes[i] < a.Start+a.Total {
					i++
				}
				if i == len(trial.flushes) || trial.flushes[i]-(a.Start+a.Total) > FlushAfter {
					t.Fatalf("attempt %d at %v was not flushed in time: %v", a.Seq, a.Start, trial.flushes)
				}
			}
		})
	}
}

func TestStartRejectsInvalidLanes(t *testing.T) {
	trial := newTrial()
	if err := trial.Start(testLane(1), 0); err != nil {
		t.Fatal(err)
	}
	overlapping := testLane(1)
	overlapping.ID, overlapping.SourcePrefix = 2, netip.MustParsePrefix("10.200.7.0/24")
	for name, err := range map[string]error{
		"an id twice":              trial.Start(testLane(1), 0),
		"overlapping prefixes":     trial.Start(overlapping, 0),
		"an invalid lane":          trial.Start(Lane{ID: 3}, 0),
		"stopping an unknown lane": trial.Stop(9, 0),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
