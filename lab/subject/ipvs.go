//go:build linux

package subject

import (
	"context"
	"errors"
	"fmt"

	"github.com/moby/ipvs"

	"github.com/hitless/hitless/lab/topology"
)

// ipvsTable is the content of a node's IPVS table.
type ipvsTable struct {
	services     []*ipvs.Service
	destinations [][]*ipvs.Destination
}

// flushIPVS empties the IPVS table of a node and returns its content. An empty table is an error: either it has no entries, or the
// kernel has no IPVS, where moby/ipvs returns no error (issue 27).
func flushIPVS(_ context.Context, node *topology.Node) (tables, string, error) {
	t := &ipvsTable{}
	err := node.Do(func() error {
		handle, err := ipvs.New("")
		if err != nil {
			return fmt.Errorf("opening the IPVS table: %w", err)
		}
		defer handle.Close()
		if t.services, err = handle.GetServices(); err != nil {
			return fmt.Errorf("reading the IPVS table: %w", err)
		}
		if len(t.services) == 0 {
			return errors.New("the IPVS table has no virtual server: there is nothing to empty")
		}
		for _, s := range t.services {
			destinations, err := handle.GetDestinations(s)
			if err != nil {
				return fmt.Errorf("reading the IPVS table: %w", err)
			}
			t.destinations = append(t.destinations, destinations)
		}
		return handle.Flush()
	})
	return t, "the IPVS table", err
}

func (t *ipvsTable) restore(node *topology.Node) error {
	return node.Do(func() error {
		handle, err := ipvs.New("")
		if err != nil {
			return fmt.Errorf("opening the IPVS table: %w", err)
		}
		defer handle.Close()
		for i, s := range t.services {
			if err := handle.NewService(s); err != nil {
				return fmt.Errorf("restoring the virtual server %s:%d: %w", s.Address, s.Port, err)
			}
			for _, d := range t.destinations[i] {
				if err := handle.NewDestination(s, d); err != nil {
					return fmt.Errorf("restoring the real server %s:%d: %w", d.Address, d.Port, err)
				}
			}
		}
		return nil
	})
}
