//go:build netns

package observers

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// vanishing is a namespace that is gone once f has run in it.
type vanishing struct{ Namespace }

func (v vanishing) Do(f func() error) error {
	return errors.Join(v.Namespace.Do(f), errors.New("the namespace is gone"))
}

// Tables that cannot all be opened leave no socket open.
func TestTablesThatCannotBeOpenedAreClosed(t *testing.T) {
	sockets := func() map[string]bool {
		t.Helper()
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		open := map[string]bool{}
		for _, fd := range fds {
			if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(to, "socket:") {
				open[to] = true
			}
		}
		return open
	}
	good, bad := newNamespace(t), vanishing{newNamespace(t)}
	for name, kinds := range map[string]TableKinds{"IPVS": {IPVS: true}, "nftables": {NFTables: true}, "both": {IPVS: true, NFTables: true}} {
		before := sockets()
		tables, err := NewTables([]Node{{Name: "node-1", Namespace: good}, {Name: "node-2", Namespace: bad}}, kinds, nil, func() time.Duration { return 0 })
		if tables != nil || err == nil {
			t.Errorf("%s: %v, %v; want only an error", name, tables, err)
		}
		// A socket of an earlier test may be closed meanwhile, by its finalizer.
		for socket := range sockets() {
			if !before[socket] {
				t.Errorf("%s: %s is still open", name, socket)
			}
		}
	}
}
