package engine

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/proxier/kernel"
)

// The first virtual server of an emptied table may be back because its Service has changed. A look at each of the others shows the damage.
func TestLooksFindAnEmptiedTable(t *testing.T) {
	f, k, e := newFleet(3)
	if _, err := e.Full(context.Background()); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if key, missing, err := e.Look(); missing || err != nil {
			t.Fatalf("%v is missing in a complete table: %v", key, err)
		}
	}
	for _, key := range k.State().Keys() {
		if err := k.Apply(kernel.DeleteVirtual{Key: key}); err != nil {
			t.Fatal(err)
		}
	}
	first := e.state.Keys()[0]
	e.unverified.keys[first] = true
	f.podRemoved = true
	if _, err := e.Sync(context.Background(), []types.NamespacedName{f.name(0)}); err != nil {
		t.Fatal(err)
	}
	looks, found := 0, false
	for ; looks < 2 && !found; looks++ {
		_, missing, err := e.Look()
		if found = missing; err != nil {
			t.Fatal(err)
		}
	}
	if !found {
		t.Errorf("%d looks found nothing missing; the kernel has %v", looks, k.State().Keys())
	}
}

// A virtual server whose operation failed, and a kernel that cannot be read, are no sign of another program.
func TestLooksBlameNobodyForFailures(t *testing.T) {
	_, k, e := newFleet(1)
	if _, err := e.Full(context.Background()); err != nil {
		t.Fatal(err)
	}
	key := e.state.Keys()[0]
	e.kernel = &failingReads{Kernel: k, keys: map[kernel.Key]bool{key: true}}
	if _, missing, err := e.Look(); missing || err == nil {
		t.Errorf("an unreadable kernel: missing %v, error %v", missing, err)
	}
	e.kernel = k
	if err := k.Apply(kernel.DeleteVirtual{Key: key}); err != nil {
		t.Fatal(err)
	}
	e.unverified.keys[key] = true
	if _, missing, err := e.Look(); missing || err != nil {
		t.Errorf("after a failed operation: missing %v, error %v", missing, errors.Unwrap(err))
	}
	delete(e.unverified.keys, key)
	if _, missing, _ := e.Look(); !missing {
		t.Error("nothing is missing although another program has deleted it")
	}
}
