package probes

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hitless/hitless/record"
)

// order is one line of the worker's input. The first line has base and seed, and may have shared; each later line is for one lane.
//
//	{"base":123456789,"seed":1,"shared":{"seed":99,"drawn":1200}}
//	{"start":{"id":1,"name":"vip","target":"203.0.113.10:80","rate":100},"atNs":1000000000}
//	{"dropReplies":1,"atNs":2000000000,"untilNs":2020000000}
//	{"stop":1,"atNs":60000000000}
type order struct {
	Base        *int64  `json:"base,omitempty"` // CLOCK_MONOTONIC nanoseconds of the run's start
	Seed        *int64  `json:"seed,omitempty"`
	Shared      *Shared `json:"shared,omitempty"`
	Start       *Lane   `json:"start,omitempty"`
	Stop        *uint16 `json:"stop,omitempty"`        // a lane's id
	DropReplies *uint16 `json:"dropReplies,omitempty"` // a lane's id; drops replies to it
	AtNs        *int64  `json:"atNs,omitempty"`        // offset in the run
	UntilNs     *int64  `json:"untilNs,omitempty"`
}

// Orders writes the input of a worker. It is not safe for concurrent use.
type Orders struct{ encoder *json.Encoder }

// NewOrders writes the first line, see Config.Base, Config.Seed and Config.Shared, and returns a writer of further orders.
func NewOrders(w io.Writer, base, seed int64, shared *Shared) (*Orders, error) {
	o := &Orders{encoder: json.NewEncoder(w)}
	return o, o.write(order{Base: &base, Seed: &seed, Shared: shared})
}

// Start begins a lane whose attempt 0 is scheduled at the offset at. Write the order ahead of that time: overdue
// attempts start late or not at all.
func (o *Orders) Start(l Lane, at time.Duration) error {
	if err := l.Validate(); err != nil {
		return err
	}
	ns := int64(at)
	return o.write(order{Start: &l, AtNs: &ns})
}

// Stop ends a lane: attempts scheduled at or after the offset at are not made.
func (o *Orders) Stop(id uint16, at time.Duration) error {
	ns := int64(at)
	return o.write(order{Stop: &id, AtNs: &ns})
}

// DropReplies injects a fault into a lane, see Engine.DropReplies.
func (o *Orders) DropReplies(id uint16, from, until time.Duration) error {
	at, end := int64(from), int64(until)
	return o.write(order{DropReplies: &id, AtNs: &at, UntilNs: &end})
}

func (o *Orders) write(line order) error {
	if err := o.encoder.Encode(line); err != nil {
		return fmt.Errorf("sending an order to the probe worker: %w", err)
	}
	return nil
}

// Work runs the probe worker: it executes the orders on in (see Orders) and writes every attempt to out, in the format
// of record.AttemptWriter, at most FlushAfter after its outcome is known. At the end of in it stops all lanes, waits
// for the attempts in flight, writes the rest and returns. An invalid order, or an out that is not read, has the same
// effect and is returned as the error. When ctx ends, attempts in flight are recorded with class probe and the
// context's cause is returned.
//
// Probes start in the network namespace of the calling goroutine, which must be locked to its thread if namespaces
// differ.
func Work(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lines := readLines(ctx, in)
	config, err := firstOrder(ctx, lines)
	if err != nil {
		return err
	}
	sink := newSink(out, cancel)
	config.Record, config.Flush = sink.record, sink.flush
	engine, err := New(config)
	if err != nil {
		return errors.Join(err, sink.close())
	}
	executed := make(chan error, 1)
	go func() {
		executed <- runOrders(ctx, engine, lines)
		engine.Close()
	}()
	ran := engine.Run(ctx)
	wrote := sink.close()
	cancel(nil) // ends runOrders
	refused := <-executed
	if wrote != nil { // the cause of the engine's end
		return wrote
	}
	return errors.Join(refused, ran)
}

// line is a line of the input, or the error of the reader.
type line struct {
	text []byte
	err  error
}

// readLines reads in a goroutine, which ends with in or at the first line after ctx.
func readLines(ctx context.Context, in io.Reader) <-chan line {
	lines := make(chan line)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(in)
		scanner.Buffer(nil, 1<<20)
		send := func(l line) bool {
			select {
			case lines <- l:
				return true
			case <-ctx.Done():
				return false
			}
		}
		for scanner.Scan() {
			if !send(line{text: bytes.Clone(scanner.Bytes())}) {
				return
			}
		}
		if err := scanner.Err(); err != nil {
			send(line{err: fmt.Errorf("reading orders: %w", err)})
		}
	}()
	return lines
}

func firstOrder(ctx context.Context, lines <-chan line) (Config, error) {
	var first line
	select {
	case l, open := <-lines:
		if !open {
			return Config{}, errors.New(`reading orders: the input ended before its first line, {"base":NANOSECONDS,"seed":N}`)
		}
		first = l
	case <-ctx.Done():
		return Config{}, context.Cause(ctx)
	}
	o, err := first.parse()
	if err == nil && (o.Base == nil || o.Seed == nil || o.Start != nil || o.Stop != nil) {
		err = fmt.Errorf(`the first order is %q, want {"base":NANOSECONDS,"seed":N}`, first.text)
	}
	if err != nil {
		return Config{}, err
	}
	return Config{Base: *o.Base, Seed: *o.Seed, Shared: o.Shared}, nil
}

// runOrders applies the orders to the engine until they end or one fails.
func runOrders(ctx context.Context, engine *Engine, lines <-chan line) error {
	for {
		select {
		case l, open := <-lines:
			if !open {
				return nil
			}
			if err := l.apply(engine); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil // Engine.Run returns the cause
		}
	}
}

func (l line) apply(engine *Engine) error {
	o, err := l.parse()
	switch {
	case err != nil:
		return err
	case o.AtNs == nil || o.Base != nil || o.Seed != nil || o.Shared != nil || o.count() != 1 || (o.DropReplies != nil) != (o.UntilNs != nil):
		return fmt.Errorf(`order %q is neither {"start":LANE,"atNs":N} nor {"dropReplies":ID,"atNs":N,"untilNs":N} nor {"stop":ID,"atNs":N}`, l.text)
	case o.Start != nil:
		return engine.Start(*o.Start, time.Duration(*o.AtNs))
	case o.DropReplies != nil:
		return engine.DropReplies(*o.DropReplies, time.Duration(*o.AtNs), time.Duration(*o.UntilNs))
	}
	return engine.Stop(*o.Stop, time.Duration(*o.AtNs))
}

// count returns the number of actions in the order, which must be one.
func (o order) count() int {
	n := 0
	for _, set := range [...]bool{o.Start != nil, o.Stop != nil, o.DropReplies != nil} {
		if set {
			n++
		}
	}
	return n
}

func (l line) parse() (order, error) {
	if l.err != nil {
		return order{}, l.err
	}
	var o order
	decoder := json.NewDecoder(bytes.NewReader(l.text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&o); err != nil {
		return o, fmt.Errorf("reading order %q: %w", l.text, err)
	}
	if decoder.More() {
		return o, fmt.Errorf("reading order %q: more than one value on the line", l.text)
	}
	return o, nil
}

// sink writes attempts through a spool, so that a slow reader does not block the engine.
type sink struct {
	writer *record.AttemptWriter
	spool  *spool
	cancel context.CancelCauseFunc
}

func newSink(out io.Writer, cancel context.CancelCauseFunc) *sink {
	s := &sink{spool: newSpool(out), cancel: cancel}
	s.writer = record.NewAttemptWriter(s.spool)
	return s
}

func (s *sink) record(a record.Attempt) { s.cancelOn(s.writer.Write(a)) }
func (s *sink) flush()                  { s.cancelOn(s.writer.Flush()) }

func (s *sink) cancelOn(err error) {
	if err != nil {
		s.cancel(err)
	}
}

// close writes the rest and returns the first error of all writes.
func (s *sink) close() error {
	err := s.writer.Flush()
	if last := s.spool.close(); last != nil {
		err = last
	}
	if err != nil {
		return fmt.Errorf("writing attempts: %w", err)
	}
	return nil
}

// spoolLimit is the maximum number of bytes that wait for a slow reader: some 600,000 attempts.
const spoolLimit = 64 << 20

// spool is a writer that never blocks: a goroutine copies the bytes to out. It fails when out fails, and when more than
// spoolLimit bytes wait.
type spool struct {
	out     io.Writer
	mu      sync.Mutex
	waiting []byte
	err     error // the first one
	closed  bool
	changed *sync.Cond
	done    chan struct{}
}

func newSpool(out io.Writer) *spool {
	s := &spool{out: out, done: make(chan struct{})}
	s.changed = sync.NewCond(&s.mu)
	go s.copy()
	return s
}

// Write queues all of p, or fails.
func (s *spool) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && len(s.waiting)+len(p) > spoolLimit {
		s.err = fmt.Errorf("the reader does not keep up: %d bytes are waiting", len(s.waiting))
		s.changed.Signal()
	}
	if s.err != nil {
		return 0, s.err
	}
	s.waiting = append(s.waiting, p...)
	s.changed.Signal()
	return len(p), nil
}

// copy writes the waiting bytes to out, with two alternating buffers.
func (s *spool) copy() {
	defer close(s.done)
	var moving []byte
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for len(s.waiting) == 0 && !s.closed && s.err == nil {
			s.changed.Wait()
		}
		if len(s.waiting) == 0 || s.err != nil {
			return
		}
		moving, s.waiting = s.waiting, moving[:0]
		s.mu.Unlock()
		_, err := s.out.Write(moving)
		s.mu.Lock()
		if err != nil && s.err == nil {
			s.err = err
		}
	}
}

// close writes the waiting bytes and returns the first error.
func (s *spool) close() error {
	s.mu.Lock()
	s.closed = true
	s.changed.Signal()
	s.mu.Unlock()
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
