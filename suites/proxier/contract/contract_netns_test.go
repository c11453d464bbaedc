//go:build netns

// Package contract tests the checks of package routing that are no promises of Services, and so no conformance specs: the effect of flags
// and annotations, and what the bundled proxier does where several outcomes are allowed. kube-proxy validates the checks. It runs in the
// lab's kernel: go test -tags lab ./suites/proxier
package contract

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/routing"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/record"
)

// proxies are the tested proxies.
var proxies = []struct {
	program subject.Program
	want    func(q routing.Case) string
}{
	{bundled, func(q routing.Case) string { return q.Want }},
	{kubeProxy("nftables"), func(q routing.Case) string { return cmp.Or(q.NFTables, q.Want) }},
	{kubeProxy("ipvs"), func(q routing.Case) string { return cmp.Or(q.IPVS, q.Want) }},
}

var bundled = subject.Program{Spec: subject.Bundled, Path: "/usr/bin/hitless", Fallback: "on"}

func kubeProxy(mode string) subject.Program {
	return subject.Program{Spec: subject.Spec{Name: "kube-proxy", Version: "v1.37.1", Mode: mode}, Path: "/usr/bin/kube-proxy", Fallback: "on"}
}

const primary = "--nodeport-addresses=primary"

type discard struct{}

func (discard) Event(record.Event)     {}
func (discard) Attempt(record.Attempt) {}

// forEachProxy runs a test with each proxy on its own testbed once it serves all Services. want returns the expected
// outcome for that proxy.
func forEachProxy(t *testing.T, flags []string, run func(t *testing.T, w *routing.Testbed, want func(routing.Case) string)) {
	for _, p := range proxies {
		t.Run(p.program.Spec.Mode+" "+p.program.Spec.Name, func(t *testing.T) {
			run(t, started(t, p.program, flags), p.want)
		})
	}
}

// started is a testbed whose node's proxy serves all Services.
func started(t *testing.T, p subject.Program, flags []string) *routing.Testbed {
	t.Helper()
	w, err := routing.Open(t.Context(), t.TempDir(), routing.IPv4, topology.Config{})
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
	err = w.Start(t.Context(), subject.Config{Programs: []subject.Program{p}, Flags: flags, Recorder: discard{},
		Now: func() time.Duration { return time.Since(begun) }})
	if err != nil {
		t.Fatal(err)
	}
	check(t, w, routing.Served, routing.Served.Want, time.Minute)
	return w
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

// chosen returns the cases of a kind, of which there must be some.
func chosen(t *testing.T, cases []routing.Case, is func(routing.Case) bool) (some []routing.Case) {
	t.Helper()
	for _, q := range cases {
		if is(q) {
			some = append(some, q)
		}
	}
	if len(some) == 0 {
		t.Fatal("no case is chosen")
	}
	return some
}

// casesWithFlags depend on flags of the proxy, and are no promises.
var casesWithFlags = []routing.Case{
	{Name: "masquerade all", Client: "c", Target: "cluster/1:80", Want: "a b r", Source: "node", Features: []string{"cluster-ip"}},
	{Name: "NodePort at the primary address", Client: "client", Target: "node:30001", Want: "refused", Features: []string{"node-port"}},
	{Name: "NodePort at the address of the flag", Client: "client", Target: "node2:30001", Want: "a b r", Source: "node", Features: []string{"node-port"}},
}

func TestFlagsAndAnnotations(t *testing.T) {
	forEachProxy(t, []string{primary}, func(t *testing.T, w *routing.Testbed, want func(routing.Case) string) {
		for _, q := range chosen(t, routing.Cases, func(q routing.Case) bool { return q.Own }) {
			check(t, w, q, want(q), 0)
		}
	})
	flags := []string{"--masquerade-all", "--nodeport-addresses=198.51.100.1/32"}
	forEachProxy(t, flags, func(t *testing.T, w *routing.Testbed, want func(routing.Case) string) {
		for _, q := range chosen(t, casesWithFlags, func(routing.Case) bool { return true }) {
			check(t, w, q, want(q), 0)
		}
	})
}

// Where a promise allows several outcomes, the bundled proxier has the one that docs/proxier.md states.
func TestBundledProxierIsStricterThanThePromise(t *testing.T) {
	w := started(t, bundled, nil)
	for _, q := range chosen(t, routing.Cases, func(q routing.Case) bool { return q.Want != q.Promise() && !q.Own }) {
		check(t, w, q, q.Want, 0)
	}
}
