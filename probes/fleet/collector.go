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
type Way interface {
	// Workers are those that should be there now. Beside them an error may say what is wrong with others.
	Workers(ctx context.Context) ([]Member, error)
	// Ask sends a question and returns the body of its answer. An error says that none came, whatever became of the question.
	Ask(ctx context.Context, worker string, r Request) ([]byte, error)
}

// ErrGone is the error, or within the error, of a Way that knows that nobody of that name will ever answer again. It is not waited
// for; as it may go on unseen, its gap lasts until the end.
var ErrGone = errors.New("it is gone")

// Config says whose attempts are collected, and how.
type Config struct {
	Way    Way
	Record record.Recorder
	Now    func() time.Duration // the run's clock
	Lane   probes.Lane          // of each worker, but for its id and name
	Attrs  map[string]string    // what its declaration says besides, see record.KindLane
	Wanted int                  // workers, at least 1
	// FirstLane is the first of the run's lane numbers that workers take; all above it are theirs.
	FirstLane uint16
	Measured  func(record.Attempt) // takes each attempt, one at a time, unless nil

	// Every is how often each worker is asked, and Within how long an answer may take; see Pace and askWithin when 0.
	Every, Within time.Duration
	// AtOnce is how many are asked at once; 16 when 0.
	AtOnce int
}

const (
	askWithin = 5 * time.Second
	atOnce    = 16
	// unreached is for how long a worker that joins later may wait for its target to answer once, as the network of a new pod
	// may take a while; then it begins all the same, and what it loses counts.
	unreached = 10 * time.Second
	// hurry lies between two workers that are asked while all are waited for: a hundred of them a second are enough for a
	// thousand to begin and to end in time, and no burden for an API server that has so many nodes.
	hurry = 10 * time.Millisecond
)

// Pace is how often each of so many workers is asked: ten questions a second in all, and none more than once in two seconds.
func Pace(workers int) time.Duration {
	return max(2*time.Second, time.Duration(workers)*100*time.Millisecond)
}

// Collector makes one record of the workers' histories. It is safe for concurrent use.
type Collector struct {
	cfg   Config
	every time.Duration // between two attempts of a lane
	sleep func(context.Context, time.Duration) error

	mu      sync.Mutex
	do      string
	number  uint64              // of the last question
	lanes   uint16              // declared so far
	current map[string]*history // by the worker's name
	all     []*history          // in the order in which they were heard
	told    bool                // the wanted ones were told to run: who comes now joins
	lost    error               // with which the last question for the workers failed
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
	cfg.Every, cfg.Within, cfg.AtOnce = cmp.Or(cfg.Every, Pace(cfg.Wanted)), cmp.Or(cfg.Within, askWithin), cmp.Or(cfg.AtOnce, atOnce)
	return &Collector{cfg: cfg, every: cfg.Lane.Gap(), sleep: clock.Sleep, do: doWait, current: map[string]*history{}}, nil
}

// Begin waits until as many workers as are wanted are there and have had an answer of their target, and has all of them run. It
// returns when each has said that it does.
func (c *Collector) Begin(ctx context.Context) error {
	if err := c.until(ctx, (*history).ready, func() string { return c.missing((*history).ready, "have had an answer of "+c.cfg.Lane.Target.String()) }); err != nil {
		return err
	}
	c.launch()
	return c.until(ctx, (*history).runs, func() string { return c.missing((*history).runs, "have begun") })
}

// launch has the workers run that are ready; who comes later joins.
func (c *Collector) launch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.all {
		if h.ready() {
			c.declare(h, false)
		}
	}
	c.do, c.told = doRun, true
}

func (h *history) ready() bool { return h.reached && !h.over() }
func (h *history) runs() bool  { return h.began && !h.over() }
func nobody(*history) bool     { return false }

// Run collects until the context ends.
func (c *Collector) Run(ctx context.Context) {
	ticker := time.NewTicker(c.cfg.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			c.round(ctx, nobody, c.cfg.Every*9/10)
		case <-ctx.Done():
			return
		}
	}
}

// Finish has the workers end, collects until everything of each has come or the context ends, and then states what is missing.
// It is to be called once, with nothing else under way.
func (c *Collector) Finish(ctx context.Context) {
	c.order(doEnd)
	_ = c.until(ctx, (*history).over, c.unfinished) // what is missing is stated
	c.state()
}

func (c *Collector) order(do string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.do = do
}

// state states what is missing.
func (c *Collector) state() {
	c.mu.Lock()
	defer c.mu.Unlock()
	end := c.cfg.Now()
	for _, h := range c.all {
		if e, missing := h.gap(c.every, end); missing {
			c.cfg.Record.Event(e)
		}
	}
}

// unfinished says of which workers something is still to come; empty when of none.
func (c *Collector) unfinished() string {
	for _, h := range c.all {
		if h.lane > 0 && !h.over() {
			return h.Name + " has not ended"
		}
	}
	return ""
}

// missing says how many of the wanted workers are not yet so; empty when none. What was wrong with one of them is told.
func (c *Collector) missing(so func(*history) bool, words string) string {
	n := 0
	why := c.lost
	for _, name := range slices.Sorted(maps.Keys(c.current)) {
		if h := c.current[name]; so(h) {
			n++
		} else if !h.over() && h.trouble != nil {
			why = fmt.Errorf("%s: %w", name, h.trouble)
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
func (c *Collector) until(ctx context.Context, so func(*history) bool, missing func() string) error {
	// Each round lists the workers' pods, some kilobytes of each, so that of many the pause is longer.
	pause := max(min(c.cfg.Every/4, 500*time.Millisecond), c.cfg.Every/20, time.Millisecond)
	for {
		c.round(ctx, so, 0)
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
func (c *Collector) round(ctx context.Context, so func(*history) bool, over time.Duration) {
	names := c.members(ctx, so)
	spread := hurry
	if over > 0 {
		spread = over / time.Duration(max(1, len(names)))
	}
	queue := make(chan string)
	var asking sync.WaitGroup
	for range min(c.cfg.AtOnce, len(names)) {
		asking.Go(func() {
			for name := range queue {
				for more := true; more && ctx.Err() == nil; {
					more = c.ask(ctx, name)
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
func (c *Collector) members(ctx context.Context, so func(*history) bool) []string {
	asking, cancel := context.WithTimeout(ctx, c.cfg.Within)
	defer cancel()
	found, err := c.cfg.Way.Workers(asking)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = err
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
		names[name] = names[name] || h.lane > 0 && !h.over()
	}
	now := c.cfg.Now()
	maps.DeleteFunc(names, func(name string, ask bool) bool {
		h := c.current[name]
		return !ask || so(h) && now-h.asked < c.cfg.Every
	})
	// Who is new comes first: until it has its first order it measures nothing.
	return slices.SortedFunc(maps.Keys(names), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(c.current[a].incarnation), len(c.current[b].incarnation)), strings.Compare(a, b))
	})
}

// ask puts one question to a worker, and reports whether there is more to be asked at once.
func (c *Collector) ask(ctx context.Context, name string) (more bool) {
	h, r := c.question(name)
	asking, cancel := context.WithTimeout(ctx, c.cfg.Within)
	defer cancel()
	asked := c.cfg.Now()
	body, err := c.cfg.Way.Ask(asking, name, r)
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
		if h.trouble, h.gone = err, errors.Is(err, ErrGone); h.silent == 0 {
			h.silent = asked
		}
		return false
	}
	return c.hear(h, a, asked, answered)
}

// question is what to ask a worker now. Whom nobody told to run is not told to end.
func (c *Collector) question(name string) (*history, Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.current[name]
	h.asked = c.cfg.Now()
	c.number++
	do := doWait
	if h.lane > 0 {
		do = c.do
	}
	return h, h.request(c.number, do)
}

// hear takes an answer.
func (c *Collector) hear(h *history, a answer, asked, answered time.Duration) (more bool) {
	if a.Incarnation != h.incarnation {
		c.meet(h, a, asked, answered)
		return true
	}
	h.see(a, asked, answered)
	if h.lane == 0 { // nothing is expected of it yet
		join := c.told && c.do == doRun && c.lanes < math.MaxUint16-c.cfg.FirstLane && (h.reached || answered-h.heard > unreached)
		if join {
			c.declare(h, true)
		}
		return join
	}
	if h.over() {
		return false
	}
	fresh, bound := h.take(a)
	if e, wider := h.clockEvent(answered, bound); wider {
		c.cfg.Record.Event(e)
	}
	for _, attempt := range fresh {
		c.cfg.Record.Attempt(attempt)
		if c.cfg.Measured != nil {
			c.cfg.Measured(attempt)
		}
	}
	// The last question of all acknowledges what has come.
	return len(fresh) > 0 && (h.done || h.next < a.Total)
}

// meet makes the acquaintance of the process that answers where another one was asked, or none.
func (c *Collector) meet(before *history, a answer, asked, answered time.Duration) {
	if before.incarnation != "" && !before.over() {
		before.replaced = answered
	}
	i := slices.IndexFunc(c.all, func(h *history) bool { return h.incarnation == a.Incarnation && h.Name == before.Name })
	if i < 0 {
		i, c.all = len(c.all), append(c.all, &history{Member: before.Member, incarnation: a.Incarnation, heard: answered})
	}
	h := c.all[i]
	h.replaced = 0 // it was not gone, if it was known
	h.see(a, asked, answered)
	c.current[h.Name] = h
}

// declare gives a worker a lane of its own in the record, and has it run from now on.
func (c *Collector) declare(h *history, joined bool) {
	h.lane, h.told = c.cfg.FirstLane+c.lanes, c.cfg.Now()
	c.lanes++
	lane := c.cfg.Lane
	lane.ID, lane.Name = h.lane, h.Name
	if again := c.processes(h.Name); again > 1 {
		lane.Name += "-" + strconv.Itoa(again)
	}
	e := lane.Event(h.told)
	maps.Copy(e.Attrs, c.cfg.Attrs)
	e.Attrs["worker"], e.Attrs["workers"] = h.Name, strconv.Itoa(c.cfg.Wanted)
	if h.Node != "" {
		e.Attrs["node"] = h.Node
	}
	if joined {
		e.Attrs["joined"] = "true"
	}
	c.cfg.Record.Event(e)
}

// processes is how many of a worker's processes have a lane.
func (c *Collector) processes(name string) int {
	n := 0
	for _, h := range c.all {
		if h.Name == name && h.lane > 0 {
			n++
		}
	}
	return n
}
