//go:build netns

package routing

import (
	"os"
	"testing"
	"time"

	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/record"
)

// collected has the checks of a run by name.
type collected map[string]record.Check

func (c collected) Event(e record.Event) {
	if check, is := e.Body.(record.Check); is {
		c[e.Object] = check
	}
}

func (collected) Attempt(record.Attempt) {}

// Without a proxy no virtual address answers, and the program of the node does: so the testbed itself works, and answers prove a proxy.
func TestWithoutAProxyNothingIsServed(t *testing.T) {
	for _, family := range []Family{IPv4, IPv6} {
		w, err := Open(t.Context(), t.TempDir(), family)
		t.Cleanup(func() {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range []Case{Before, {Client: "client", Target: "node:2222", Want: "host"}, {Client: "client", Target: "node:30001", Want: "refused"}} {
			if got, err := w.Check(q, q.Want); err != nil || !Holds(got) {
				t.Errorf("%s: %+v %v", family, got, err)
			}
		}
		if got, err := w.Check(Served, Served.Want); err != nil || Holds(got) {
			t.Errorf("%s: without a proxy %+v %v", family, got, err)
		}
	}
}

// kube-proxy in mode nftables keeps all promises in both families.
func TestKubeProxyKeepsAllPromises(t *testing.T) {
	program := os.Getenv("HITLESS_KUBE_PROXY")
	if program == "" {
		t.Skip("HITLESS_KUBE_PROXY names no kube-proxy v1.37.1")
	}
	for _, family := range []Family{IPv4, IPv6} {
		checks, begun := collected{}, time.Now()
		c := Config{Dir: t.TempDir(), Family: family, Progress: func(int) {}, Subject: subject.Config{Recorder: checks, Now: func() time.Duration { return time.Since(begun) },
			Programs: []subject.Program{{Spec: subject.Spec{Name: "kube-proxy", Version: "v1.37.1", Mode: "nftables"}, Path: program, Fallback: "on"}}}}
		if err := Run(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if len(checks) < 60 {
			t.Errorf("%s: %d checks", family, len(checks))
		}
		for name, check := range checks {
			if !Holds(check) && check.Got != record.Unsupported {
				t.Errorf("%s, %s: %+v", family, name, check)
			}
		}
	}
}
