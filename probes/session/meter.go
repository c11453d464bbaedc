package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/record"
)

// maxTickDelay is the longest delay of a tick. A lane with few attempts per second does not show a longer stop by its lateness.
const maxTickDelay = 250 * time.Millisecond

// backWithin is how long the network of a machine may take after a suspension.
const backWithin = 30 * time.Second

// NoEnd is the end of a measurement without a duration.
const NoEnd = time.Duration(math.MaxInt64)

// Second holds the outcomes of the measured lane that became known within one second.
type Second struct {
	At      time.Duration // its end, since the start of the run
	Classes map[record.Class]int
	Slowest time.Duration // longest time from start to answer of an ok attempt
}

// Failed returns the number of attempts that are not ok.
func (s Second) Failed() int {
	n := 0
	for class, k := range s.Classes {
		if class != record.OK {
			n += k
		}
	}
	return n
}

// String returns the counts of the second in one line.
func (s Second) String() string {
	text := fmt.Sprintf("+%5.0f s  %5d ok", s.At.Seconds(), s.Classes[record.OK])
	if s.Classes[record.OK] > 0 {
		text += fmt.Sprintf("  slowest %.1f ms", s.Slowest.Seconds()*1e3)
	}
	var failed []string
	for _, class := range record.Classes() {
		if n := s.Classes[class]; n > 0 && class != record.OK {
			failed = append(failed, fmt.Sprintf("%d %s", n, class))
		}
	}
	if len(failed) > 0 {
		text += "  " + strings.Join(failed, ", ")
	}
	return text
}

// MeterConfig describes a Meter.
type MeterConfig struct {
	Record   *record.HistoryWriter
	Elapsed  time.Duration           // of the run, before this process
	Shared   *probes.Shared          // where the walk over this machine's ports begins; nil for anywhere
	Measured func(lane uint16) bool  // tells the lanes whose attempts count for Second
	Second   func(Second)            // receives each second's outcomes in another goroutine; nil for none
	Attempt  func(a *record.Attempt) // receives each attempt in one goroutine; nil for none
}

// Meter runs a probe worker within this process and records its attempts. Its methods are not safe for concurrent use, except Now, Phase
// and Step.
type Meter struct {
	MeterConfig
	orders     *probes.Orders
	input      *io.PipeWriter
	base       int64
	copyDone   chan error    // has the result of copy
	workerDone chan struct{} // closed when the worker has ended
	workerErr  error         // of the worker; valid once workerDone is closed
	broken     chan struct{} // closed when the record can no longer be written
	stopTicker chan struct{} // closed to end tick
	tickerDone chan struct{} // closed when tick has ended

	guards *probes.Guards

	mu     sync.Mutex
	second Second
}

// StartMeter starts a probe worker without lanes. The caller must call End, unless there is an error.
func StartMeter(c MeterConfig) (*Meter, error) {
	start, err := probes.Monotonic()
	if err != nil {
		return nil, err
	}
	if _, err := probes.Suspended(); err != nil {
		return nil, err
	}
	limits, err := probes.LocalLimits()
	if err != nil {
		return nil, err
	}
	in, input := io.Pipe()
	attempts, out := io.Pipe()
	m := &Meter{MeterConfig: c, input: input, base: start - int64(c.Elapsed), copyDone: make(chan error, 1), workerDone: make(chan struct{}),
		broken: make(chan struct{}), stopTicker: make(chan struct{}), tickerDone: make(chan struct{}), second: Second{Classes: map[record.Class]int{}}}
	go func() {
		defer close(m.workerDone)
		// The caller's context must not end the worker: attempts in flight are awaited.
		m.workerErr = probes.Work(context.Background(), in, out)
		_ = in.CloseWithError(io.ErrClosedPipe) // never fails
		_ = out.Close()                         // never fails
	}()
	go func() {
		err := m.copy(attempts)
		_ = attempts.CloseWithError(err) // else a worker whose attempts cannot be read waits for ever; never fails
		m.copyDone <- err
	}()
	m.guards = probes.NewGuards(limits, []probes.Namespace{{Name: "this machine", CountConntrack: probes.CountConntrack}}, c.Record.Event)
	go m.tick()
	if m.orders, err = probes.NewOrders(input, m.base, 1, c.Shared); err != nil {
		return nil, errors.Join(err, m.End())
	}
	return m, nil
}

// Now returns the time since the start of the run.
func (m *Meter) Now() time.Duration {
	now, _ := probes.Monotonic() // StartMeter has checked that it works
	return time.Duration(now - m.base)
}

// copy records the attempts and counts those of the measured lane.
func (m *Meter) copy(attempts io.Reader) error {
	r := record.NewAttemptReader(attempts)
	var stalled time.Duration // end of the newest window of a guard
	for {
		a, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the probe's attempts: %w", err)
		}
		if e, late := checkStart(a, m.Now(), stalled); late {
			stalled = e.Body.(record.Guard).Until
			m.Record.Event(e)
		}
		m.Record.Attempt(a)
		if m.Measured(a.Lane) {
			m.count(&a)
		}
		if m.Attempt != nil {
			m.Attempt(&a)
		}
	}
}

func (m *Meter) count(a *record.Attempt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.second.Classes[a.Class]++
	if a.Class == record.OK {
		m.second.Slowest = max(m.second.Slowest, a.Total)
	}
}

// tick reports each second, and flushes the record so that the record of a killed measurement is readable.
func (m *Meter) tick() {
	defer close(m.tickerDone)
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	last, unwritable := m.Now(), false
	suspended, _ := probes.Suspended() // StartMeter has checked that it works
	for {
		ended := false
		select {
		case <-ticker.C:
		case <-m.stopTicker:
			ended = true
		}
		until, _ := probes.Suspended()
		if e, was := checkSuspended(last, m.Now(), until-suspended); was {
			m.Record.Event(e)
		}
		if suspended = until; ended {
			return
		}
		if err := m.Record.Flush(); err != nil && !unwritable { // Close returns the same error
			unwritable = true
			close(m.broken)
		}
		s := m.nextSecond()
		m.guards.Check(s.At)
		if e, late := checkTick(last, s.At); late {
			m.Record.Event(e)
		}
		last = s.At
		if m.Second != nil {
			m.Second(s)
		}
	}
}

// checkTick returns the event of a guard, and true, if a second between two ticks took too long.
func checkTick(last, now time.Duration) (record.Event, bool) {
	late := now - last - time.Second
	return stall(last, now, fmt.Sprintf("this machine, or this program, did not run for %v: answers may have arrived earlier than they were read",
		late.Round(time.Millisecond))), late > maxTickDelay
}

// checkSuspended returns the event of a guard, and true, if the machine was suspended between two ticks. The clock of the run stood still.
func checkSuspended(last, now, suspended time.Duration) (record.Event, bool) {
	e := stall(last, now, fmt.Sprintf("this machine was suspended for %v: nothing was measured meanwhile, and the clock of the run stood still",
		suspended.Round(time.Millisecond)))
	e.Body = record.Guard{From: last, Until: now + backWithin}
	return e, suspended > maxTickDelay
}

// checkStart returns the event of a guard, and true, for an attempt that was not made because it would have started too late, unless it was due in
// the window that ends at stalled. A stop between two ticks shows only there.
func checkStart(a record.Attempt, now, stalled time.Duration) (record.Event, bool) {
	return stall(max(0, a.Intended-maxTickDelay), now, "this machine, or this program, did not run when attempts were due"),
		a.Class == record.Probe && a.Detail == probes.DetailLate && a.Intended >= stalled
}

// stall is the event of a guard with a window that began at from. Attempts that were due meanwhile start soon after now.
func stall(from, now time.Duration, text string) record.Event {
	return record.Event{At: now, Body: record.Guard{From: from, Until: now + maxTickDelay}, Object: "scheduler", Text: text}
}

// nextSecond returns the counts since the last call.
func (m *Meter) nextSecond() Second {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.second
	s.At = m.Now()
	m.second = Second{Classes: map[record.Class]int{}}
	return s
}

// Start starts a lane soon, and returns when. declare may add to its declaration.
func (m *Meter) Start(l probes.Lane, at time.Duration, declare func(*record.Lane)) error {
	for _, e := range l.Events(at) {
		body := e.Body.(record.Lane)
		declare(&body)
		e.Body = body
		m.Record.Event(e)
	}
	m.guards.Watch(l)
	return m.orders.Start(l, at)
}

// Stop ends a lane at a time of the run.
func (m *Meter) Stop(id uint16, at time.Duration) error {
	m.guards.Stop(id)
	return m.orders.Stop(id, at)
}

// Phase records the begin of a phase.
func (m *Meter) Phase(name string, demands record.Phase) {
	m.Record.Event(record.Event{At: m.Now(), Object: name, Text: "phase " + name, Body: demands})
}

// Step records the begin or the end of a step.
func (m *Meter) Step(name string, state record.StepState) {
	m.Record.Event(record.Event{At: m.Now(), Object: name, Text: name + ": " + string(state),
		Body: record.Step{State: state}})
}

// Sleep waits until a time of the run. It returns false when the context ends first, or when the record cannot be written any more;
// closing the record then returns the error. It returns an error when the worker ends early.
func (m *Meter) Sleep(ctx context.Context, until time.Duration) (bool, error) {
	timer := time.NewTimer(until - m.Now())
	defer timer.Stop()
	select {
	case <-timer.C:
		return true, nil
	case <-ctx.Done():
		return false, nil
	case <-m.broken:
		return false, nil
	case <-m.workerDone:
		return false, fmt.Errorf("the probe ended early: %w", cmp.Or(m.workerErr, io.ErrUnexpectedEOF))
	}
}

// End stops all lanes, and waits for the attempts in flight and their record. It returns the errors of the worker and of reading attempts.
func (m *Meter) End() error {
	err := m.input.Close() // never fails
	read := <-m.copyDone
	<-m.workerDone
	close(m.stopTicker)
	<-m.tickerDone
	return errors.Join(err, m.workerErr, read)
}
