//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/hitless/hitless/internal/clock"
	"github.com/hitless/hitless/lab/procs"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/observers"
)

// timeout bounds each measurement, in the lab's time.
const timeout = time.Hour

// trial measures one subject on one node.
type trial struct {
	*bench
	subject Subject
	node    *topology.Node
	probe   observers.ServiceProbe
	group   *procs.Group
	process *procs.Process
	row     Row
}

func (b *bench) trial(ctx context.Context, s Subject, node *topology.Node) (Row, error) {
	t := &trial{bench: b, subject: s, node: node, row: Row{Subject: s.Spec.String(), MinSync: "default", Services: len(b.fleet.all)}}
	if s.MinSync != "" {
		t.row.MinSync = s.MinSync
	}
	var err error
	if t.probe, err = observers.NewServiceProbe(s.Mode, observers.Node{Name: node.Name, Addrs: node.Addrs(), Namespace: node.Namespace}); err != nil {
		return t.row, err
	}
	defer t.probe.Close()
	if err := procs.AccountMemory(); err != nil {
		return t.row, err
	}
	if t.group, err = procs.NewGroup(fmt.Sprintf("trial-%d", node.Number)); err != nil {
		return t.row, err
	}
	err = t.run(ctx)
	if t.process != nil {
		_ = t.process.Signal(syscall.SIGKILL)
		<-t.process.Done()
		if err != nil {
			err = fmt.Errorf("%w; its last lines:\n%s", err, b.procs.Tail(t.process.Name, 10))
		}
	}
	// IPVS has one hash table for all namespaces; closing this one removes its entries.
	return t.row, errors.Join(err, node.Close())
}

func (t *trial) run(ctx context.Context) error {
	for _, step := range []func(context.Context) error{t.coldStart, t.endpointChanges, t.serviceAdditions, t.rollout, t.messages} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	var err error
	if t.row.PeakMB, err = procs.PeakRSS(t.process.Pid()); err != nil {
		return err
	}
	t.row.PeakGroupMB, err = t.group.PeakMB()
	return err
}

func (t *trial) coldStart(ctx context.Context) error {
	path, args := t.command()
	o := observer{now: t.Now, alive: t.alive}
	var took time.Duration
	err := procs.WithoutGC(func() (err error) {
		begin := t.Now()
		t.process, err = t.node.Start(t.procs, topology.GroupProxy, procs.Spec{Name: fmt.Sprintf("trial-%d", t.node.Number), Path: path, Args: args,
			Env: []string{"GOMAXPROCS=4"}})
		if err != nil {
			return err
		}
		if err := t.group.Add(t.process.Pid()); err != nil {
			return err
		}
		took, err = o.wait(ctx, begin, t.probe, t.fleet.services())
		return err
	})
	if err != nil {
		return fmt.Errorf("the cold start: %w", err)
	}
	t.row.ColdStartMs, t.row.ObserverMs = ms(took), ms(o.cpu)
	used, err := t.settle(ctx)
	t.row.CPUSeconds = used.Seconds()
	return err
}

func (t *trial) command() (path string, args []string) {
	args = t.subject.Args(t.node.Name, t.kubeconfig, "on")
	path = t.Program
	if t.subject.Name == subject.KubeProxy {
		path = filepath.Join(t.Binaries, t.subject.Binary())
	}
	if t.subject.MinSync != "" {
		flag := "--ipvs-min-sync-period="
		if t.subject.Mode == "nftables" {
			flag = "--iptables-min-sync-period=" // also that of nftables mode
		}
		args = append(args, flag+t.subject.MinSync)
	}
	return path, args
}

func (t *trial) alive() error {
	if t.process != nil && !t.process.Running() {
		return fmt.Errorf("%s exited: %s", t.subject, t.process.ExitText())
	}
	return nil
}

// settle waits until the subject is idle, and returns its CPU time since its start.
func (t *trial) settle(ctx context.Context) (time.Duration, error) {
	used, err := t.group.AwaitIdle(t.Now, func(d time.Duration) error { return clock.Sleep(ctx, d) }, timeout)
	if err != nil {
		return 0, fmt.Errorf("waiting for %s: %w", t.subject, err)
	}
	return used, nil
}

// change makes a change in the API. It returns the time from the stored change until the kernel serves it, and the CPU time of
// the subject for it.
func (t *trial) change(ctx context.Context, v *service, write func() error) (took, cpu time.Duration, err error) {
	before, err := t.settle(ctx)
	if err == nil {
		took, err = t.timed(ctx, v, write)
	}
	if err != nil {
		return 0, 0, err
	}
	after, err := t.settle(ctx)
	return took, after - before, err
}

func (t *trial) timed(ctx context.Context, v *service, write func() error) (took time.Duration, err error) {
	err = procs.WithoutGC(func() error {
		if err := write(); err != nil {
			return err
		}
		begin := t.Now() // after the API server's own work, which is no cost of the subject
		o := observer{now: t.Now, alive: t.alive}
		took, err = o.wait(ctx, begin, t.probe, []*service{v})
		return err
	})
	return took, err
}

// changed returns the i-th of the Services that are changed, which are spread over all.
func (t *trial) changed(i int) *service { return t.fleet.all[i*len(t.fleet.all)/steps] }

func (t *trial) endpointChanges(ctx context.Context) error {
	var took []time.Duration
	var cpu []time.Duration
	for i := range t.plan.Repeat {
		v := t.changed(i)
		d, c, err := t.change(ctx, v, func() error { return t.fleet.replace(v, i%endpoints) })
		if err != nil {
			return fmt.Errorf("change %d of an endpoint: %w", i+1, err)
		}
		took, cpu = append(took, d), append(cpu, c)
	}
	t.row.EndpointChangeMs, t.row.EndpointChangeMaxMs = ms(median(took)), ms(slices.Max(took))
	t.row.EndpointChangeCPUMs = ms(median(cpu))
	return nil
}

func (t *trial) serviceAdditions(ctx context.Context) error {
	var took []time.Duration
	for i := range t.plan.Repeat {
		v := &service{addr: clusterIP(most + 10 + i)}
		for range endpoints {
			v.pods = append(v.pods, t.fleet.pod())
		}
		d, _, err := t.change(ctx, v, func() error {
			if _, err := t.fleet.server.Apply(t.fleet.serviceObject(v)); err != nil {
				return err
			}
			return t.fleet.write(v)
		})
		if err != nil {
			return fmt.Errorf("addition %d of a Service: %w", i+1, err)
		}
		took = append(took, d)
		if err := t.fleet.remove(v); err != nil {
			return err
		}
	}
	t.row.ServiceAddMs, t.row.ServiceAddMaxMs = ms(median(took)), ms(slices.Max(took))
	return nil
}

// rollout replaces all endpoints of a Service, one with each write. The time is that of the last.
func (t *trial) rollout(ctx context.Context) error {
	before, err := t.settle(ctx)
	if err != nil {
		return err
	}
	v, last := t.fleet.roll, len(t.fleet.roll.pods)-1
	for i := range last {
		if err := errors.Join(t.fleet.replace(v, i), clock.Sleep(ctx, rolloutInterval)); err != nil {
			return err
		}
	}
	took, err := t.timed(ctx, v, func() error { return t.fleet.replace(v, last) })
	if err != nil {
		return fmt.Errorf("the rollout: %w", err)
	}
	after, err := t.settle(ctx)
	t.row.RolloutMs, t.row.RolloutCPUMs = ms(took), ms(after-before)
	return err
}

// rolloutInterval is the time between two writes of a rollout.
const rolloutInterval = 50 * time.Millisecond

// drainWait is the pause before messages are counted. Checks of draining endpoints belong to the change that removed them; the
// bundled proxier makes the first after 5 s.
const drainWait = 6 * time.Second

// messages counts without an observer, so that all counted messages are those of the subject.
func (t *trial) messages(ctx context.Context) error {
	if t.counter == nil {
		return nil
	}
	var found []int
	for i := range messageCounts {
		v := t.changed(t.plan.Repeat + i)
		if _, err := t.settle(ctx); err != nil {
			return err
		}
		if err := clock.Sleep(ctx, drainWait); err != nil {
			return err
		}
		n, err := t.counter.during(func() error {
			if err := t.fleet.replace(v, 0); err != nil {
				return err
			}
			_, err := t.settle(ctx)
			return err
		})
		if err != nil {
			return err
		}
		found = append(found, n)
	}
	n := slices.Min(found)
	t.row.NetlinkMessages = &n
	return nil
}
