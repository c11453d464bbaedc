package scenarios

import "context"

// Need is a verb that a scenario needs on a live cluster besides those of every run, as RBAC has it.
type Need struct {
	Verb, Group, Resource, Subresource string
	Where                              Where
}

// Where is the part of a live cluster in which a verb is needed.
type Where string

// The parts of a cluster.
const (
	InRun    Where = ""      // the run's own namespace
	InProxy  Where = "proxy" // the namespace of the cluster's proxy
	Anywhere Where = "all"   // all namespaces, or none
)

// Change is what a scenario has done to an object that belongs to the cluster and not to the run.
type Change struct {
	Cordoned bool
	Taint    string                 // key of the taint that was added
	Images   map[string]ImageChange // by container
}

// ImageChange is what a container's image was, and what it became.
type ImageChange struct{ Was, Set string }

// OnCluster is the scenario as it is done to a live cluster; false when it cannot be done there.
func (s Scenario) OnCluster() (Scenario, bool) {
	if s.Live != nil {
		return *s.Live, true
	}
	return s, s.ByAPI
}

// mark adds to the metadata of a patch what lets the change be put back by someone who knows nothing of the run.
func (w *World) mark(patch map[string]any, c Change) {
	if w.Mark != nil {
		patch["metadata"] = map[string]any{"annotations": w.Mark(c)}
	}
}

// putBack makes what belongs to the cluster what it was.
func (w *World) putBack(ctx context.Context, name, node string) error {
	return w.Step(ctx, name, node, w.PutBack)
}
