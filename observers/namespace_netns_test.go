//go:build netns

package observers

import (
	"runtime"
	"testing"

	"github.com/vishvananda/netns"
)

// testNamespace is a network namespace of a test.
type testNamespace struct{ handle netns.NsHandle }

func newNamespace(t *testing.T) testNamespace {
	t.Helper()
	type result struct {
		handle netns.NsHandle
		err    error
	}
	made := make(chan result)
	go func() {
		runtime.LockOSThread() // without an unlock: the thread ends with the goroutine
		handle, err := netns.New()
		made <- result{handle, err}
	}()
	r := <-made
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(func() { _ = r.handle.Close() })
	return testNamespace{r.handle}
}

func (ns testNamespace) Do(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // without an unlock: the thread ends with the goroutine
		err := netns.Set(ns.handle)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

func (testNamespace) Generation() int { return 0 }
