package scenarios

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/timeline"
)

// RunOnNode runs a program on a node, as an administrator or another program there would. Its failure is an error.
func (w executor) RunOnNode(ctx context.Context, s timeline.Step) error {
	return w.onNode(s, fmt.Sprintf("`%s` ran on %s", s.Text, s.Object), func(nodes Commands) error {
		out, err := nodes.Command(ctx, s.Object, strings.Fields(s.Text)...)
		if err != nil {
			return fmt.Errorf("%s on %s: %w: %s", s.Text, s.Object, err, strings.TrimSpace(out))
		}
		return nil
	})
}

// ChangeAddress adds an address to a node's loopback device, or removes it.
func (w executor) ChangeAddress(_ context.Context, s timeline.Step) error {
	add := s.Get("add")
	if add == "" {
		gone := s.Get("remove")
		return w.onNode(s, fmt.Sprintf("%s lost the address %s", s.Object, gone), func(nodes Commands) error { return nodes.RemoveAddress(s.Object, gone) })
	}
	return w.onNode(s, fmt.Sprintf("%s got the address %s", s.Object, add), func(nodes Commands) error { return nodes.AddAddress(s.Object, add) })
}

// SetSysctl sets a setting of the network of a node's kernel.
func (w executor) SetSysctl(_ context.Context, s timeline.Step) error {
	name, value := s.Get("name"), s.Get("value")
	return w.onNode(s, fmt.Sprintf("%s of %s became %s", name, s.Object, value), func(nodes Commands) error { return nodes.SetSysctl(s.Object, name, value) })
}

// AskARP records which nodes answer an ARP request of the load balancer.
func (w executor) AskARP(ctx context.Context, s timeline.Step) error {
	nodes, err := part[Commands](w.Site, NodeCommands)
	if err != nil {
		return err
	}
	answer, err := nodes.AnswersARP(ctx, s.Object)
	if err != nil {
		return err
	}
	got := cmp.Or(strings.Join(answer, " "), "no node")
	w.Recorder.Event(record.Event{At: w.Clock.Now(), Object: s.Object, Text: fmt.Sprintf("%s answered an ARP request for %s", got, s.Object),
		Body: record.Check{Client: "load balancer", Target: record.ARPTarget + s.Object, Got: got}})
	return nil
}

// CordonNode cordons a node, with the autoscaler's taint if the step has it. The excuse of its later power-off depends on that mark.
func (w executor) CordonNode(ctx context.Context, s timeline.Step) error {
	taint := s.Get("taint")
	if err := w.changeNode(ctx, s.Object, Change{Cordoned: true, Taint: taint}, corev1.TaintEffectNoSchedule); err != nil {
		return err
	}
	if taint == timeline.AutoscalerTaint {
		w.state().marked[s.Object] = w.Clock.Now()
	}
	return nil
}

// EvictPods evicts the pods of a node, and first creates the PodDisruptionBudget of the measured workload if the step has one.
func (w executor) EvictPods(ctx context.Context, s timeline.Step) (err error) {
	if least := s.Number("minAvailable", 0); least > 0 {
		if err := w.createBudget(ctx, least); err != nil {
			return err
		}
	}
	w.state().evicted, err = w.evictAll(ctx, s.Object)
	return err
}

// onNode changes a node past its proxy, and records that with the time before the change.
func (w executor) onNode(s timeline.Step, what string, change func(nodes Commands) error) error {
	nodes, err := part[Commands](w.Site, NodeCommands)
	if err != nil {
		return err
	}
	at := w.Clock.Now()
	if err := change(nodes); err != nil {
		return err
	}
	w.Recorder.Event(interferenceEvent(at, s.Object, s.Verb, record.InterferenceBegin, what))
	return nil
}
