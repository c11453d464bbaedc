//go:build linux

package subject

import (
	"sync"
	"testing"

	"github.com/hitless/hitless/lab/procs"
)

// The goroutine that stops a run looks at the proxies while the scenario changes them.
func TestFleetIsSafeForConcurrentUse(t *testing.T) {
	programs := []Program{{Spec: Spec{Name: "old"}}, {Spec: Spec{Name: "new"}}}
	f := &Fleet{cfg: Config{Programs: programs}, runs: map[string]Program{"node-1": programs[0]}, live: map[string]*procs.Process{}}
	var all sync.WaitGroup
	all.Go(func() {
		for i := range 100_000 {
			if err := f.Change("node-1", programs[i%2].Spec.String()); err != nil {
				t.Error(err)
				return
			}
		}
	})
	all.Go(func() {
		for range 100_000 {
			if name := f.Subject("node-1"); name != programs[0].Spec.String() && name != programs[1].Spec.String() {
				t.Errorf("the subject is %q", name)
				return
			}
		}
	})
	all.Wait()
}
