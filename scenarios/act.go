package scenarios

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/scenarios/timeline"
)

// deeds is what the steps of a run have left behind that later steps need.
type deeds struct {
	workloads map[string]*workload
	services  map[string]*headless
	pods      map[string]*corev1.Pod // by the name that a step gave, as it was when something was done to it last
	open      map[string]*held
	restores  map[string]func() error // by node: how to put a proxy's tables back
	backs     map[string]func()       // by node: how the API server comes back
	delays    map[string]func()       // by node: how its watches are on time again
	losses    []*loss
	watches   map[string]int    // by node: how many it had before something was done to them
	pids      map[string]int    // by node: of the proxy that ended last
	subjects  map[string]string // by node: what ran before anything was changed
	rollouts  int
	restarts  int // of the DaemonSet of a live cluster's proxy
	rolling   int // number of the rollout whose end is not yet told; 0 for none
}

func newDeeds(w *World) *deeds {
	return &deeds{workloads: map[string]*workload{timeline.Measured: w.run.main}, services: map[string]*headless{}, pods: map[string]*corev1.Pod{},
		open: map[string]*held{}, restores: map[string]func() error{}, backs: map[string]func(){}, delays: map[string]func(){},
		watches: map[string]int{}, pids: map[string]int{}, subjects: map[string]string{}}
}

// deeds are made when the first is needed.
func (w *World) deeds() *deeds {
	if w.run.done == nil {
		w.run.done = newDeeds(w)
	}
	return w.run.done
}

// act does one thing to the cluster: every scenario disturbs through it alone, so that the run's own timeline has what was
// done, and a timeline can do what any scenario does. The arguments are keys and values in turn.
func (w *World) act(ctx context.Context, verb, object string, args ...string) error {
	s := timeline.Step{Verb: verb, Object: object}
	for i := 0; i+1 < len(args); i += 2 {
		s.Args = append(s.Args, timeline.Arg{Key: args[i], Value: args[i+1]})
	}
	return w.perform(ctx, s)
}

// see waits until something has come about, at most for the given time. Where the scenario goes on without it, the run's
// timeline says await, and otherwise expect.
func (w *World) see(ctx context.Context, what, object string, most time.Duration) error {
	return w.act(ctx, timeline.Waiting(what, !w.run.tolerant), object, "within", most.String())
}

// perform writes a step into the run's timeline and does it.
func (w *World) perform(ctx context.Context, s timeline.Step) error {
	w.write(s)
	return s.Perform(ctx, executor{w})
}

// journal returns the writer of the run's timeline, or an error where the run writes none.
func (w *World) journal() (JournalWriter, error) {
	if w.run.unwritten {
		return nil, errors.New("a timeline has no verbs for all steps of this scenario")
	}
	return part[JournalWriter](w.Site, Journal)
}

// write adds a step to the run's timeline, to the millisecond.
func (w *World) write(s timeline.Step) {
	if j, err := w.journal(); err == nil {
		s.At = (w.Clock.Now() - w.run.began).Truncate(time.Millisecond)
		j.Journal(s.String() + "\n")
	}
}

// executor performs the steps of timelines on a world.
type executor struct{ *World }

var _ timeline.Executor = executor{}

// EndProxy ends the proxy of a node.
func (w executor) EndProxy(ctx context.Context, s timeline.Step, kill bool) error {
	proxies, err := w.proxies()
	if err != nil {
		return err
	}
	end := proxies.Stop
	if kill {
		end = proxies.Kill
	}
	pid, err := proxies.Pid(s.Object)
	if err != nil { // a crash is the subject's own doing, which the run goes on to measure
		w.tell("proxy", fmt.Sprintf("the proxy of %s had ended by itself: %v", s.Object, err))
		return nil
	}
	w.deeds().pids[s.Object] = pid
	if err := end(ctx, s.Object); err != nil {
		return fmt.Errorf("ending the proxy: %w", err)
	}
	return nil
}

// StartProxy starts the proxy of a node again.
func (w executor) StartProxy(ctx context.Context, s timeline.Step) error {
	proxies, err := w.proxies()
	if err != nil {
		return err
	}
	if err := proxies.Start(ctx, s.Object); err != nil {
		return fmt.Errorf("starting the proxy: %w", err)
	}
	pid, err := proxies.Pid(s.Object)
	if err == nil && pid == w.deeds().pids[s.Object] {
		return errors.New("the proxy still has the process id that it had: it was not restarted, and nothing took its place")
	}
	return err
}

func (w executor) FreezeProxy(_ context.Context, s timeline.Step) error {
	proxies, err := w.proxies()
	if err != nil {
		return err
	}
	return proxies.Freeze(s.Object)
}

// ThawProxy continues a frozen proxy. A proxy that was not stopped is an error.
func (w executor) ThawProxy(_ context.Context, s timeline.Step) error {
	proxies, err := w.proxies()
	if err != nil {
		return err
	}
	if frozen, err := proxies.Frozen(s.Object); err != nil || !frozen {
		return fmt.Errorf("the proxy of %s went on instead of standing still (%v)", s.Object, err)
	}
	return proxies.Thaw(s.Object)
}

func (w executor) CleanUpProxy(ctx context.Context, s timeline.Step) error {
	proxies, err := w.proxies()
	if err != nil {
		return err
	}
	return proxies.Cleanup(ctx, s.Object)
}

// ChangeProxy makes the next start of a node's proxy start another subject, or the one that the run began with.
func (w executor) ChangeProxy(_ context.Context, s timeline.Step) error {
	proxies, err := w.proxies()
	if err != nil {
		return err
	}
	node, to, first := s.Object, s.Get("to"), w.deeds().subjects
	if first[node] == "" {
		first[node] = proxies.Subject(node)
	}
	if to == timeline.Subject {
		to = first[node]
	}
	if watches := w.deeds().watches; watches[node] > 0 {
		watches[node] = 1 // another version may have fewer
	}
	return proxies.Change(node, to)
}

// FlushTables empties a node's proxy tables behind the proxy's back.
func (w executor) FlushTables(ctx context.Context, s timeline.Step) error {
	proxies, err := w.proxies()
	if err != nil {
		return err
	}
	restore, err := proxies.Flush(ctx, s.Object)
	if err != nil {
		return fmt.Errorf("emptying the proxy's tables: %w", err)
	}
	w.deeds().restores[s.Object] = restore
	return nil
}

func (w executor) RestoreTables(_ context.Context, s timeline.Step) error {
	restore := w.deeds().restores[s.Object]
	if restore == nil {
		return fmt.Errorf("the tables of %s were not emptied", s.Object)
	}
	delete(w.deeds().restores, s.Object)
	if err := restore(); err != nil {
		return fmt.Errorf("putting the proxy's tables back: %w", err)
	}
	return nil
}

// OpenClient opens connections to each port of a workload's Service, and keeps them open, unused.
func (w executor) OpenClient(ctx context.Context, s timeline.Step) error {
	k, err := w.workload(s.Object)
	if err != nil {
		return err
	}
	h := &held{}
	w.deeds().open[s.Object] = h
	return h.all(ctx, w.World, k, s.Number("each", 1))
}

// CloseClient closes the connections to a workload's Service.
func (w executor) CloseClient(_ context.Context, s timeline.Step) error {
	return w.closeClient(s.Object)
}

// StopLane ends a lane.
func (w executor) StopLane(_ context.Context, s timeline.Step) error { return w.stopLane(s.Object) }

func (w *World) closeClient(name string) error {
	h := w.deeds().open[name]
	if h == nil {
		return fmt.Errorf("no connections to %s are open", name)
	}
	delete(w.deeds().open, name)
	return h.Close()
}

// laneOf is the lane to the measured Service that a step asks for.
func (w *World) laneOf(s timeline.Step) LaneSpec {
	spec := w.protocolLane(s.Object, cmp.Or(atRate(s), w.Rate))
	if s.Object == timeline.TCPLong {
		spec.Connections = s.Number("connections", spec.Connections)
	}
	return spec
}

func (w *World) tell(object, text string) {
	w.Recorder.Event(reports.Event{At: w.Clock.Now(), Kind: reports.EventLog, Object: object, Text: text})
}
