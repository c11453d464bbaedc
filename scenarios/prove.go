package scenarios

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hitless/hitless/record"
)

// controlLane is a lane of a family that expects the canary's pods, with the engine, client and rate of the measured lanes.
func (w *World) controlLane(f record.Family, name, protocol string, to *workload) LaneSpec {
	l := LaneSpec{Name: f.Named(name), Service: to.name, Target: to.targetFor(f, protocol), Rate: w.canaryRate(), Control: true, Protocol: protocol,
		Local: to.answersLocally(w), Terminated: w.terminated(), Close: closing.Of(w.Params), Node: w.fixedNode(),
		Backends: []string{w.run.canary.name + "-"}, Host: w.run.canary.name}
	if protocol == record.ProtocolLong {
		l.Connections = longConnections(l.Rate)
	}
	return l
}

// canaryLanes are the control lanes to the canary in a proof: one of each kind that the run measures, of new connections and, where
// the run uses UDP, of new flows. Those of a group start together, so that more kinds take no longer.
func (w *World) canaryLanes(number int) (groups [][]LaneSpec) {
	for _, f := range w.families() {
		lane := func(protocol string) LaneSpec {
			return w.controlLane(f, controlName(protocol, false, number), protocol, w.run.canary)
		}
		var first []LaneSpec
		for _, kind := range w.provedKinds() {
			if kind != record.ProtocolFresh {
				first = append(first, lane(kind))
			}
		}
		groups = append(groups, first)
		if w.speaksUDP() {
			groups = append(groups, []LaneSpec{lane(record.ProtocolFresh)})
		}
	}
	return groups
}

// startTogether starts lanes at the same time; stop ends them.
func (w *World) startTogether(ctx context.Context, lanes []LaneSpec) (stop func() error, err error) {
	stops := make([]func() error, len(lanes))
	var all errgroup.Group
	for i, l := range lanes {
		all.Go(func() (err error) {
			stops[i], err = w.Prober.StartLane(ctx, l)
			return err
		})
	}
	return func() (err error) {
		for _, stop := range stops {
			err = cmp.Or(err, stop())
		}
		return err
	}, all.Wait()
}

// prove injects the known faults, one step after the other, while the control lanes run.
func (w *World) prove(ctx context.Context) error {
	w.run.proofs++
	number := w.run.proofs
	w.recordProof(number, record.ProofBegin, fmt.Sprintf("proof %d of the detector", number))
	var stops []func() error
	for _, group := range w.canaryLanes(number) {
		stop, err := w.startTogether(ctx, group)
		if err != nil {
			return err
		}
		stops = append(stops, stop)
	}
	if err := w.Clock.Sleep(ctx, rest); err != nil {
		return err
	}
	for i, step := range w.proofs(number) {
		id := proofID(number, i+1)
		if err := w.Step(ctx, id+": "+step.String(), "", func(ctx context.Context) error { return w.injectAll(ctx, id, step) }); err != nil {
			return err
		}
		if err := w.Clock.Sleep(ctx, step.rest()); err != nil {
			return err
		}
	}
	for _, stop := range stops {
		if err := stop(); err != nil {
			return err
		}
	}
	w.recordProof(number, record.ProofEnd, fmt.Sprintf("proof %d of the detector ended", number))
	return nil
}

// proofID is the id of a step of a proof; all in a run differ.
func proofID(number, step int) string {
	if number == 1 {
		return fmt.Sprintf("proof-%d", step)
	}
	return fmt.Sprintf("proof-%d-%d", number, step)
}

func (w *World) recordProof(number int, state record.ProofState, text string) {
	w.Recorder.Event(record.Event{At: w.Clock.Now(), Object: fmt.Sprintf("proof %d", number), Text: text,
		Body: record.Proof{State: state, Number: number, Kinds: w.measuredKinds()}})
}

// proveAgain proves the detector again during the scenario, on a canary Service that it makes anew. A proof that cannot be made may be the
// subject's fault: it is recorded, and no error.
func (w *World) proveAgain(ctx context.Context) error {
	unmade := func(why string) error {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		w.run.proofs++
		w.recordProof(w.run.proofs, record.ProofUnmade, why)
		return nil
	}
	if w.run.unrecovered {
		return unmade("the detector was not proved again, because a proxy does not follow changes any more")
	}
	var why error
	made := w.tryStep(ctx, "make the Service "+w.run.canary.name+" again", "", func(ctx context.Context) error {
		why = w.run.canary.publish(ctx, w)
		return why
	})
	if !made {
		return errors.Join(unmade("the detector was not proved again: "+why.Error()), w.deleteCanary(ctx))
	}
	if err := w.prove(ctx); err != nil {
		return fmt.Errorf("proving the detector again: %w", err)
	}
	return w.deleteCanary(ctx)
}

// deleteCanary deletes the canary's Service, if there is one. Its pods stay.
func (w *World) deleteCanary(ctx context.Context) error {
	if err := w.Cluster.Delete(ctx, w.run.canary.service(w)); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("taking the Service %s away: %w", w.run.canary.name, err)
	}
	return nil
}

// injectAll injects the faults of a step at the same time.
func (w *World) injectAll(ctx context.Context, id string, step proofStep) error {
	var all errgroup.Group
	for i, p := range step {
		own := id
		if i > 0 {
			own += "-" + string(p.kind) + "-" + cmp.Or(p.protocol, record.ProtocolNew)
		}
		all.Go(func() error { return w.injectProof(ctx, own, p) })
	}
	return all.Wait()
}

func (w *World) injectProof(ctx context.Context, id string, p proof) error {
	if p.kind == record.ProofMisroute {
		return w.misroute(ctx, id, p)
	}
	f := FaultSpec{ID: id, Kind: string(p.kind), Target: w.run.canary.targetFor(p.family, record.ProtocolNew), Node: p.node, For: p.For, Lane: p.onLane(), Control: true}
	if p.protocol == record.ProtocolFresh {
		f.Protocol = "udp"
	}
	return w.Site.faults.Inject(ctx, f)
}

// misroute probes the measured Service and expects the canary's pods: each answer counts as misrouted.
func (w *World) misroute(ctx context.Context, id string, p proof) error {
	inject := func(state record.FaultState) {
		w.Recorder.Event(record.Event{At: w.Clock.Now(), Object: id, Text: fmt.Sprintf("injected %s of %s: %s", p.kind, p.For, state),
			Body: record.Fault{Fault: string(p.kind), State: state, ID: id, Lane: p.onLane(), Control: true}})
	}
	lane := w.controlLane(p.family, controlName(p.protocol, true, p.number), cmp.Or(p.protocol, record.ProtocolNew), w.run.main)
	lane.Lasts = p.For + rest
	stop, err := w.Prober.StartLane(ctx, lane)
	if err != nil {
		return err
	}
	inject(record.FaultBegin)
	err = w.Clock.Sleep(ctx, p.For)
	inject(record.FaultEnd)
	if stopped := stop(); err == nil {
		err = stopped
	}
	return err
}
