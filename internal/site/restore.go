package site

import (
	"context"
	"errors"

	"github.com/hitless/hitless/cluster"
	"github.com/hitless/hitless/scenarios"
)

// touches reports which objects of the cluster the run will change, and refuses that unless the user has allowed it. Objects that
// another run has changed and not restored are refused, since this run would restore them to that run's state.
func (r *Cluster) touches(ctx context.Context) error {
	if r.scenario.Touches == nil {
		return nil
	}
	lines, err := r.scenario.Touches(ctx, &scenarios.World{Cluster: r.cluster.Klient.Resources(), Params: r.params, Nodes: r.nodeNames()})
	if err != nil {
		return UsageError{cluster.Explain(err)}
	}
	changed, err := r.changed(ctx)
	if err != nil {
		return UsageError{Reason: err}
	}
	if len(changed) > 0 {
		return Usagef("%s was not put back; `hitless clean` does that, and ends the run if it is still under way", changed[0])
	}
	r.message("it changes objects that are not its own:")
	for _, line := range lines {
		r.message("  " + line)
	}
	if !r.live.AllowDisruption && !r.live.DryRun {
		return Usagef("scenario %s changes objects that are not its own, which are listed above: give --allow-disruption to permit that, or --dry-run to list them only", r.Scenario)
	}
	return nil
}

func (r *Cluster) nodeNames() (names []string) {
	for _, n := range r.facts.Nodes {
		names = append(names, n.Name)
	}
	return names
}

// changed are the objects that the scenario may change and that some run has not restored.
func (r *Cluster) changed(ctx context.Context) ([]cluster.Changed, error) {
	if namespace, name, is := r.params.ProxySet(); is {
		return r.cluster.ChangedDaemonSet(ctx, namespace, name)
	}
	return r.cluster.ChangedNodes(ctx)
}

// mark returns the annotations for a change of an object that is not the run's own.
func (r *Cluster) mark(c scenarios.Change) map[string]string {
	d := cluster.Restore{Run: r.namespace, Uncordon: c.Cordoned, Untaint: c.Taint}
	for name, i := range c.Images {
		if d.Images == nil {
			d.Images = map[string]cluster.Image{}
		}
		d.Images[name] = cluster.Image{Was: i.Was, Set: i.Set}
	}
	return d.Annotations()
}

// putBack restores the objects that the run has changed and that are not its own.
func (r *Cluster) putBack(ctx context.Context) error {
	changed, err := r.changed(ctx)
	if err != nil {
		return err
	}
	var wrong []error
	for _, o := range changed {
		if o.Restore.Run != r.namespace {
			continue
		}
		if err := r.cluster.Restore(ctx, o); err != nil {
			wrong = append(wrong, err)
			continue
		}
		r.message("put back " + o.String())
	}
	return errors.Join(wrong...)
}

// lastPutBack restores what a run that ended early has left, and notes what cannot be restored.
func (r *Cluster) lastPutBack(ctx context.Context) {
	if r.scenario.Touches == nil {
		return
	}
	if err := r.putBack(ctx); err != nil {
		text := err.Error() + "; changes of the run " + r.namespace + " to objects that are not its own may remain: `hitless clean` tries again"
		r.notes = append(r.notes, text)
		r.message(text)
	}
}

// restoreAll restores the nodes and DaemonSets that runs have changed and not restored.
func restoreAll(ctx context.Context, c *cluster.Cluster, dryRun bool, report func(string)) (found int, err error) {
	var wrong []error
	for _, list := range []func(context.Context) ([]cluster.Changed, error){c.ChangedNodes, c.ChangedDaemonSets} {
		changed, err := list(ctx)
		wrong = append(wrong, err)
		for _, o := range changed {
			found++
			if dryRun {
				report(o.String())
				continue
			}
			if err := c.Restore(ctx, o); err != nil {
				wrong = append(wrong, err)
				continue
			}
			report("put back " + o.String())
		}
	}
	return found, errors.Join(wrong...)
}

// proxySelector selects the pods of the cluster's proxy, if the parameters name its DaemonSet.
func (r *Cluster) proxySelector(ctx context.Context) (namespace, selector string, known bool, err error) {
	namespace, _, given := r.params.ProxySet()
	if !given {
		return "", "", false, nil
	}
	w := &scenarios.World{Cluster: r.cluster.Klient.Resources(), Params: r.params}
	selector, err = w.ProxyLabels(ctx)
	return namespace, selector, err == nil, err
}
