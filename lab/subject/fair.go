package subject

import "fmt"

// Fair says which proxy's log shows a sync that failed half-way, and quotes the line; nil when none does. A scenario asks
// once its Services are programmed: a proxy that has no Service yet has nothing to fail with, and what its node lacks
// looks later like the bug that one searches for.
func (f *Fleet) Fair() error {
	for _, node := range f.cfg.Net.Nodes {
		if line := f.syncError(node.Name); line != "" {
			return fmt.Errorf("%s on %s is not a fair subject: its sync failed: %s", f.spec(node.Name), node.Name, line)
		}
	}
	return nil
}
