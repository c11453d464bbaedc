//go:build netns

package routing

import (
	"os"
	"testing"
	"time"

	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/topology"
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
		w, err := Open(t.Context(), t.TempDir(), family, topology.Config{})
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

// checksOf runs all checks of a kube-proxy, whose file an environment variable names.
func checksOf(t *testing.T, variable, version, mode string, family Family) collected {
	t.Helper()
	program := os.Getenv(variable)
	if program == "" {
		t.Fatalf("%s names no kube-proxy %s; hack/netns.sh builds it", variable, version)
	}
	checks, begun := collected{}, time.Now()
	c := Config{Dir: t.TempDir(), Family: family, Progress: func(int) {}, Subject: subject.Config{Recorder: checks, Now: func() time.Duration { return time.Since(begun) },
		Programs: []subject.Program{{Spec: subject.Spec{Name: "kube-proxy", Version: version, Mode: mode}, Path: program}}}}
	if err := Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if len(checks) < 60 {
		t.Errorf("%s: %d checks", family, len(checks))
	}
	return checks
}

// kube-proxy in mode nftables keeps all promises in both families.
func TestKubeProxyKeepsAllPromises(t *testing.T) {
	for _, family := range []Family{IPv4, IPv6} {
		for name, check := range checksOf(t, "HITLESS_KUBE_PROXY", "v1.37.1", "nftables", family) {
			if !Holds(check) && check.Got != record.Unsupported {
				t.Errorf("%s, %s: %+v", family, name, check)
			}
		}
	}
}

// The red twin: v1.25.3 uses no terminating endpoints (KEP-1669) and no hints for nodes (KEP-3015), and knows no ipMode (KEP-1860).
func TestAnOldKubeProxyBreaksPromises(t *testing.T) {
	checks := checksOf(t, "HITLESS_OLD_KUBE_PROXY", "v1.25.3", "iptables", IPv4)
	for name, holds := range map[string]bool{"cluster IP": true, "policy Local": true, "affinity": true, "policy Local, health": true, "zone hints": true, "zone hints, load balancer IP": true,
		"no ready endpoint, one terminating and serving": false, "node hints": false, "load balancer with ipMode Proxy (KEP-1860)": false} {
		if check, has := checks[name]; !has || Holds(check) != holds {
			t.Errorf("%s holds: %v; %+v", name, !holds, check)
		}
	}
}
