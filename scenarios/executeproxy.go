package scenarios

import (
	"context"
	"errors"
	"fmt"

	"github.com/hitless/hitless/scenarios/timeline"
)

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
		w.log("proxy", fmt.Sprintf("the proxy of %s had ended by itself: %v", s.Object, err))
		return nil
	}
	w.state().pids[s.Object] = pid
	if err := end(ctx, s.Object); err != nil {
		return fmt.Errorf("ending the proxy: %w", err)
	}
	w.state().held[s.Object] = "the scenario ended its proxy and did not start it again"
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
	delete(w.state().held, s.Object)
	pid, err := proxies.Pid(s.Object)
	if err == nil && pid == w.state().pids[s.Object] {
		return errors.New("the proxy still has the process id that it had: it was not restarted, and nothing took its place")
	}
	return err
}

func (w executor) FreezeProxy(_ context.Context, s timeline.Step) error {
	proxies, err := w.proxies()
	if err != nil {
		return err
	}
	w.state().held[s.Object] = "the scenario suspended its proxy and did not continue it"
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
	delete(w.state().held, s.Object)
	return proxies.Thaw(s.Object)
}

func (w executor) CleanUpProxy(ctx context.Context, s timeline.Step) error {
	proxies, err := w.proxies()
	if err != nil {
		return err
	}
	return proxies.Cleanup(ctx, s.Object)
}

// ChangeProxy selects the subject of the next start of a node's proxy: another one, or the one at the start of the run.
func (w executor) ChangeProxy(_ context.Context, s timeline.Step) error {
	proxies, err := w.proxies()
	if err != nil {
		return err
	}
	node, to, first := s.Object, s.Get("to"), w.state().subjects
	if first[node] == "" {
		first[node] = proxies.Subject(node)
	}
	if to == timeline.Subject {
		to = first[node]
	}
	if watches := w.state().watchCounts; watches[node] > 0 {
		watches[node] = 1 // another version may have fewer
	}
	return proxies.Change(node, to)
}

// FlushTables empties a node's proxy tables without the proxy's knowledge.
func (w executor) FlushTables(ctx context.Context, s timeline.Step) error {
	proxies, err := w.proxies()
	if err != nil {
		return err
	}
	restore, err := proxies.Flush(ctx, s.Object)
	if err != nil {
		return fmt.Errorf("emptying the proxy's tables: %w", err)
	}
	w.state().restores[s.Object] = restore
	return nil
}

func (w executor) RestoreTables(_ context.Context, s timeline.Step) error {
	restore := w.state().restores[s.Object]
	if restore == nil {
		return fmt.Errorf("the tables of %s were not emptied", s.Object)
	}
	delete(w.state().restores, s.Object)
	if err := restore(); err != nil {
		return fmt.Errorf("putting the proxy's tables back: %w", err)
	}
	return nil
}

// BlockProxy makes the programs that a node's proxy writes its rules with fail.
func (w executor) BlockProxy(ctx context.Context, s timeline.Step) error {
	proxies, err := w.proxies()
	if err != nil {
		return err
	}
	b, err := w.block(ctx, s.Object)
	if err != nil {
		return err
	}
	if err := proxies.Block(s.Object); err != nil {
		return fmt.Errorf("blocking the proxy: %w", err)
	}
	w.state().blocked[s.Object] = b
	return nil
}

// UnblockProxy lets the programs work again. It is an error if the proxy has called none of them to write.
func (w executor) UnblockProxy(ctx context.Context, s timeline.Step) error {
	proxies, err := w.proxies()
	if err != nil {
		return err
	}
	b := w.state().blocked[s.Object]
	if b == nil {
		return fmt.Errorf("the proxy of %s is not blocked", s.Object)
	}
	if err := proxies.Unblock(s.Object); err != nil {
		return fmt.Errorf("unblocking the proxy: %w", err)
	}
	delete(w.state().blocked, s.Object)
	if err := w.checkBlocked(s.Object); err != nil {
		return err
	}
	return w.excuseUnblocked(ctx, s.Object, b)
}

// OpenClient opens idle connections to each port of a workload's Service.
func (w executor) OpenClient(ctx context.Context, s timeline.Step) error {
	k, err := w.workload(s.Object)
	if err != nil {
		return err
	}
	h := &heldConnections{}
	w.state().connections[s.Object] = h
	return h.all(ctx, w.World, k, s.Number("each", 1))
}

// CloseClient closes the connections to a workload's Service.
func (w executor) CloseClient(_ context.Context, s timeline.Step) error {
	return w.closeClient(s.Object)
}

// StopLane ends a lane.
func (w executor) StopLane(_ context.Context, s timeline.Step) error { return w.stopLanesOf(s.Object) }

func (w *World) closeClient(name string) error {
	h := w.state().connections[name]
	if h == nil {
		return fmt.Errorf("no connections to %s are open", name)
	}
	delete(w.state().connections, name)
	return h.Close()
}

// PowerOff cuts the power of a node.
func (w executor) PowerOff(ctx context.Context, s timeline.Step) error {
	power, err := part[Power](w.Site, PowerControl)
	if err != nil {
		return err
	}
	pods, err := w.sharesOn(ctx, s.Object)
	if err != nil {
		return err
	}
	if err := w.endBlock(ctx, s.Object); err != nil {
		return err
	}
	at := w.Clock.Now()
	if err := power.PowerOff(ctx, s.Object); err != nil {
		return err
	}
	w.state().dark[s.Object] = darkness{at, pods}
	w.excusePowerOff(at, s.Object, pods)
	proxies, err := w.proxies()
	if err != nil {
		return err
	}
	if _, err := proxies.Pid(s.Object); err == nil {
		return errors.New("its proxy still runs: it did not lose power")
	}
	return nil
}

func (w executor) PowerOn(ctx context.Context, s timeline.Step) error {
	power, err := part[Power](w.Site, PowerControl)
	if err != nil {
		return err
	}
	at := w.Clock.Now()
	if err := power.PowerOn(ctx, s.Object); err != nil {
		return err
	}
	w.excusePowerOn(at, s.Object)
	delete(w.state().dark, s.Object)
	delete(w.state().held, s.Object) // the node boots with its proxy
	return nil
}
