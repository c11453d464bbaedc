package scenarios

import "context"

// Access is a verb that a scenario needs on a live cluster besides those of every run, as RBAC has it.
type Access struct {
	Verb, Group, Resource, Subresource string
	Scope                              Scope
}

// Scope is the part of a live cluster in which a verb is needed.
type Scope string

// The parts of a cluster.
const (
	InRun    Scope = ""      // the run's own namespace
	InProxy  Scope = "proxy" // the namespace of the cluster's proxy
	Anywhere Scope = "all"   // all namespaces, or none
)

// Change is what a scenario has done to an object that belongs to the cluster and not to the run.
type Change struct {
	Cordoned bool
	Taint    string                 // key of the taint that was added
	Images   map[string]ImageChange // by container
}

// ImageChange is the image of a container before and after a change.
type ImageChange struct{ Was, Set string }

// mark adds to the metadata of a patch the annotations by which the change can be undone without knowledge of the run.
func (w *World) mark(patch map[string]any, c Change) {
	if m, err := part[Marks](w.Site, MarkedChanges); err == nil {
		patch["metadata"] = map[string]any{"annotations": m.Mark(c)}
	}
}

// putBack undoes the changes of what belongs to the cluster.
func (w *World) putBack(ctx context.Context, name, node string) error {
	m, err := part[Marks](w.Site, MarkedChanges)
	if err != nil {
		return err
	}
	return w.Step(ctx, name, node, m.PutBack)
}
