package scenarios

import (
	"context"
	"fmt"
	"time"

	"github.com/hitless/hitless/scenarios/timeline"
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
			{"to", "", "what the proxies become: a subject, such as kube-proxy@v1.26.0/iptables, or itself; must be given", func(string) error { return nil }, nil, nil},
			{"back", "off", "whether they become again what they were, node by node, after that", onOff, nil, nil},
			{"cleanup", "off", "whether the old proxy's own --cleanup runs before the new one starts", onOff, nil, nil},
			{"roll", "off", "whether the Deployment is rolled in the end, so that what an old proxy left behind shows", onOff, nil, nil},
			{"empty", "off", "whether the Deployment is scaled to zero before the first node, and back in the end, so that what an old proxy refuses shows", onOff, nil, nil},
			{"downtime", "2s", "how long a node is without its proxy", durationIn(0, time.Hour), nil, nil},
			{"between", "5s", "time between two nodes", durationIn(0, time.Hour), nil, nil},
			{"replicas", "3", "pods of the Deployment", numberIn(1, 100), nil, nil},
		},
		Steps: always(upgradeSteps, rollSteps, scaleSteps),
		Run:   func(ctx context.Context, w *World) error { return w.upgradeAndRoll(ctx) },
	}
}

// upgradeLive is upgrade where a DaemonSet runs the proxies: it gets another image, and its controller replaces its pods.
func upgradeLive() Scenario {
	return Scenario{
		Name: "upgrade", Summary: "gives the DaemonSet of the cluster's proxy another image",
		Steps: always([]string{stepUpgradeSet}, rollSteps, scaleSteps), Touches: func(ctx context.Context, w *World) ([]string, error) { return w.touchesImage(ctx) },
		Parameters: []Parameter{
			lanesParameter,
			proxyParameter,
			imageParameter,
			{"back", "off", "whether it gets the image that it had again, after that", onOff, nil, nil},
			{"roll", "off", "whether the Deployment is rolled in the end, so that what an old proxy left behind shows", onOff, nil, nil},
			{"empty", "off", "whether the Deployment is scaled to zero before, and back in the end, so that what an old proxy refuses shows", onOff, nil, nil},
			{"between", "5s", "time after an upgrade", durationIn(0, time.Hour), nil, nil},
			{"replicas", "2", "pods of the Deployment", numberIn(1, 100), nil, nil},
		},
		Run: func(ctx context.Context, w *World) error {
			if err := w.upgradeAndRoll(ctx); err != nil || w.Params.on("back") {
				return err
			}
			return w.keepImage(ctx)
		},
	}
}

// upgradeAndRoll upgrades, with what the parameters put before and after it.
func (w *World) upgradeAndRoll(ctx context.Context) error {
	upgrade := w.upgradeThereAndBack
	if w.Params.on("empty") {
		upgrade = func(ctx context.Context) error { return w.withoutPods(ctx, w.upgradeAfterAWhile) }
	}
	if err := upgrade(ctx); err != nil || !w.Params.on("roll") {
		return err
	}
	return w.Step(ctx, "roll the Deployment", "", func(ctx context.Context) error { return w.roll(ctx) })
}

// upgradeAfterAWhile gives the first node's proxy the time to write what it does without pods.
func (w *World) upgradeAfterAWhile(ctx context.Context) error {
	if err := w.Clock.Sleep(ctx, w.Params.duration("between")); err != nil {
		return err
	}
	return w.upgradeThereAndBack(ctx)
}

func (w *World) upgradeThereAndBack(ctx context.Context) error {
	if _, _, is := w.Params.ProxySet(); is {
		return w.upgradeSetThereAndBack(ctx)
	}
	proxies, err := w.proxies()
	if err != nil {
		return err
	}
	first := proxies.Subject(w.Nodes[0])
	if err := w.upgradeAll(ctx, w.Params["to"], w.Params["to"]); err != nil || !w.Params.on("back") {
		return err
	}
	return w.upgradeAll(ctx, first, timeline.Subject)
}

// migrate is upgrade with the defaults of the way from one mode to another as upstream documents it: the old mode's rules are
// cleaned up before the new proxy starts, and it has to work back as well. Nothing but the cleanup ends what flows by the old rules.
func migrate() Scenario {
	s := upgrade()
	s.Name, s.Summary = "migrate", "moves each node's proxy to another mode and back, with the old one's cleanup: upgrade with other defaults"
	for i, p := range s.Parameters {
		switch p.Key {
		case "back", "cleanup":
			s.Parameters[i].Default = "on"
		case lanesParameter.Key:
			s.Parameters[i].Default = tcpNew + "," + tcpLong
		}
	}
	return s
}

// upgradeAll puts what a timeline calls `to` into each node's place.
func (w *World) upgradeAll(ctx context.Context, name, to string) error {
	proxies, err := w.proxies()
	if err != nil {
		return err
	}
	for _, node := range w.Nodes {
		old, next := proxies.Subject(node), name
		if name == Itself {
			next, to = old, timeline.Subject
		}
		err := w.Step(ctx, fmt.Sprintf("put %s in the place of %s on %s", next, old, node), node,
			func(ctx context.Context) error { return w.upgradeProxy(ctx, node, to) })
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
	if err := w.act(ctx, "proxy stop", node); err != nil {
		return err
	}
	if w.Params.on("cleanup") {
		if err := w.act(ctx, "proxy cleanup", node); err != nil {
			return err
		}
	}
	if err := w.act(ctx, "proxy change", node, "to", to); err != nil {
		return err
	}
	if err := w.Clock.Sleep(ctx, w.Params.duration("downtime")); err != nil {
		return err
	}
	return w.act(ctx, "proxy start", node)
}
