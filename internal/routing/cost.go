//go:build linux

package routing

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/lab/procs"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/record"
)

// CostConfig is what a run of costs needs. The proxy shares the CPU and the clock with this program. Only on the virtual clock of a
// VM are its times comparable.
type CostConfig struct {
	Dir      string
	Boot     topology.Config // of the node
	Program  string          // as in Config
	Subject  subject.Config  // its programs, environment, recorder and clock
	Others   []int           // numbers of other Services, ascending, each 1 to MaxOthers
	Progress func(changes int)
}

// costWithin bounds each wait for the proxy.
const costWithin = time.Hour

// RunCosts makes a testbed, starts the proxy, and records the cost of changes of one Service for each number of other Services.
func RunCosts(ctx context.Context, c CostConfig) (err error) {
	w, err := openEmpty(ctx, c.Dir, IPv4, c.Boot)
	defer func() { err = errors.Join(err, w.Close()) }()
	if err != nil {
		return err
	}
	w.program = c.Program
	m := &costs{CostConfig: c, w: w}
	if err := m.start(ctx); err != nil {
		return err
	}
	existing := 0
	for _, n := range c.Others {
		for ; existing < n; existing++ {
			if err := w.Apply(other(existing)...); err != nil {
				return err
			}
		}
		if err := m.changes(ctx, n); err != nil {
			return fmt.Errorf("with %d other Services: %w", n, err)
		}
	}
	return nil
}

// costs measures changes.
type costs struct {
	CostConfig
	w     *Testbed
	group *procs.Group // of the proxy
	made  int          // changes so far
}

// start makes the Service that changes, and starts the proxy in a control group.
func (c *costs) start(ctx context.Context) error {
	if err := c.w.Apply(changed(0)...); err != nil {
		return err
	}
	fleet, err := c.w.start(ctx, c.Subject)
	if err != nil {
		return err
	}
	if c.group, err = procs.NewGroup("subject"); err != nil {
		return err
	}
	pid, err := fleet.Pid(nodeName)
	if err != nil {
		return err
	}
	if err := c.group.Add(pid); err != nil {
		return fmt.Errorf("accounting for the CPU time of the proxy: %w", err)
	}
	return nil
}

// endpointOf is the pod that is the endpoint after a change: two pods replace each other.
func endpointOf(change int) string { return []string{"a", "b"}[change%2] }

// changed is the Service that changes.
func changed(change int) []runtime.Object { return IPv4.service(1, "changed", endpointOf(change)) }

// other is the i-th of the other Services.
func other(i int) []runtime.Object {
	return IPv4.service(0, fmt.Sprintf("other-%d", i), "a r", func(s *v1.Service) {
		s.Spec.ClusterIP = otherAddr(i).String()
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	})
}

func otherAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 97, byte(i >> 8), byte(i)}) }

// changes measures after the proxy has programmed all Services.
func (c *costs) changes(ctx context.Context, others int) error {
	last := netip.AddrPortFrom(otherAddr(others-1), 80)
	if err := c.await(ctx, last, "", time.Second); err != nil {
		return err
	}
	for range CostChanges {
		cost, err := c.change(ctx, others)
		if err != nil {
			return err
		}
		text := fmt.Sprintf("with %d other Services a change took %.2f ms, and %.2f ms of CPU", others, units.Millis(cost.Took), units.Millis(cost.CPU))
		c.Subject.Recorder.Event(record.Event{At: c.Subject.Now(), Node: nodeName, Object: "changed", Text: text, Body: cost})
		c.Progress(c.made)
	}
	return nil
}

// change replaces the endpoint, and waits until traffic reaches the new one and the proxy is idle.
func (c *costs) change(ctx context.Context, others int) (record.Cost, error) {
	cost := record.Cost{Others: others}
	_, to, err := IPv4.resolve("cluster/1:80")
	if err != nil {
		return cost, err
	}
	before, err := c.idle(ctx)
	if err != nil {
		return cost, err
	}
	c.made++
	err = procs.WithoutGC(func() error {
		begin := c.Subject.Now()
		if err := c.w.Apply(changed(c.made)...); err != nil {
			return err
		}
		err := c.await(ctx, to, endpointOf(c.made), time.Millisecond)
		cost.Took = c.Subject.Now() - begin
		return err
	})
	if err != nil {
		return cost, err
	}
	after, err := c.idle(ctx)
	cost.CPU = after - before
	return cost, err
}

// idle waits until the proxy is idle, and returns its CPU time since it is accounted for.
func (c *costs) idle(ctx context.Context) (time.Duration, error) {
	return c.group.AwaitIdle(c.Subject.Now, func(d time.Duration) error { return c.pause(ctx, d) }, costWithin)
}

// await asks a Service from a pod until the wanted pod answers, or any for the empty name. It asks again after an interval, and later
// after a hundredth of the time waited, so that the proxy has the CPU.
func (c *costs) await(ctx context.Context, to netip.AddrPort, pod string, interval time.Duration) error {
	for begin := c.Subject.Now(); ; {
		text, err := c.w.hosts["c"].request("tcp", to)
		if name, _, answered := strings.Cut(text, " "); err == nil && answered && (pod == "" || name == pod) {
			return nil
		}
		waited := c.Subject.Now() - begin
		if waited > costWithin {
			return fmt.Errorf("%s was not served by %q within %s; last answer %q: %w", to, pod, costWithin, text, err)
		}
		if err := c.pause(ctx, max(interval, waited/100)); err != nil {
			return err
		}
	}
}

func (c *costs) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
