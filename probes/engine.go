// Package probes is the open-loop probe engine: it opens connections on a fixed schedule and classifies the outcome of
// each. It has the lanes, the classification of failures, the guards, and the worker that runs the engine in a client's
// network namespace.
//
// Open loop means that attempt k of a lane is scheduled at the lane's start + k/rate, independent of earlier attempts,
// and that its outcome is charged to that time. A closed loop reports the same one-second outage as 8 or as 92,000
// failures, depending on the kind of failure. With a fixed rate, dropped connections per second are a property of the
// system. Nothing in this package retries, reconnects or hides an error: each sequence number of a lane is recorded
// exactly once, and an attempt that the engine could not make is recorded with class probe.
//
// record.Class defines the classes. This package computes no outages and no verdicts, and it is not a load generator.
// It runs on Linux only, since the classes rest on Linux's error queue and TCP_INFO.
package probes

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/hitless/hitless/record"
)

// FlushAfter is the longest time from recording an attempt to the call of Config.Flush.
const FlushAfter = 100 * time.Millisecond

// lateLimit is the lateness beyond which an attempt is not started but recorded with class probe, for lanes with a
// shorter interval. A later start would charge the outcome to a wrong time, and a backlog would be a burst that is not
// in the schedule. Smaller lateness is recorded, and judged by the analysis.
const lateLimit = 250 * time.Millisecond

// Shared is where walks over ports that other processes use too begin. An engine that goes on after a kill takes no five-tuple of before,
// since proxies may remember where it went.
type Shared struct {
	Seed  int64  `json:"seed"`
	Drawn uint64 `json:"drawn"` // five-tuples of earlier engines with this seed
}

// Config configures an engine.
type Config struct {
	Base   int64                // CLOCK_MONOTONIC nanoseconds of the start of the run; the origin of all offsets
	Seed   int64                // of the walks over five-tuples; engines that share a source prefix need different seeds
	Shared *Shared              // nil for walks at random over ports that other processes use too
	Record func(record.Attempt) // called with each attempt once its outcome is known, in the engine's goroutine; must not block
	// Flush, if set, is called in the engine's goroutine after something was recorded: at most FlushAfter later, and at
	// once before a longer sleep, so that flushing never needs a wake-up of its own.
	Flush func()
}

// Engine runs lanes. Run must be called in one goroutine, in the network namespace of the probes. All other methods are
// safe for concurrent use.
type Engine struct {
	config    Config
	host      host
	protocols map[string]protocol // by Lane.Protocol

	lanes       []*lane // sorted by id
	walks       map[sourceRange]*walk
	flights     []*flight     // all flights, by token
	laneSockets []laneSocket  // sockets that outlive attempts, by firstLaneToken - token
	idle        []*flight     // unused flights
	pending     time.Duration // time of the oldest record that is not flushed; never for none
	lateLimit   time.Duration
	closed      bool

	mu       sync.Mutex
	commands []func(now time.Duration)
	usedIDs  map[uint16]bool // ids of all lanes so far
	started  []Lane
	closing  bool
	done     bool
}

// host is the clock and the poller of the engine. Tests replace it.
type host interface {
	now() time.Duration
	// wait returns the events of sockets, at the latest at the given time. all is false when more events may be
	// pending.
	wait(until time.Duration) (events []socketEvent, all bool, err error)
	wake()
	close()
}

// protocol makes the attempts of the lanes that name it. Each method either ends the attempt with Engine.finish or
// leaves it in flight.
type protocol interface {
	start(f *flight) // calls Engine.drawTuple if it needs a new five-tuple
	ready(f *flight, events uint32)
	expire(f *flight)  // the flight's deadline has passed
	cancel(f *flight)  // closes the flight's socket; the engine ends the flight
	closeLane(n *lane) // closes the lane's own sockets, after the last attempt
}

// laneSocket is a socket that outlives attempts. It gets its own events.
type laneSocket interface {
	ready(generation int32, events uint32)
}

// firstLaneToken is the token of the first socket that outlives attempts; later sockets count down from it.
const firstLaneToken = tokenWake - 1

// register gives a token to a socket that outlives attempts. Tokens are not reused.
func (e *Engine) register(s laneSocket) int32 {
	e.laneSockets = append(e.laneSockets, s)
	return int32(firstLaneToken - (len(e.laneSockets) - 1))
}

// New returns an engine. The caller must call Run, which releases the engine's resources.
func New(config Config) (*Engine, error) {
	c, err := newClock(config.Base)
	if err != nil {
		return nil, err
	}
	p, err := newPoller(c)
	if err != nil {
		return nil, err
	}
	e := newEngine(config, p)
	t := newTCP(e, p)
	u := newUDP(t)
	e.protocols = map[string]protocol{ProtocolTCPNew: t, ProtocolTCPDial: t, ProtocolTCPLong: newLong(t), ProtocolHTTPReuse: newReuse(e, p),
		ProtocolUDPFresh: u, ProtocolUDPSticky: u}
	return e, nil
}

func newEngine(config Config, h host) *Engine {
	return &Engine{config: config, host: h, pending: never, lateLimit: lateLimit, usedIDs: map[uint16]bool{},
		walks: map[sourceRange]*walk{}}
}

// Now returns the offset of the current time from the start of the run.
func (e *Engine) Now() time.Duration { return e.host.now() }

// Start begins a lane: its attempt 0 is scheduled at the offset at. Attempts that are already too late are recorded
// with class probe. An id can be used once in a run.
func (e *Engine) Start(l Lane, at time.Duration) error {
	if err := l.Validate(); err != nil {
		return err
	}
	l = l.WithDefaults()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.usedIDs[l.ID] || (l.Fresh != 0 && e.usedIDs[l.Fresh]) {
		return fmt.Errorf("starting lane %d (%s): the id was used before in this run; sequence numbers would repeat", l.ID, l.Name)
	}
	if err := e.checkOverlap(l); err != nil {
		return err
	}
	e.usedIDs[l.ID] = true
	if l.Fresh != 0 {
		e.usedIDs[l.Fresh] = true
	}
	return e.command(func(now time.Duration) {
		n := e.beginLane(l, at, now)
		if l.Fresh != 0 {
			e.beginFresh(n, at, now)
		}
	})
}

// checkOverlap rejects prefixes that overlap without being equal: their walks could draw the same five-tuple.
func (e *Engine) checkOverlap(l Lane) error {
	for _, other := range e.started {
		if l.SourcePrefix.Overlaps(other.SourcePrefix) && l.SourcePrefix.Masked() != other.SourcePrefix.Masked() {
			return fmt.Errorf("starting lane %d (%s): its source prefix %s overlaps %s of lane %d, so five-tuples could meet; "+
				"use the same prefix or separate ones", l.ID, l.Name, l.SourcePrefix, other.SourcePrefix, other.ID)
		}
	}
	e.started = append(e.started, l)
	return nil
}

// Stop ends a lane: attempts scheduled at or after the offset at are not made. Attempts in flight continue.
func (e *Engine) Stop(id uint16, at time.Duration) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.usedIDs[id] {
		return fmt.Errorf("stopping lane %d: no such lane was started", id)
	}
	return e.command(func(time.Duration) { e.endLane(id, at) })
}

// Close stops all lanes now. Run returns once the attempts in flight have ended, at the latest at their deadlines.
func (e *Engine) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing || e.done {
		return
	}
	e.closing = true
	_ = e.command(func(now time.Duration) { e.closed = true; e.endAllLanes(now) }) // no error: the engine is not done
}

var errDone = errors.New("the probe engine has ended")

// command queues a function for the engine's goroutine. The caller holds mu.
func (e *Engine) command(c func(now time.Duration)) error {
	if e.done {
		return errDone
	}
	e.commands = append(e.commands, c)
	e.host.wake()
	return nil
}

// Run makes attempts until Close was called and all of them have ended. When ctx ends first, attempts in flight are
// recorded with class probe and Run returns the context's cause. It can be called once.
func (e *Engine) Run(ctx context.Context) error {
	defer e.finishRun()
	defer context.AfterFunc(ctx, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		_ = e.command(func(time.Duration) {}) // wakes Run up; an error means that Run has returned
	})()
	for all := true; ; {
		e.runCommands()
		now := e.host.now()
		if ctx.Err() != nil {
			e.endAllLanes(now)
			e.launch()
			e.cancelAll()
			return context.Cause(ctx)
		}
		if all { // an unread answer must not become a timeout
			e.expire(now)
		}
		e.launch()
		if e.closed && len(e.lanes) == 0 {
			return nil
		}
		until := e.nextWakeUp()
		e.flush(until)
		events, everything, err := e.host.wait(until)
		if err != nil {
			e.cancelAll()
			return err
		}
		all = everything
		for i := range events {
			e.dispatch(&events[i])
		}
	}
}

// finishRun flushes and closes the engine, so that later commands fail.
func (e *Engine) finishRun() {
	e.flush(never)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.done = true
	e.host.close()
}

func (e *Engine) runCommands() {
	e.mu.Lock()
	commands := e.commands
	e.commands = nil
	e.mu.Unlock()
	for _, c := range commands {
		c(e.host.now())
	}
}

func (e *Engine) beginLane(l Lane, at, now time.Duration) *lane {
	n := &lane{Lane: l, cursor: cursor{schedule: schedule{start: at, rate: l.Rate}, end: never}}
	n.maxLateness, n.protocol = max(e.lateLimit, l.Interval()), e.protocols[l.Protocol]
	n.source = e.newSource(l, now)
	n.request = requestHead(l)
	if e.closed {
		n.end = at
	}
	e.insert(n)
	return n
}

func (e *Engine) insert(n *lane) {
	i, _ := slices.BinarySearchFunc(e.lanes, n.ID, func(n *lane, id uint16) int { return int(n.ID) - int(id) })
	e.lanes = slices.Insert(e.lanes, i, n)
}

// newSource returns the source of a lane's five-tuples.
func (e *Engine) newSource(l Lane, now time.Duration) source {
	interval, _ := l.reuseInterval() // no error after Validate
	switch {
	case interval != 0:
		return newReuseSource(e.sharedWalk(l), l, interval, now)
	case l.SpreadSeed != 0:
		return spreadSource{fresh: freshSource{e.sharedWalk(l)}, target: l.Target, seed: l.SpreadSeed, nodes: l.SpreadNodes}
	}
	return freshSource{e.sharedWalk(l)}
}

func (e *Engine) endLane(id uint16, at time.Duration) {
	for _, n := range e.lanes {
		if n.ID == id {
			n.end = min(n.end, at)
		}
	}
}

// endAllLanes keeps the attempts that were scheduled before now: they are started, or recorded with class probe.
func (e *Engine) endAllLanes(now time.Duration) {
	for _, n := range e.lanes {
		n.end = min(n.end, now)
	}
}

// launch starts the attempts that are due, in the order of their schedule, and removes lanes that have ended.
func (e *Engine) launch() {
	for {
		var first *lane
		due := never
		for _, n := range e.lanes {
			if at := n.due(); at < due {
				first, due = n, at
			}
		}
		now := e.host.now()
		if first == nil || due > now {
			break
		}
		e.attempt(first, due, now)
	}
	now := e.host.now()
	e.lanes = slices.DeleteFunc(e.lanes, func(n *lane) bool {
		over := n.over() && n.inFlight == 0 && !n.holdsConnections(now) && (n.parent == nil || n.parent.removed)
		if over {
			n.removed = true
			n.protocol.closeLane(n)
		}
		return over
	})
}

// attempt makes one attempt, or records it with class probe.
func (e *Engine) attempt(n *lane, intended, now time.Duration) {
	f := e.newFlight(n)
	f.Attempt = record.Attempt{Lane: n.ID, Seq: n.cursor.next, Intended: intended, Start: now}
	n.cursor.next++
	if now-intended > n.maxLateness {
		e.finish(f, record.Probe, DetailLate)
		return
	}
	if n.inFlight > n.InFlight {
		e.finish(f, record.Probe, DetailInFlight)
		return
	}
	n.protocol.start(f)
}

// drawTuple gives the attempt a source address and port. Without one that the policy allows, it ends the attempt and
// returns false.
func (e *Engine) drawTuple(f *flight) (ok bool) {
	if f.Source, f.TupleAge, ok = f.lane.source.next(f.Seq, f.Start); !ok {
		e.finish(f, record.Probe, DetailNoTuple)
	}
	return ok
}

// expire ends flights whose deadline has passed.
func (e *Engine) expire(now time.Duration) {
	for _, n := range e.lanes {
		for _, list := range [...]*flightList{&n.dialing, &n.waiting, &n.overdue} {
			for list.first != nil && list.first.deadline <= now {
				n.protocol.expire(list.first)
			}
		}
	}
}

// nextWakeUp returns the time of the next scheduled attempt, deadline or end of a lane.
func (e *Engine) nextWakeUp() time.Duration {
	until, now := never, e.host.now()
	for _, n := range e.lanes {
		until = min(until, n.due(), n.dialing.deadline(), n.waiting.deadline(), n.overdue.deadline())
		if n.over() && n.holdsConnections(now) {
			until = min(until, n.end)
		}
	}
	return until
}

// flush calls Config.Flush if FlushAfter is over, or will be before the time until.
func (e *Engine) flush(until time.Duration) {
	if e.pending == never || until <= e.pending+FlushAfter {
		return
	}
	e.pending = never
	if e.config.Flush != nil {
		e.config.Flush()
		// Receivers of the flushed attempts get CPU time even if this goroutine never blocks: the runtime preempts only
		// while its monitor thread is awake, see system.go.
		runtime.Gosched()
	}
}

// dispatch passes an event to its flight, unless that has ended, or to the lane socket.
func (e *Engine) dispatch(event *socketEvent) {
	if i := int(firstLaneToken - event.Fd); event.Fd <= firstLaneToken && i < len(e.laneSockets) {
		e.laneSockets[i].ready(event.Pad, event.Events)
		return
	}
	if event.Fd < 0 || int(event.Fd) >= len(e.flights) {
		return
	}
	if f := e.flights[event.Fd]; f.lane != nil && f.generation == event.Pad {
		f.lane.protocol.ready(f, event.Events)
	}
}

// finish records the outcome of an attempt and releases its flight.
func (e *Engine) finish(f *flight, class record.Class, detail string) {
	now := e.host.now()
	f.Class, f.Detail, f.Total = class, detail, now-f.Start
	e.config.Record(f.Attempt)
	if e.pending == never {
		e.pending = now
	}
	e.release(f)
}

// cancelAll records each attempt in flight with class probe.
func (e *Engine) cancelAll() {
	for _, f := range e.flights {
		if f.lane != nil {
			f.lane.protocol.cancel(f)
			e.finish(f, record.Probe, DetailCancelled)
		}
	}
	for _, n := range e.lanes {
		n.protocol.closeLane(n)
	}
	e.lanes = nil
}
