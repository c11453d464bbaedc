package scenarios

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Itself, as what the proxies become, is a new start of the program that runs: what the upgrade of a DaemonSet does to a proxy
// whose new version keeps what the old one left in the kernel.
const Itself = "itself"

// upgrade puts another subject in the place of each node's proxy, node by node: another version, as the upgrade from 1.10 to
// 1.12 was after which load balancers lost nodes (kubernetes#71071), or another mode, as upstream documents the way from
// ipvs to nftables.
func upgrade() Scenario {
	return Scenario{
		Name:    "upgrade",
		Summary: "puts another version or mode in the place of each node's proxy, one node after the other",
		Parameters: []Parameter{
			lanesParameter,
			{"to", "", "what the proxies become: a subject, such as kube-proxy@v1.26.0/iptables, or itself; must be given", func(string) error { return nil }},
			{"back", "off", "whether they become again what they were, node by node, after that", onOff},
			{"cleanup", "off", "whether the old proxy's own --cleanup runs before the new one starts", onOff},
			{"downtime", "2s", "how long a node is without its proxy", durationIn(0, time.Hour)},
			{"between", "5s", "time between two nodes", durationIn(0, time.Hour)},
			{"replicas", "3", "pods of the Deployment", numberIn(1, 100)},
		},
		Run: func(ctx context.Context, w *World) error {
			ways := []string{w.Params["to"]}
			if w.Params.on("back") {
				ways = append(ways, w.Proxies.Subject(w.Nodes[0]))
			}
			for _, to := range ways {
				if err := w.upgradeAll(ctx, to); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func (w *World) upgradeAll(ctx context.Context, to string) error {
	for _, node := range w.Nodes {
		old, next := w.Proxies.Subject(node), to
		if to == Itself {
			next = old
		}
		err := w.Step(ctx, fmt.Sprintf("put %s in the place of %s on %s", next, old, node), node,
			func(ctx context.Context) error { return w.upgradeProxy(ctx, node, next) })
		if err != nil {
			return err
		}
		if err := w.Clock.Sleep(ctx, w.Params.duration("between")); err != nil {
			return err
		}
	}
	return nil
}

func (w *World) upgradeProxy(ctx context.Context, node, to string) error {
	before, err := w.Proxies.Pid(node)
	if err != nil {
		return err
	}
	if err := w.Proxies.Stop(ctx, node); err != nil {
		return fmt.Errorf("ending the proxy: %w", err)
	}
	if w.Params.on("cleanup") {
		if err := w.Proxies.Cleanup(ctx, node); err != nil {
			return fmt.Errorf("cleaning up after the proxy: %w", err)
		}
	}
	if err := w.Proxies.Change(node, to); err != nil {
		return err
	}
	if err := w.Clock.Sleep(ctx, w.Params.duration("downtime")); err != nil {
		return err
	}
	if err := w.Proxies.Start(ctx, node); err != nil {
		return fmt.Errorf("starting the new proxy: %w", err)
	}
	after, err := w.Proxies.Pid(node)
	if err == nil && after == before {
		return errors.New("the proxy still has the process id that it had: nothing took its place")
	}
	return err
}
