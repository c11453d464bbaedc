package subject

import (
	"errors"
	"fmt"

	"github.com/moby/ipvs"

	"github.com/hitless/hitless/lab/topology"
)

// table is the content of a node's IPVS table.
type table struct {
	services     []*ipvs.Service
	destinations [][]*ipvs.Destination
}

// takeTable reads the IPVS table of a node and empties it. An empty table is an error: there is nothing to take, or the
// kernel has no IPVS and says yes to everything (moby/ipvs issue 27).
func takeTable(node *topology.Node) (*table, error) {
	t := &table{}
	return t, node.Do(func() error {
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
}

func (t *table) restore(node *topology.Node) error {
	return node.Do(func() error {
		handle, err := ipvs.New("")
		if err != nil {
			return fmt.Errorf("opening the IPVS table: %w", err)
		}
		defer handle.Close()
		for i, s := range t.services {
			if err := handle.NewService(s); err != nil {
				return fmt.Errorf("putting back the virtual server %s:%d: %w", s.Address, s.Port, err)
			}
			for _, d := range t.destinations[i] {
				if err := handle.NewDestination(s, d); err != nil {
					return fmt.Errorf("putting back the real server %s:%d: %w", d.Address, d.Port, err)
				}
			}
		}
		return nil
	})
}
