package scenarios

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hitless/hitless/scenarios/timeline"
)

// bootNode gives a node its power back and returns when it serves: its proxy is another process than the one before, the workload
// is whole, and the balancer sends it flows.
func (w *World) bootNode(ctx context.Context, node string, before int) error {
	if err := w.act(ctx, "node on", node); err != nil {
		return err
	}
	proxies, err := w.proxies()
	if err != nil {
		return err
	}
	after, err := proxies.Pid(node)
	if err != nil {
		return fmt.Errorf("%s has power, but its proxy does not run: %w", node, err)
	}
	if after == before {
		return fmt.Errorf("the proxy on %s has the process id %d, as before: the node did not boot", node, after)
	}
	if err := w.see(ctx, "rolled-out", w.run.main.name, w.perPod()); err != nil {
		return err
	}
	return w.inBalancer(ctx, node, true)
}

// inBalancer waits until the balancer sends new flows to the node, or does not any more.
func (w *World) inBalancer(ctx context.Context, node string, want bool) error {
	what := fmt.Sprintf("the load balancer to send flows to %s: %t", node, want)
	return w.Until(ctx, what, w.detectWithin(), func(context.Context) (bool, string, error) {
		nodes, known := w.members(w.run.main.name)
		return !known || slices.Contains(nodes, node) == want, "it sends them to " + strings.Join(nodes, ", "), nil
	})
}

// PowerOff takes the power from a node.
func (w executor) PowerOff(ctx context.Context, s timeline.Step) error {
	power, err := part[Power](w.Site, PowerControl)
	if err != nil {
		return err
	}
	if err := power.PowerOff(ctx, s.Object); err != nil {
		return err
	}
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
	return power.PowerOn(ctx, s.Object)
}
