package scenarios

import (
	"context"
	"fmt"
	"slices"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/timeline"
)

// Itself is the value of To for a restart with the same subject, as by an upgrade of a DaemonSet whose new version keeps
// the state in the kernel.
const Itself = "itself"

// cleanUp is the one parameter that only upgrade in a lab has.
var cleanUp = newSwitch("cleanup", "off", "whether the old proxy's own --cleanup runs before the new one starts")

// upgrade replaces each node's proxy with another subject, node by node: another version (kubernetes#71071 was found
// after such an upgrade), or another mode.
func upgrade() Scenario {
	return Scenario{
		Name:    "upgrade",
		Summary: "replaces each node's proxy by another version or mode, one node after the other",
		Parameters: []Parameter{
			laneParameters(),
			To.Parameter,
			upgradeBack.Parameter,
			cleanUp.Parameter,
			rollAtEnd.Parameter,
			emptyFirst.Parameter,
			downtime.Parameter,
			upgradeRest.Parameter,
			Replicas.withDefault("3"),
		},
		Steps: func(p Params) []string { return slices.Concat(upgradeSteps, stepsAround(p)) },
		Setup: upgradeSetup,
		Run:   func(ctx context.Context, w *World) error { return w.upgradeAndRoll(ctx) },
	}
}

func upgradeSetup(p Params) (s Setup) {
	s.PerNode = downtime.Of(p) + upgradeRest.Of(p)
	if upgradeBack.Of(p) {
		s.PerNode *= 2
	}
	if rollAtEnd.Of(p) {
		s.Lasts += p.rollTime(Replicas.Of(p))
	}
	if emptyFirst.Of(p) {
		s.Lasts += upgradeRest.Of(p) + p.exitDelay() + startTime
	}
	return s
}

// upgradeLive is upgrade for a DaemonSet: it gets another image, and its controller replaces its pods.
func upgradeLive() Scenario {
	return Scenario{
		Name: "upgrade", Summary: "gives the DaemonSet of the cluster's proxy another image",
		Steps:   func(p Params) []string { return append([]string{stepUpgradeSet}, stepsAround(p)...) },
		Touches: func(ctx context.Context, w *World) ([]string, error) { return w.touchesImage(ctx) },
		Parameters: []Parameter{
			laneParameters(),
			proxySet.Parameter,
			newImage.Parameter,
			upgradeBack.withHelp("whether the DaemonSet gets its old image again afterwards"),
			rollAtEnd.Parameter,
			emptyFirst.withHelp("whether the Deployment is scaled to zero before the upgrade and back at the end, which shows stale rejecting rules of an old proxy"),
			upgradeRest.withHelp("time of traffic after an upgrade"),
			Replicas.withDefault("2"),
		},
		Run: func(ctx context.Context, w *World) error {
			if err := w.upgradeAndRoll(ctx); err != nil || upgradeBack.Of(w.Params) {
				return err
			}
			return w.keepNewImage(ctx)
		},
	}
}

// stepsAround are the steps before and after an upgrade that the parameters choose.
func stepsAround(p Params) (steps []string) {
	if emptyFirst.Of(p) {
		steps = append(steps, scaleSteps...)
	}
	if rollAtEnd.Of(p) {
		steps = append(steps, rollSteps...)
	}
	return steps
}

// upgradeAndRoll upgrades, with the steps before and after it that the parameters choose.
func (w *World) upgradeAndRoll(ctx context.Context) error {
	upgrade := w.upgradeThereAndBack
	if emptyFirst.Of(w.Params) {
		upgrade = func(ctx context.Context) error { return w.withoutPods(ctx, w.upgradeAfterPause) }
	}
	if err := upgrade(ctx); err != nil || !rollAtEnd.Of(w.Params) {
		return err
	}
	return w.Step(ctx, "roll the Deployment", "", func(ctx context.Context) error { return w.rollAndFollow(ctx) })
}

// upgradeAfterPause gives the first node's proxy time to program a Service without pods.
func (w *World) upgradeAfterPause(ctx context.Context) error {
	if err := w.Clock.Sleep(ctx, upgradeRest.Of(w.Params)); err != nil {
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
	if err := w.upgradeAll(ctx, To.Of(w.Params), To.Of(w.Params)); err != nil || !upgradeBack.Of(w.Params) {
		return err
	}
	return w.upgradeAll(ctx, first, timeline.Subject)
}

// migrate is upgrade with the defaults of the documented migration between modes: cleanup before the new proxy starts,
// and back again.
func migrate() Scenario {
	s := upgrade()
	s.Name, s.Summary = "migrate", "changes each node's proxy to another mode and back, with the old proxy's cleanup: upgrade with other defaults"
	for i, p := range s.Parameters {
		switch p.Key {
		case upgradeBack.Key, cleanUp.Key:
			s.Parameters[i].Default = "on"
		case Lanes.Key:
			s.Parameters[i].Default = record.ProtocolNew + "," + record.ProtocolLong
		}
	}
	return s
}

// upgradeAll replaces the proxy of each node; to is the subject in the words of a timeline.
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
		if err := w.Clock.Sleep(ctx, upgradeRest.Of(w.Params)); err != nil {
			return err
		}
	}
	return nil
}

func (w *World) upgradeProxy(ctx context.Context, node, to string) error {
	if err := w.performVerb(ctx, "proxy stop", node); err != nil {
		return err
	}
	if cleanUp.Of(w.Params) {
		if err := w.performVerb(ctx, "proxy cleanup", node); err != nil {
			return err
		}
	}
	if err := w.performVerb(ctx, "proxy change", node, "to", to); err != nil {
		return err
	}
	if err := w.Clock.Sleep(ctx, downtime.Of(w.Params)); err != nil {
		return err
	}
	return w.performVerb(ctx, "proxy start", node)
}
