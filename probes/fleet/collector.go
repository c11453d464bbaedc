// Package fleet runs many probe workers, such as pods of a cluster, and collects their attempts into one record.
//
// A worker (Serve) probes one lane, keeps each attempt in a journal until a collector has acknowledged it, and answers HTTP requests. A
// Collector polls each worker for its next attempts. A request acknowledges all earlier attempts, so lost requests, lost or duplicate
// answers and partitions only delay collection. Each attempt is in the record once, or within the recorded missing record of its worker.
//
// A restarted process is a new incarnation with its own numbers. Each worker has its own clock; every exchange bounds its offset, and
// the record has that bound.
//
// A Transport carries the requests.
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

// Member is a worker of a transport. Its name is unique; a restarted process keeps it.
type Member struct {
	Name string
	Node string // the node that it runs on
}

// Transport finds workers and sends them requests. It is safe for concurrent use.
type Transport interface {
	// Workers returns the workers that should exist now. With them it may return an error about others.
	Workers(ctx context.Context) ([]Member, error)
	// Send sends a request and returns the body of its answer. After an error the worker may have received the request.
	Send(ctx context.Context, worker string, r Request) ([]byte, error)
}

// ErrGone is in the error of a Transport when no worker with that name will ever answer again. The collector then does not wait for it.
// The worker may still run, so its missing record lasts until the end.
var ErrGone = errors.New("the worker is gone")

// Config configures a Collector.
type Config struct {
	Transport Transport
	Record    record.Recorder
	Now       func() time.Duration // the run's clock
	Lane      probes.Lane          // of each worker, without id and name
	Service   string               // Service of the lane, for the record; empty for none
	Wanted    int                  // number of workers, at least 1
	// FirstLane is the first lane id of workers; all ids from it on are reserved for workers.
	FirstLane uint16
	OnAttempt func(record.Attempt) // called with each attempt, one at a time, unless nil

	// Interval is the time between two polls of a worker, default PollInterval. Timeout is that of a request, default 5 s.
	Interval, Timeout time.Duration
	// Parallel is the number of concurrent requests, default 16.
	Parallel int
}

const (
	defaultTimeout  = 5 * time.Second
	defaultParallel = 16
	// joinTimeout is how long a worker that joins later waits for a first answer of its target, because the network of a new pod can be
	// late. After that it starts without an answer.
	joinTimeout = 10 * time.Second
	// minSpacing is the time between requests while Begin and Finish wait. At 100 requests per second, a thousand workers start and end in
	// time, and the load of the API server is small.
	minSpacing = 10 * time.Millisecond
)

// PollInterval returns the time between two polls of a worker: at least 2 s, and at most ten requests per second to all workers.
func PollInterval(workers int) time.Duration {
	return max(2*time.Second, time.Duration(workers)*100*time.Millisecond)
}

// Collector collects the attempts of all workers into one record. It is safe for concurrent use.
type Collector struct {
	cfg      Config
	interval time.Duration // between two attempts of a lane
	sleep    func(context.Context, time.Duration) error

	mu       sync.Mutex
	command  string
	number   uint64              // of the last request
	lanes    uint16              // number of declared lanes
	current  map[string]*history // by the worker's name
	all      []*history          // in the order of their first answers
	launched bool                // the wanted workers run; later ones join
	listErr  error               // of the last Transport.Workers
}

// New returns a collector that has not sent a request.
func New(cfg Config) (*Collector, error) {
	cfg.Lane.ID = laneID
	if err := cfg.Lane.Validate(); err != nil {
		return nil, err
	}
	if cfg.Wanted < 1 || cfg.FirstLane < 1 {
		return nil, fmt.Errorf("a fleet of %d workers with lane ids from %d on: it needs at least 1 worker and ids from 1 on", cfg.Wanted, cfg.FirstLane)
	}
	cfg.Interval, cfg.Timeout, cfg.Parallel = cmp.Or(cfg.Interval, PollInterval(cfg.Wanted)), cmp.Or(cfg.Timeout, defaultTimeout), cmp.Or(cfg.Parallel, defaultParallel)
	return &Collector{cfg: cfg, interval: cfg.Lane.Interval(), sleep: clock.Sleep, command: commandWait, current: map[string]*history{}}, nil
}

// Begin waits until the wanted number of workers exists and each has had an answer of its target. It then starts them, and returns when
// all have started.
func (c *Collector) Begin(ctx context.Context) error {
	if err := c.waitUntil(ctx, (*history).ready, func() string {
		return c.shortfall((*history).ready, "have had an answer from "+c.cfg.Lane.Target.String())
	}); err != nil {
		return err
	}
	c.launch()
	return c.waitUntil(ctx, (*history).running, func() string { return c.shortfall((*history).running, "have started") })
}

// launch starts the workers that are ready. Later workers join.
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

// Finish ends the workers, collects until it has all attempts or the context ends, and then records missing records. It must be called
// once, after Run has returned.
func (c *Collector) Finish(ctx context.Context) {
	c.setCommand(commandEnd)
	_ = c.waitUntil(ctx, (*history).finished, c.unfinished) // recordMissing records what could not be fetched
	c.recordMissing()
}

func (c *Collector) setCommand(do string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.command = do
}

// recordMissing records the missing record of each worker that has one.
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

// unfinished names a worker that has not finished; empty for none.
func (c *Collector) unfinished() string {
	for _, h := range c.all {
		if h.lane > 0 && !h.finished() {
			return h.Name + " has not ended"
		}
	}
	return ""
}

// shortfall returns how many of the wanted workers satisfy a condition, with the error of one that does not; empty when all do.
func (c *Collector) shortfall(satisfied func(*history) bool, words string) string {
	n := 0
	why := c.listErr
	for _, name := range slices.Sorted(maps.Keys(c.current)) {
		if h := c.current[name]; satisfied(h) {
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

// waitUntil polls until missing returns nothing. Workers that satisfy the condition are polled at the normal interval.
func (c *Collector) waitUntil(ctx context.Context, satisfied func(*history) bool, missing func() string) error {
	// The pause grows with the number of workers, because each round lists their pods, with some kilobytes per pod.
	pause := max(min(c.cfg.Interval/4, 500*time.Millisecond), c.cfg.Interval/20, time.Millisecond)
	for {
		c.pollAll(ctx, satisfied, 0)
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

// pollAll polls each worker until it has no more attempts. It skips workers that satisfy the condition and were polled within the
// interval. It spreads the polls over a time, or by minSpacing if that is 0.
func (c *Collector) pollAll(ctx context.Context, satisfied func(*history) bool, over time.Duration) {
	names := c.workersToPoll(ctx, satisfied)
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

// workersToPoll returns the names of the workers that the transport lists and of unfinished ones. It omits workers that satisfy the
// condition until their interval is over.
func (c *Collector) workersToPoll(ctx context.Context, satisfied func(*history) bool) []string {
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
			c.current[m.Name] = &history{Member: m} // the incarnation is unknown until the first answer
		}
	}
	for name, h := range c.current {
		h.gone = h.gone || len(found) > 0 && !names[name] && h.lane == 0 // never started, so it has no attempts
	}
	for name, h := range c.current {
		names[name] = names[name] || h.lane > 0 && !h.finished()
	}
	now := c.cfg.Now()
	maps.DeleteFunc(names, func(name string, ask bool) bool {
		h := c.current[name]
		return !ask || satisfied(h) && now-h.lastRequest < c.cfg.Interval
	})
	// New workers are first, because they make no attempts until they are started.
	return slices.SortedFunc(maps.Keys(names), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(c.current[a].incarnation), len(c.current[b].incarnation)), strings.Compare(a, b))
	})
}

// poll sends a worker one request, and reports whether it has more attempts.
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
		err = fmt.Errorf("the answer is to request %d, not %d", a.Number, r.Number)
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

// nextRequest returns the next request to a worker. A worker that was not started is not ended either.
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

// handleAnswer records the attempts of an answer, and reports whether the worker must be polled again at once.
func (c *Collector) handleAnswer(h *history, a answer, asked, answered time.Duration) (more bool) {
	if a.Incarnation != h.incarnation {
		c.switchIncarnation(h, a, asked, answered)
		return true
	}
	h.update(a, asked, answered)
	if h.lane == 0 { // not started
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
	// When the worker is done, one more request acknowledges the last attempts.
	return len(fresh) > 0 && (h.done || h.next < a.Total)
}

// switchIncarnation makes the process that answered the worker's current one.
func (c *Collector) switchIncarnation(before *history, a answer, asked, answered time.Duration) {
	if before.incarnation != "" && !before.finished() {
		before.replacedAt = answered
	}
	i := slices.IndexFunc(c.all, func(h *history) bool { return h.incarnation == a.Incarnation && h.Name == before.Name })
	if i < 0 {
		i, c.all = len(c.all), append(c.all, &history{Member: before.Member, incarnation: a.Incarnation, firstHeard: answered})
	}
	h := c.all[i]
	h.replacedAt = 0 // a known incarnation can answer again
	h.update(a, asked, answered)
	c.current[h.Name] = h
}

// declareLane gives a worker a lane in the record, so that the next request starts it.
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

// incarnations returns the number of a worker's incarnations with a lane.
func (c *Collector) incarnations(name string) int {
	n := 0
	for _, h := range c.all {
		if h.Name == name && h.lane > 0 {
			n++
		}
	}
	return n
}
