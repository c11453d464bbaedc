// Package probes opens connections on a fixed schedule and says what became of each: the open-loop probe engine, its
// lanes, the classification of failures, and the worker program that runs the engine inside a client's namespace.
//
// Open loop means that attempt k of a lane is intended at the lane's start + k/rate, whatever happened to the attempts
// before it, and that its outcome is charged to that instant. A closed loop reports the same one-second outage as 8 or
// as 92,000 failures, depending on how the failure looks; only a fixed rate makes "dropped connections per second" a
// property of the system. Nothing in this package retries, reconnects or swallows an error: every sequence number of a
// lane is recorded exactly once, and what the engine could not try is recorded too, as class probe.
//
// What the classes mean is said in one place, record.Class. This package is not for judging: it computes no outages
// and no verdicts, and it is not a load generator; it stops adding load where its budgets end. It runs on Linux only,
// since the classes rest on Linux's error queue and TCP_INFO.
package probes

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/record"
)

// FlushAfter is the longest that a recorded attempt waits until Config.Flush is called.
const FlushAfter = 100 * time.Millisecond

// lateLimit is the lateness beyond which an attempt is not started but recorded as class probe, for lanes whose gap is
// shorter. An outcome charged to an instant so far from what happened would be wrong, and starting what a long stall
// left undone would be a burst that no schedule intended. Lateness below it is recorded, and judged by the reports.
const lateLimit = 250 * time.Millisecond

// Config is what an engine is made with.
type Config struct {
	Base   int64                // CLOCK_MONOTONIC nanoseconds of the start of the run; all offsets count from it
	Seed   int64                // decides the walk of the five-tuples; engines that share a source prefix need different ones
	Record func(record.Attempt) // takes each attempt when its outcome is known, from the engine's goroutine; must not block
	// Flush, if set, is called from the engine's goroutine when something was recorded: at most FlushAfter later, and
	// at once when the engine will sleep longer than that, so that flushing never costs a wake-up of its own.
	Flush func()
}

// Engine runs lanes. Make it with New, run it with Run, in one goroutine and within the network namespace that the
// probes belong to; the other methods may be called from anywhere.
type Engine struct {
	config    Config
	host      host
	protocols map[string]protocol // by the word of Lane.Protocol

	lanes       []*lane // in order of their ids
	walks       map[sourceRange]*walk
	flights     []*flight     // every one ever made, by its token
	laneSockets []laneSocket  // sockets that outlive attempts, by firstHeld less their token
	idle        []*flight     // those not in use
	pending     time.Duration // when the oldest record that is not flushed was made; never for none
	lateLimit   time.Duration
	closed      bool

	mu       sync.Mutex
	commands []func(now time.Duration)
	usedIDs  map[uint16]bool // ids ever started
	started  []Lane
	stats    []*LaneStats // in order of starting
	closing  bool
	done     bool
}

// host is what the engine needs of the machine: the time, and a way to wait. Tests replace it.
type host interface {
	now() time.Duration
	// wait returns what happened to flights, at the latest at the instant until, and whether that is all that happened.
	wait(until time.Duration) (events []unix.EpollEvent, all bool, err error)
	wake()
	close()
}

// protocol makes the attempts of the lanes that name it. Each method either ends the attempt with Engine.finish or
// leaves it in flight.
type protocol interface {
	start(f *flight) // begins with Engine.tuple where it needs a new five-tuple
	ready(f *flight, events uint32)
	expire(f *flight)  // the flight's deadline has passed
	cancel(f *flight)  // lets go of what the flight holds; the engine ends it
	closeLane(n *lane) // lets go of what the lane holds beyond its attempts: none is left
}

// socket is one that outlives attempts; it gets its events itself.
type laneSocket interface {
	ready(generation int32, events uint32)
}

// firstHeld is the token of the first socket that outlives attempts; the next ones count down from it.
const firstLaneToken = tokenWake - 1

// hold gives a token to a socket that outlives attempts. The token is its own until the engine ends.
func (e *Engine) register(s laneSocket) int32 {
	e.laneSockets = append(e.laneSockets, s)
	return int32(firstLaneToken - (len(e.laneSockets) - 1))
}

// New makes an engine. Its Run must be called, which lets go of what it holds when it returns.
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
	e.protocols = map[string]protocol{ProtocolTCPNew: t, ProtocolTCPLong: newLong(t), ProtocolHTTPReuse: newReuse(e, p),
		ProtocolUDPFresh: u, ProtocolUDPSticky: u}
	return e, nil
}

func newEngine(config Config, h host) *Engine {
	return &Engine{config: config, host: h, pending: never, lateLimit: lateLimit, usedIDs: map[uint16]bool{},
		walks: map[sourceRange]*walk{}}
}

// Now returns the offset of this instant from the start of the run.
func (e *Engine) Now() time.Duration { return e.host.now() }

// Start begins a lane: its attempt 0 is intended at the offset at. Attempts that are already overdue by more than the
// engine tolerates are recorded as class probe. An id can be used once.
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
	stats := newLaneStats(l)
	e.stats = append(e.stats, stats)
	var fresh *LaneStats
	if l.Fresh != 0 {
		e.usedIDs[l.Fresh] = true
		fresh = newLaneStats(l.FreshLane())
		e.stats = append(e.stats, fresh)
	}
	return e.command(func(now time.Duration) {
		n := e.beginLane(l, at, stats, now)
		if fresh != nil {
			e.beginFresh(n, at, fresh, now)
		}
	})
}

// overlap refuses prefixes that share some addresses but not all: their walks do not know of each other.
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

// Stop ends a lane: attempts intended at or after the offset at do not happen. What has started by then goes on.
func (e *Engine) Stop(id uint16, at time.Duration) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.usedIDs[id] {
		return fmt.Errorf("stopping lane %d: no such lane was started", id)
	}
	return e.command(func(time.Duration) { e.endLane(id, at) })
}

// Close stops all lanes now; Run returns once the attempts in flight have ended, each by its deadline at the latest.
func (e *Engine) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing || e.done {
		return
	}
	e.closing = true
	_ = e.command(func(now time.Duration) { e.closed = true; e.endAllLanes(now) }) // cannot fail: not done
}

var errDone = errors.New("the probe engine has ended")

// command hands something to the engine's goroutine. The caller holds mu.
func (e *Engine) command(c func(now time.Duration)) error {
	if e.done {
		return errDone
	}
	e.commands = append(e.commands, c)
	e.host.wake()
	return nil
}

// Run makes the attempts until Close was called and all of them have ended. When ctx ends first, the attempts in flight
// are recorded as class probe and Run returns its cause. It can be called once.
func (e *Engine) Run(ctx context.Context) error {
	defer e.finishRun()
	defer context.AfterFunc(ctx, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		_ = e.command(func(time.Duration) {}) // only to wake up; after the end there is nobody to wake
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
		if all { // otherwise an answer may lie unread, and its deadline passed because of us
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

// finishRun flushes and closes, so that commands given later fail instead of waiting.
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

func (e *Engine) beginLane(l Lane, at time.Duration, stats *LaneStats, now time.Duration) *lane {
	n := &lane{Lane: l, cursor: cursor{schedule: schedule{start: at, rate: l.Rate}, end: never}, stats: stats}
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

// sourceOf chooses how a lane gets its five-tuples.
func (e *Engine) newSource(l Lane, now time.Duration) source {
	interval, _ := l.reuseInterval() // Validate has seen it
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

// endAll keeps what was intended up to now: it is started below, or recorded as the probe's fault.
func (e *Engine) endAllLanes(now time.Duration) {
	for _, n := range e.lanes {
		n.end = min(n.end, now)
	}
}

// launch starts what is due, in the order in which it was intended, and lets go of lanes that are over.
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

// attempt makes one attempt, or records why not.
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

// tuple gives the attempt its end of a five-tuple; where there is none that the policy allows, it ends the attempt and
// returns false.
func (e *Engine) drawTuple(f *flight) (ok bool) {
	if f.Source, f.TupleAge, ok = f.lane.source.next(f.Seq, f.Start); !ok {
		e.finish(f, record.Probe, DetailNoTuple)
	}
	return ok
}

// expire ends what has waited too long.
func (e *Engine) expire(now time.Duration) {
	for _, n := range e.lanes {
		for _, list := range [...]*flightList{&n.dialing, &n.waiting, &n.overdue} {
			for list.first != nil && list.first.deadline <= now {
				n.protocol.expire(list.first)
			}
		}
	}
}

// next is the next instant at which something must be done unasked.
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

// flush calls Config.Flush when it is time, or will be while the engine sleeps.
func (e *Engine) flush(until time.Duration) {
	if e.pending == never || until <= e.pending+FlushAfter {
		return
	}
	e.pending = never
	if e.config.Flush != nil {
		e.config.Flush()
		// Who waits for what was flushed gets a turn even if this goroutine never has to wait. The runtime would see to
		// that only while its monitor thread is awake, see system.go.
		runtime.Gosched()
	}
}

// dispatch hands an event to its flight, unless that has ended since, or to the socket that outlives flights.
func (e *Engine) dispatch(event *unix.EpollEvent) {
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

// finish ends an attempt: its outcome is recorded, and its flight is free again.
func (e *Engine) finish(f *flight, class record.Class, detail string) {
	now := e.host.now()
	f.Class, f.Detail, f.Total = class, detail, now-f.Start
	f.lane.stats.count(&f.Attempt)
	e.config.Record(f.Attempt)
	if e.pending == never {
		e.pending = now
	}
	e.release(f)
}

// cancelAll records every attempt in flight as one that the engine gave up.
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
