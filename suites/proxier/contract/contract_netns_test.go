//go:build netns

// Package contract asks what a Service promises: API objects go in on one side, and packets come from clients and pods on the other. It
// asks the bundled proxier, and the unmodified kube-proxy in two modes: nftables, which says whether the questions are right, and
// IPVS, whose breaks of the contract they have to find. It runs in the lab's kernel: go test -tags lab ./suites/proxier
package contract

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/suites/proxier/stage"
)

// question is who asks whom, and what has to come of it.
type question struct {
	about    string
	from     string // a host
	to       string // address and port; udp! or sctp! before them, or check! for the health check at a port of the node
	want     string // who answers, all of them and nobody else; or refused, or dropped; or one, for any one alone
	seen     string // as whom they see who asks: itself, or node; empty where it is not promised
	nftables string // what kube-proxy does in that mode, where it is something else
	ipvs     string
	drains   bool // what came before has to be forgotten first: the bundled proxier keeps an address until then, and refuses
}

// proxies are what is asked. What stands in the table for kube-proxy must be so, too: or it says nothing.
var proxies = []struct {
	name   string
	start  func(t *testing.T, w *world, args ...string)
	want   func(q question) string
	within time.Duration // a change has to be followed; less than the 30 s after which the bundled proxier does all again
}{
	{"bundled", func(t *testing.T, w *world, args ...string) { w.Bundled(t, args...) }, func(q question) string { return q.want }, 10 * time.Second},
	{"nftables", kubeProxy("nftables"), func(q question) string { return cmp.Or(q.nftables, q.want) }, 5 * time.Minute},
	{"ipvs", kubeProxy("ipvs"), func(q question) string { return cmp.Or(q.ipvs, q.want) }, 5 * time.Minute},
}

func kubeProxy(mode string) func(t *testing.T, w *world, args ...string) {
	return func(t *testing.T, w *world, args ...string) { w.KubeProxy(t, stage.Path, mode, args...) }
}

const (
	bothFamilies = "--cluster-cidr=10.244.0.0/16,fd00:244::/48"
	primary      = "--nodeport-addresses=primary"
)

// ofEach lets a test ask each proxy, started with flags in a world of its own, once it serves all Services. Want is what has to come of a
// question to that proxy.
func ofEach(t *testing.T, flags []string, ask func(t *testing.T, w *world, want func(question) string)) {
	for _, p := range proxies {
		t.Run(p.name, func(t *testing.T) {
			w := newWorld(t)
			w.within = p.within
			w.apply(t, services()...)
			if got := w.ask("client", "tcp", at("203.0.113.1:80")); got.pods != "dropped" {
				t.Fatalf("before a proxy came: %+v", got)
			}
			p.start(t, w, append([]string{bothFamilies}, flags...)...)
			w.served(t)
			ask(t, w, p.want)
		})
	}
}

func TestContract(t *testing.T) {
	ofEach(t, []string{primary}, func(t *testing.T, w *world, want func(question) string) {
		for _, q := range questions {
			w.put(t, q, want(q))
		}
	})
}

func TestContractWithFlags(t *testing.T) {
	flags := []string{"--masquerade-all", "--nodeport-addresses=" + nodeSecond + "/32"}
	ofEach(t, flags, func(t *testing.T, w *world, want func(question) string) {
		for _, q := range withFlags {
			w.put(t, q, want(q))
		}
	})
}

func TestContractAfterChanges(t *testing.T) {
	ofEach(t, []string{primary}, func(t *testing.T, w *world, want func(question) string) {
		for _, c := range changes {
			c.change(t, w)
			for _, q := range c.questions {
				w.await(t, q, want(q))
				w.put(t, q, want(q))
			}
		}
	})
}

// await waits until a question has its answer for the first time: a proxy may take its time. Put then says what it is.
func (w *world) await(t *testing.T, q question, want string) {
	within := w.within
	if q.drains {
		within = 5 * time.Minute
	}
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(time.Second) {
		if got := w.ask(q.from, "tcp", at(q.to)); got.pods == want && (q.seen == "" || got.seen == q.seen) {
			return
		}
	}
}

// served waits until the last of the Services is in the kernel.
func (w *world) served(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		got := w.ask("c", "tcp", at("10.96.0.1:80"))
		if got.pods == "a b r" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited a minute for the Services to be served; the last answer was %+v", got)
		}
	}
}

func at(to string) netip.AddrPort { return netip.MustParseAddrPort(to) }

// put asks a question, and checks what comes of it.
func (w *world) put(t *testing.T, q question, want string) {
	t.Helper()
	protocol, to, other := strings.Cut(q.to, "!")
	if !other {
		protocol, to = "tcp", q.to
	}
	var got outcome
	if protocol == "check" {
		var port int
		if _, err := fmt.Sscan(to, &port); err != nil {
			t.Fatal(err)
		}
		got.pods = w.check(port)
	} else {
		got = w.ask(q.from, protocol, at(to))
	}
	alone := want == "one" && (got.pods == "a" || got.pods == "b" || got.pods == "r")
	if got.pods != want && !alone {
		t.Errorf("%s: %s asked %s: %s, want %s", q.about, q.from, q.to, got.pods, want)
	} else if q.seen != "" && want == q.want && got.seen != q.seen {
		t.Errorf("%s: %s asked %s, and was seen as %s, want %s", q.about, q.from, q.to, got.seen, q.seen)
	}
	t.Logf("%s: %+v", q.about, got)
}
