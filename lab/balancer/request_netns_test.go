//go:build netns

package balancer

import (
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hitless/hitless/record"
)

// As a cloud does, the load balancer gives all flows of a client the node that the record computes, if the Service asks for affinity. Its twin
// without AsCloud spreads the same flows.
func TestAffinityToOneNode(t *testing.T) {
	affine := func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }
	for _, asCloud := range []bool{true, false} {
		g := newTestLab(t, Config{AsCloud: asCloud}, lb("web", affine))
		g.awaitNodes("80", everyNode)
		for client := range 6 {
			first, seen := source(client), map[string]bool{}
			want := []string{"node-1", "node-2", "node-3"}[record.PickNode(netip.AddrPortFrom(first.Addr(), 0), netip.AddrPortFrom(vip, 0), 0xc0ffee, 3)]
			for i := range uint16(20) {
				got, err := g.ask(netip.AddrPortFrom(first.Addr(), 4000+i), 80)
				g.must(err)
				if seen[got] = true; asCloud && got != want {
					t.Errorf("a flow of %s went to %s, want %s", first.Addr(), got, want)
				}
			}
			if !asCloud && len(seen) == 1 {
				t.Errorf("without AsCloud all flows of %s went to %v", first.Addr(), seen)
			}
		}
	}
}

// New flows of clients outside of the ranges are dropped, open ones go on. Without AsCloud all are forwarded.
func TestSourceRanges(t *testing.T) {
	inside, outside := netip.MustParseAddrPort("10.200.1.1:4000"), netip.MustParseAddrPort("10.200.2.1:4000")
	for _, asCloud := range []bool{true, false} {
		g := newTestLab(t, Config{AsCloud: asCloud}, lb("web"))
		g.awaitNodes("80", everyNode)
		open, err := g.open("tcp4", outside, 80, patience)
		g.must(err)
		defer open.Close()
		g.patchService(lb("web", func(s *corev1.Service) {
			s.Spec.LoadBalancerSourceRanges = []string{"10.200.1.0/24", "192.0.2.0/24"}
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: 443, NodePort: 30443, Protocol: "TCP"})
		}))
		g.awaitNodes("443", everyNode) // in one transaction with the ranges
		if _, err := g.ask(inside, 80); err != nil {
			t.Errorf("a client inside the ranges got %v", err)
		}
		if _, err := open.name(); err != nil {
			t.Errorf("an open flow got %v", err)
		}
		deadline := patience
		if asCloud { // its packets are dropped
			deadline = time.Second
		}
		if _, err := g.askWithin(netip.AddrPortFrom(outside.Addr(), 4001), 80, deadline); asCloud != isTimeout(err) || !asCloud && err != nil {
			t.Errorf("AsCloud %v: a client outside the ranges got %v", asCloud, err)
		}
	}
}
