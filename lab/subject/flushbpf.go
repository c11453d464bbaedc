//go:build linux

package subject

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cilium/ebpf"

	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/observers"
)

// mapEntry is a key of a BPF map with its value.
type mapEntry struct{ key, value []byte }

// mapEntries is the content of a map that is pinned in the BPF file system of a node.
type mapEntries struct {
	file    string
	entries []mapEntry
}

// flushServiceMap empties Cilium's map of Services on a node and returns its content. Backends and connections stay in their maps.
func flushServiceMap(_ context.Context, node *topology.Node) (tables, string, error) {
	t := &mapEntries{file: observers.CiliumServices}
	err := t.with(node, t.empty)
	return t, "Cilium's map of Services", err
}

// with opens the map on the node.
func (t *mapEntries) with(node *topology.Node, do func(*ebpf.Map) error) error {
	return node.Inside(func() error {
		m, err := ebpf.LoadPinnedMap(t.file, nil)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the node has no BPF map %s: there is nothing to empty", t.file)
		}
		if err != nil {
			return fmt.Errorf("opening the BPF map %s: %w", t.file, err)
		}
		defer m.Close()
		return do(m)
	})
}

func (t *mapEntries) empty(m *ebpf.Map) error {
	var key, value []byte
	entries := m.Iterate()
	for entries.Next(&key, &value) {
		t.entries = append(t.entries, mapEntry{key, value})
		key, value = nil, nil
	}
	if err := entries.Err(); err != nil {
		return fmt.Errorf("reading the BPF map %s: %w", t.file, err)
	}
	if len(t.entries) == 0 {
		return fmt.Errorf("the BPF map %s has no entry: there is nothing to empty", t.file)
	}
	for _, e := range t.entries {
		if err := m.Delete(e.key); err != nil {
			return fmt.Errorf("deleting from the BPF map %s: %w", t.file, err)
		}
	}
	return nil
}

func (t *mapEntries) restore(node *topology.Node) error {
	return t.with(node, func(m *ebpf.Map) error {
		for _, e := range t.entries {
			if err := m.Put(e.key, e.value); err != nil {
				return fmt.Errorf("restoring the BPF map %s: %w", t.file, err)
			}
		}
		return nil
	})
}
