//go:build netns

// Package contract tests the behaviour of Services from API objects to packets of clients and pods. It tests the
// bundled proxier and the unmodified kube-proxy in two modes: nftables, which validates the cases, and IPVS, whose
// violations the cases must detect. It runs in the lab's kernel: go test -tags lab ./suites/proxier
package contract

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/suites/proxier/testnode"
)

// testCase is a request and its expected outcome.
type testCase struct {
	name         string
	client       string // name of the client host
	target       string // address and port, with prefix udp! or sctp!; or check! and the port of a health check at the node
	want         string // names of exactly the hosts that reply; or refused, dropped, or one for any single pod
	source       string // client address that the hosts see: itself or node; empty if unspecified
	nftables     string // expected outcome of kube-proxy in this mode if it differs
	ipvs         string
	waitForDrain bool // wait for drains first: the bundled proxier keeps an address, and refuses, until they end
}

// proxies are the tested proxies. The expectations for kube-proxy must hold too, or the cases prove nothing.
var proxies = []struct {
	name   string
	start  func(t *testing.T, w *testbed, args ...string)
	want   func(q testCase) string
	within time.Duration // time limit of a change; below the 30 s after which the bundled proxier retries everything
}{
	{"bundled", func(t *testing.T, w *testbed, args ...string) { w.Bundled(t, args...) }, func(q testCase) string { return q.want }, 10 * time.Second},
	{"nftables", kubeProxy("nftables"), func(q testCase) string { return cmp.Or(q.nftables, q.want) }, 5 * time.Minute},
	{"ipvs", kubeProxy("ipvs"), func(q testCase) string { return cmp.Or(q.ipvs, q.want) }, 5 * time.Minute},
}

func kubeProxy(mode string) func(t *testing.T, w *testbed, args ...string) {
	return func(t *testing.T, w *testbed, args ...string) { w.KubeProxy(t, testnode.ToolPath, mode, args...) }
}

const (
	bothFamilies = "--cluster-cidr=10.244.0.0/16,fd00:244::/48"
	primary      = "--nodeport-addresses=primary"
)

// forEachProxy runs a test with each proxy on its own testbed once it serves all Services. want returns the expected
// outcome for that proxy.
func forEachProxy(t *testing.T, flags []string, run func(t *testing.T, w *testbed, want func(testCase) string)) {
	for _, p := range proxies {
		t.Run(p.name, func(t *testing.T) {
			w := newTestbed(t)
			w.within = p.within
			w.apply(t, services()...)
			if got := w.measure("client", "tcp", addrPort("203.0.113.1:80")); got.pods != "dropped" {
				t.Fatalf("before a proxy was started: %+v", got)
			}
			p.start(t, w, append([]string{bothFamilies}, flags...)...)
			w.waitServed(t)
			run(t, w, p.want)
		})
	}
}

func TestContract(t *testing.T) {
	forEachProxy(t, []string{primary}, func(t *testing.T, w *testbed, want func(testCase) string) {
		for _, q := range cases {
			w.check(t, q, want(q))
		}
	})
}

func TestContractWithFlags(t *testing.T) {
	flags := []string{"--masquerade-all", "--nodeport-addresses=" + nodeSecond + "/32"}
	forEachProxy(t, flags, func(t *testing.T, w *testbed, want func(testCase) string) {
		for _, q := range casesWithFlags {
			w.check(t, q, want(q))
		}
	})
}

func TestContractAfterChanges(t *testing.T) {
	forEachProxy(t, []string{primary}, func(t *testing.T, w *testbed, want func(testCase) string) {
		for _, c := range changes {
			c.change(t, w)
			for _, q := range c.cases {
				w.waitFor(t, q, want(q))
				w.check(t, q, want(q))
			}
		}
	})
}

// waitFor waits until a case has its outcome for the first time.
func (w *testbed) waitFor(t *testing.T, q testCase, want string) {
	within := w.within
	if q.waitForDrain {
		within = 5 * time.Minute
	}
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(time.Second) {
		if got := w.measure(q.client, "tcp", addrPort(q.target)); got.pods == want && (q.source == "" || got.source == q.source) {
			return
		}
	}
}

// waitServed waits until the last of the Services is programmed.
func (w *testbed) waitServed(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		got := w.measure("c", "tcp", addrPort("10.96.0.1:80"))
		if got.pods == "a b r" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited a minute for the Services to be served; the last outcome was %+v", got)
		}
	}
}

func addrPort(to string) netip.AddrPort { return netip.MustParseAddrPort(to) }

// check runs a case and checks its outcome.
func (w *testbed) check(t *testing.T, q testCase, want string) {
	t.Helper()
	protocol, to, other := strings.Cut(q.target, "!")
	if !other {
		protocol, to = "tcp", q.target
	}
	var got outcome
	if protocol == "check" {
		var port int
		if _, err := fmt.Sscan(to, &port); err != nil {
			t.Fatal(err)
		}
		got.pods = w.healthCheck(port)
	} else {
		got = w.measure(q.client, protocol, addrPort(to))
	}
	alone := want == "one" && (got.pods == "a" || got.pods == "b" || got.pods == "r")
	if got.pods != want && !alone {
		t.Errorf("%s: from %s to %s: %s, want %s", q.name, q.client, q.target, got.pods, want)
	} else if q.source != "" && want == q.want && got.source != q.source {
		t.Errorf("%s: from %s to %s: seen as %s, want %s", q.name, q.client, q.target, got.source, q.source)
	}
	t.Logf("%s: %+v", q.name, got)
}
