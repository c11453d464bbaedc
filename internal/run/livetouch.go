package run

import (
	"context"
	"errors"

	"github.com/hitless/hitless/cluster"
	"github.com/hitless/hitless/scenarios"
)

// touches says what the run will change that is not its own, and refuses it unless the user has allowed that. Nothing may be
// changed that another run has not put back: it would be put back to what that run made of it.
func (r *liveRun) touches(ctx context.Context) error {
	if r.scenario.Touches == nil {
		return nil
	}
	lines, err := r.scenario.Touches(ctx, &scenarios.World{Cluster: r.cluster.Klient.Resources(), Params: r.params, Nodes: r.nodeNames()})
	if err != nil {
		return UsageError{cluster.Explain(err)}
	}
	owed, err := r.owed(ctx)
	if err != nil {
		return UsageError{err}
	}
	if len(owed) > 0 {
		return usagef("%s was not put back; `hitless clean` does that, and ends the run if it is still under way", owed[0])
	}
	r.message("it touches what is not its own:")
	for _, line := range lines {
		r.message("  " + line)
	}
	if !r.Live.AllowDisruption && !r.Live.DryRun {
		return usagef("scenario %s changes what is not its own, as told above: give --allow-disruption if that may be, or --dry-run to look only", r.Scenario)
	}
	return nil
}

func (r *liveRun) nodeNames() (names []string) {
	for _, n := range r.facts.Nodes {
		names = append(names, n.Name)
	}
	return names
}

// owed are the objects that the scenario may change and that some run has not put back.
func (r *liveRun) owed(ctx context.Context) ([]cluster.Owed, error) {
	if namespace, name, is := r.params.ProxySet(); is {
		return r.cluster.OwedDaemonSet(ctx, namespace, name)
	}
	return r.cluster.OwedNodes(ctx)
}

// mark is what goes with a change of what is not the run's own.
func (r *liveRun) mark(c scenarios.Change) map[string]string {
	d := cluster.Debt{Run: r.namespace, Uncordon: c.Cordoned, Untaint: c.Taint}
	for name, i := range c.Images {
		if d.Images == nil {
			d.Images = map[string]cluster.Image{}
		}
		d.Images[name] = cluster.Image{Was: i.Was, Set: i.Set}
	}
	return d.Annotations()
}

// putBack makes what the run has changed and what is not its own what it was.
func (r *liveRun) putBack(ctx context.Context) error {
	owed, err := r.owed(ctx)
	if err != nil {
		return err
	}
	var wrong []error
	for _, o := range owed {
		if o.Debt.Run != r.namespace {
			continue
		}
		if err := r.cluster.PutBack(ctx, o); err != nil {
			wrong = append(wrong, err)
			continue
		}
		r.message("put back " + o.String())
	}
	return errors.Join(wrong...)
}

// lastPutBack puts back what a run that ended too early has not; what cannot be put back is named.
func (r *liveRun) lastPutBack(ctx context.Context) {
	if r.scenario.Touches == nil {
		return
	}
	if err := r.putBack(ctx); err != nil {
		text := err.Error() + "; what the run " + r.namespace + " changed and is not its own may still be changed: `hitless clean` looks again"
		r.notes = append(r.notes, text)
		r.message(text)
	}
}

// cleanDebts puts back what runs have changed and not put back, on nodes and on DaemonSets.
func cleanDebts(ctx context.Context, c *cluster.Cluster, dryRun bool, say func(string)) (found int, err error) {
	var wrong []error
	for _, list := range []func(context.Context) ([]cluster.Owed, error){c.OwedNodes, c.OwedDaemonSets} {
		owed, err := list(ctx)
		wrong = append(wrong, err)
		for _, o := range owed {
			found++
			if dryRun {
				say(o.String())
				continue
			}
			if err := c.PutBack(ctx, o); err != nil {
				wrong = append(wrong, err)
				continue
			}
			say("put back " + o.String())
		}
	}
	return found, errors.Join(wrong...)
}

// proxySelector selects the pods of the cluster's proxy, where the run was told what that is.
func (r *liveRun) proxySelector(ctx context.Context) (namespace, selector string, known bool) {
	namespace, _, given := r.params.ProxySet()
	if !given {
		return "", "", false
	}
	w := &scenarios.World{Cluster: r.cluster.Klient.Resources(), Params: r.params}
	selector, err := w.ProxyLabels(ctx)
	return namespace, selector, err == nil
}
