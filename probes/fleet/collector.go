// Package fleet is many probes that run by themselves, such as pods of a cluster, and the one record that is made of them.
//
// A worker (Serve) probes one lane, keeps each attempt in a journal of its own until somebody has it, and answers questions
// over HTTP; it opens no connection but its probes. A collector (Collector) asks each worker again and again for what comes
// next. A question acknowledges all that came before it, so that a lost question, a lost answer, an answer that comes twice
// and a partition cost nothing but time. What it cannot get it states as a gap: every attempt that a worker made is in the
// record once, or within a gap that is told.
//
// A process that starts anew is another worker (its incarnation), and never goes on with the numbers of the one before. Its clock is
// its own; every exchange tells within which bounds it is off (offset), and the record says so.
//
// How a question reaches a worker is the business of a Way.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hitless/hitless/internal/clock"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/record"
)

// Member is a worker as whoever runs it names it. No other one ever has its name; a process that starts anew does.
type Member struct {
	Name string
	Node string // that it runs on
}

// Way is how to find workers and to ask them. It is safe for concurrent use.
type Transport interface {
	// Workers are those that should be there now. Beside them an error may say what is wrong with others.
	Workers(ctx context.Context) ([]Member, error)
	// Ask sends a question and returns the body of its answer. An error says that none came, whatever became of the question.
	Send(ctx context.Context, worker string, r Request) ([]byte, error)
}

// ErrGone is the error, or within the error, of a Way that knows that nobody of that name will ever answer again. It is not waited
// for; as it may go on unseen, its gap lasts until the end.
var ErrGone = errors.New("it is gone")

// Config says whose attempts are collected, and how.
type Config struct {
	Transport Transport
	Record    record.Recorder
	Now       func() time.Duration // the run's clock
	Lane      probes.Lane          // of each worker, but for its id and name
	Service   string               // behind the lane, for its declaration; empty for none
	Wanted    int                  // workers, at least 1
	// FirstLane is the first of the run's lane numbers that workers take; all above it are theirs.
	FirstLane uint16
	OnAttempt func(record.Attempt) // takes each attempt, one at a time, unless nil

	// Every is how often each worker is asked, and Within how long an answer may take; see Pace and askWithin when 0.
	Interval, Timeout time.Duration
	// AtOnce is how many are asked at once; 16 when 0.
	Parallel int
}

const (
	defaultTimeout  = 5 * time.Second
	defaultParallel = 16
	// unreached is for how long a worker that joins later may wait for its target to answer once, as the network of a new pod
	// may take a while; then it begins all the same, and what it loses counts.
	joinTimeout = 10 * time.Second
	// hurry lies between two workers that are asked while all are waited for: a hundred of them a second are enough for a
	// thousand to begin and to end in time, and no burden for an API server that has so many nodes.
	minSpacing = 10 * time.Millisecond
)

// Pace is how often each of so many workers is asked: ten questions a second in all, and none more than once in two seconds.
func PollInterval(workers int) time.Duration {
	return max(2*time.Second, time.Duration(workers)*100*time.Millisecond)
}

// Collector makes one record of the workers' histories. It is safe for concurrent use.
type Collector struct {
	cfg      Config
	interval time.Duration // between two attempts of a lane
	sleep    func(context.Context, time.Duration) error

	mu       sync.Mutex
	command  string
	number   uint64              // of the last question
	lanes    uint16              // declared so far
	current  map[string]*history // by the worker's name
	all      []*history          // in the order in which they were heard
	launched bool                // the wanted ones were told to run: who comes now joins
	listErr  error               // with which the last question for the workers failed
}

// New makes a collector that has asked nobody yet.
func New(cfg Config) (*Collector, error) {
	cfg.Lane.ID = laneID
	if err := cfg.Lane.Validate(); err != nil {
		return nil, err
	}
	if cfg.Wanted < 1 || cfg.FirstLane < 1 {
		return nil, fmt.Errorf("a fleet of %d workers with lanes from %d on: at least one worker is needed, and lane 0 is none", cfg.Wanted, cfg.FirstLane)
	}
	cfg.Interval, cfg.Timeout, cfg.Parallel = cmp.Or(cfg.Interval, PollInterval(cfg.Wanted)), cmp.Or(cfg.Timeout, defaultTimeout), cmp.Or(cfg.Parallel, defaultParallel)
	return &Collector{cfg: cfg, interval: cfg.Lane.Interval(), sleep: clock.Sleep, command: commandWait, current: map[string]*history{}}, nil
}

// Begin waits until as many workers as are wanted are there and have had an answer of their target, and has all of them run. It
// returns when each has said that it does.
func (c *Collector) Begin(ctx context.Context) error {
	if err := c.waitUntil(ctx, (*history).ready, func() string {
		return c.shortfall((*history).ready, "have had an answer of "+c.cfg.Lane.Target.String())
	}); err != nil {
		return err
	}
	c.launch()
	return c.waitUntil(ctx, (*history).running, func() string { return c.shortfall((*history).running, "have begun") })
}

// launch has the workers run that are ready; who comes later joins.
func (c *Collector) launch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.all {
		if h.ready() {
			c.declareLane(h, false)
		}
	}
	c.command, c.launched = commandRun, true
}

func (h *history) ready() bool   { return h.reached && !h.finished() }
func (h *history) running() bool { return h.began && !h.finished() }
func never(*history) bool        { return false }

// Run collects until the context ends.
func (c *Collector) Run(ctx context.Context) {
	ticker := time.NewTicker(c.cfg.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			c.pollAll(ctx, never, c.cfg.Interval*9/10)
		case <-ctx.Done():
			return
		}
	}
}

// Finish has the workers end, collects until everything of each has come or the context ends, and then states what is missing.
// It is to be called once, with nothing else under way.
func (c *Collector) Finish(ctx context.Context) {
	c.setCommand(commandEnd)
	_ = c.waitUntil(ctx, (*history).finished, c.unfinished) // what is missing is stated
	c.recordMissing()
}

func (c *Collector) setCommand(do string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.command = do
}

// state states what is missing.
func (c *Collector) recordMissing() {
	c.mu.Lock()
	defer c.mu.Unlock()
	end := c.cfg.Now()
	for _, h := range c.all {
		if e, missing := h.missingRecord(c.interval, end); missing {
			c.cfg.Record.Event(e)
		}
	}
}

// unfinished says of which workers something is still to come; empty when of none.
func (c *Collector) unfinished() string {
	for _, h := range c.all {
		if h.lane > 0 && !h.finished() {
			return h.Name + " has not ended"
		}
	}
	return ""
}

// missing says how many of the wanted workers are not yet so; empty when none. What was wrong with one of them is told.
func (c *Collector) shortfall(so func(*history) bool, words string) string {
	n := 0
	why := c.listErr
	for _, name := range slices.Sorted(maps.Keys(c.current)) {
		if h := c.current[name]; so(h) {
			n++
		} else if !h.finished() && h.lastErr != nil {
			why = fmt.Errorf("%s: %w", name, h.lastErr)
		}
	}
	if n >= c.cfg.Wanted {
		return ""
	}
	text := fmt.Sprintf("%d of %d workers %s", n, c.cfg.Wanted, words)
	if why != nil {
		text += " (" + why.Error() + ")"
	}
	return text
}

// until asks round after round until nothing is missing. Workers that are so as they should be are asked no more often than ever.
func (c *Collector) waitUntil(ctx context.Context, so func(*history) bool, missing func() string) error {
	// Each round lists the workers' pods, some kilobytes of each, so that of many the pause is longer.
	pause := max(min(c.cfg.Interval/4, 500*time.Millisecond), c.cfg.Interval/20, time.Millisecond)
	for {
		c.pollAll(ctx, so, 0)
		c.mu.Lock()
		text := missing()
		c.mu.Unlock()
		if text == "" {
			return nil
		}
		if c.sleep(ctx, pause) != nil {
			return fmt.Errorf("the fleet: only %s: %w", text, context.Cause(ctx))
		}
	}
}

// round asks each worker once, and more often as long as it has more; but none that is so already and was asked lately. The
// questions are spread over a time, unless it is 0: then they come one soon after the other.
func (c *Collector) pollAll(ctx context.Context, so func(*history) bool, over time.Duration) {
	names := c.workersToPoll(ctx, so)
	spread := minSpacing
	if over > 0 {
		spread = over / time.Duration(max(1, len(names)))
	}
	queue := make(chan string)
	var asking sync.WaitGroup
	for range min(c.cfg.Parallel, len(names)) {
		asking.Go(func() {
			for name := range queue {
				for more := true; more && ctx.Err() == nil; {
					more = c.poll(ctx, name)
				}
			}
		})
	}
	for i, name := range names {
		if i > 0 && c.sleep(ctx, spread) != nil {
			break
		}
		queue <- name
	}
	close(queue)
	asking.Wait()
}

// members are the names of the workers to be asked: those that should be there, and those of whom something is to come; less
// those that are so, until their turn comes.
func (c *Collector) workersToPoll(ctx context.Context, so func(*history) bool) []string {
	asking, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	found, err := c.cfg.Transport.Workers(asking)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listErr = err
	names := map[string]bool{}
	for _, m := range found {
		names[m.Name] = true
		if c.current[m.Name] == nil {
			c.current[m.Name] = &history{Member: m} // nobody yet: no incarnation has this name
		}
	}
	for name, h := range c.current {
		h.gone = h.gone || len(found) > 0 && !names[name] && h.lane == 0 // it was never told to run, so there is nothing to ask for
	}
	for name, h := range c.current {
		names[name] = names[name] || h.lane > 0 && !h.finished()
	}
	now := c.cfg.Now()
	maps.DeleteFunc(names, func(name string, ask bool) bool {
		h := c.current[name]
		return !ask || so(h) && now-h.lastRequest < c.cfg.Interval
	})
	// Who is new comes first: until it has its first order it measures nothing.
	return slices.SortedFunc(maps.Keys(names), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(c.current[a].incarnation), len(c.current[b].incarnation)), strings.Compare(a, b))
	})
}

// ask puts one question to a worker, and reports whether there is more to be asked at once.
func (c *Collector) poll(ctx context.Context, name string) (more bool) {
	h, r := c.nextRequest(name)
	asking, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	asked := c.cfg.Now()
	body, err := c.cfg.Transport.Send(asking, name, r)
	answered := c.cfg.Now()
	var a answer
	if err == nil {
		a, err = decode(body)
	}
	if err == nil && a.Number != r.Number {
		err = errors.New("the answer is one to another question")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		if h.lastErr, h.gone = err, errors.Is(err, ErrGone); h.silentSince == 0 {
			h.silentSince = asked
		}
		return false
	}
	return c.handleAnswer(h, a, asked, answered)
}

// question is what to ask a worker now. Whom nobody told to run is not told to end.
func (c *Collector) nextRequest(name string) (*history, Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.current[name]
	h.lastRequest = c.cfg.Now()
	c.number++
	do := commandWait
	if h.lane > 0 {
		do = c.command
	}
	return h, h.request(c.number, do)
}

// hear takes an answer.
func (c *Collector) handleAnswer(h *history, a answer, asked, answered time.Duration) (more bool) {
	if a.Incarnation != h.incarnation {
		c.switchIncarnation(h, a, asked, answered)
		return true
	}
	h.update(a, asked, answered)
	if h.lane == 0 { // nothing is expected of it yet
		join := c.launched && c.command == commandRun && c.lanes < math.MaxUint16-c.cfg.FirstLane && (h.reached || answered-h.firstHeard > joinTimeout)
		if join {
			c.declareLane(h, true)
		}
		return join
	}
	if h.finished() {
		return false
	}
	fresh, bound := h.accept(a)
	if e, wider := h.clockEvent(answered, bound); wider {
		c.cfg.Record.Event(e)
	}
	for _, attempt := range fresh {
		c.cfg.Record.Attempt(attempt)
		if c.cfg.OnAttempt != nil {
			c.cfg.OnAttempt(attempt)
		}
	}
	// The last question of all acknowledges what has come.
	return len(fresh) > 0 && (h.done || h.next < a.Total)
}

// meet makes the acquaintance of the process that answers where another one was asked, or none.
func (c *Collector) switchIncarnation(before *history, a answer, asked, answered time.Duration) {
	if before.incarnation != "" && !before.finished() {
		before.replacedAt = answered
	}
	i := slices.IndexFunc(c.all, func(h *history) bool { return h.incarnation == a.Incarnation && h.Name == before.Name })
	if i < 0 {
		i, c.all = len(c.all), append(c.all, &history{Member: before.Member, incarnation: a.Incarnation, firstHeard: answered})
	}
	h := c.all[i]
	h.replacedAt = 0 // it was not gone, if it was known
	h.update(a, asked, answered)
	c.current[h.Name] = h
}

// declare gives a worker a lane of its own in the record, and has it run from now on.
func (c *Collector) declareLane(h *history, joined bool) {
	h.lane, h.declared = c.cfg.FirstLane+c.lanes, c.cfg.Now()
	c.lanes++
	lane := c.cfg.Lane
	lane.ID, lane.Name = h.lane, h.Name
	if again := c.incarnations(h.Name); again > 1 {
		lane.Name += "-" + strconv.Itoa(again)
	}
	e := lane.Event(h.declared)
	body := e.Body.(record.Lane)
	body.Service, body.Node, body.Joined = c.cfg.Service, h.Node, joined
	body.Worker, body.Workers = h.Name, c.cfg.Wanted
	e.Body = body
	c.cfg.Record.Event(e)
}

// processes is how many of a worker's processes have a lane.
func (c *Collector) incarnations(name string) int {
	n := 0
	for _, h := range c.all {
		if h.Name == name && h.lane > 0 {
			n++
		}
	}
	return n
}
