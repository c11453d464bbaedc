//go:build netns

// Package contract tests the checks of package routing. The bundled proxier and the unmodified kube-proxy must behave as each case says:
// nftables, which validates the cases, and IPVS, whose violations the cases must detect. It runs in the lab's kernel:
// go test -tags lab ./suites/proxier
package contract

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/routing"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/record"
)

// proxies are the tested proxies. The expectations for kube-proxy must hold too, or the cases prove nothing.
var proxies = []struct {
	program subject.Program
	want    func(q routing.Case) string
	within  time.Duration // time limit of a change; below the 30 s after which the bundled proxier retries everything
}{
	{subject.Program{Spec: subject.Bundled, Path: "/usr/bin/hitless", Fallback: "on"}, func(q routing.Case) string { return q.Want }, 10 * time.Second},
	{kubeProxy("nftables"), func(q routing.Case) string { return cmp.Or(q.NFTables, q.Want) }, 5 * time.Minute},
	{kubeProxy("ipvs"), func(q routing.Case) string { return cmp.Or(q.IPVS, q.Want) }, 5 * time.Minute},
}

func kubeProxy(mode string) subject.Program {
	return subject.Program{Spec: subject.Spec{Name: "kube-proxy", Version: "v1.37.1", Mode: mode}, Path: "/usr/bin/kube-proxy", Fallback: "on"}
}

const primary = "--nodeport-addresses=primary"

type discard struct{}

func (discard) Event(record.Event)     {}
func (discard) Attempt(record.Attempt) {}

// forEachProxy runs a test with each proxy on its own testbed once it serves all Services. want returns the expected
// outcome for that proxy.
func forEachProxy(t *testing.T, flags []string, run func(t *testing.T, w *routing.Testbed, want func(routing.Case) string, within time.Duration)) {
	for _, p := range proxies {
		t.Run(p.program.Spec.Mode+" "+p.program.Spec.Name, func(t *testing.T) {
			w, err := routing.Open(t.Context(), t.TempDir(), routing.IPv4)
			t.Cleanup(func() {
				if err := w.Close(); err != nil {
					t.Error(err)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			check(t, w, routing.Before, "dropped", 0)
			begun := time.Now()
			err = w.Start(t.Context(), subject.Config{Programs: []subject.Program{p.program}, Flags: flags, Recorder: discard{},
				Now: func() time.Duration { return time.Since(begun) }})
			if err != nil {
				t.Fatal(err)
			}
			check(t, w, routing.Served, routing.Served.Want, time.Minute)
			run(t, w, p.want, p.within)
		})
	}
}

// check runs a case until it holds or its time is over.
func check(t *testing.T, w *routing.Testbed, q routing.Case, want string, within time.Duration) {
	t.Helper()
	if want != q.Want {
		q.Source = ""
	}
	got, err := w.WaitFor(context.WithoutCancel(t.Context()), q, want, within)
	if err != nil {
		t.Fatal(err)
	}
	if !routing.Holds(got) {
		t.Errorf("%s: from %s to %s: %s, seen as %q; want %s, seen as %q", q.Name, q.Client, got.Target, got.Got, got.Seen, want, got.Source)
	}
	t.Logf("%s: %+v", q.Name, got)
}

func TestContract(t *testing.T) {
	forEachProxy(t, []string{primary}, func(t *testing.T, w *routing.Testbed, want func(routing.Case) string, _ time.Duration) {
		for _, q := range routing.Cases {
			check(t, w, q, want(q), 0)
		}
	})
}

func TestContractWithFlags(t *testing.T) {
	flags := []string{"--masquerade-all", "--nodeport-addresses=198.51.100.1/32"}
	forEachProxy(t, flags, func(t *testing.T, w *routing.Testbed, want func(routing.Case) string, _ time.Duration) {
		for _, q := range routing.CasesWithFlags {
			check(t, w, q, want(q), 0)
		}
	})
}

func TestContractAfterChanges(t *testing.T) {
	forEachProxy(t, []string{primary}, func(t *testing.T, w *routing.Testbed, want func(routing.Case) string, within time.Duration) {
		for _, c := range routing.Changes {
			if err := c.Apply(w); err != nil {
				t.Fatal(err)
			}
			for _, q := range c.Cases {
				if q.WaitForDrain {
					within = 5 * time.Minute
				}
				check(t, w, q, want(q), within)
			}
		}
	})
}
