package subject

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/moby/ipvs"

	"github.com/hitless/hitless/lab/topology"
)

// Flush empties the IPVS table of a node without the proxy's knowledge. The returned function restores the entries. The error for
// a subject in another mode is permanent.
func (f *Fleet) Flush(_ context.Context, name string) (restore func() error, err error) {
	node, err := f.cfg.Net.Node(name)
	if err != nil {
		return nil, err
	}
	if f.spec(name).Mode != "ipvs" {
		return nil, errors.New("emptying the tables is supported for subjects in ipvs mode only")
	}
	t, err := flushIPVS(node)
	if err != nil {
		return nil, err
	}
	f.record(name, "flushed", "the IPVS table of "+name+" was emptied ("+strconv.Itoa(len(t.services))+" services)")
	return func() error {
		f.record(name, "restored", "the IPVS table of "+name+" was put back")
		return t.restore(node)
	}, nil
}

// ipvsTable is the content of a node's IPVS table.
type ipvsTable struct {
	services     []*ipvs.Service
	destinations [][]*ipvs.Destination
}

// flushIPVS empties the IPVS table of a node and returns its content. An empty table is an error: either it has no entries, or the
// kernel has no IPVS, where moby/ipvs returns no error (issue 27).
func flushIPVS(node *topology.Node) (*ipvsTable, error) {
	t := &ipvsTable{}
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
