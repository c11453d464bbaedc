package balancer

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables/expr"
	"github.com/hitless/hitless/record"
	corev1 "k8s.io/api/core/v1"
)

// requests are what a Service asks of the load balancers of clouds besides forwarding.
type requests struct {
	byClient   bool           // all flows of a client go to one node: sessionAffinity ClientIP
	restricted bool           // only new flows of clients are forwarded: loadBalancerSourceRanges
	clients    []netip.Prefix // of the table's family
}

// requestsOf reads the requests of a Service for a family. A restricted Service without a range of the family has no clients there.
func requestsOf(svc *corev1.Service, f record.Family) (r requests) {
	r.byClient = svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP
	for _, text := range svc.Spec.LoadBalancerSourceRanges {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			continue // the API server has checked it
		}
		if r.restricted = true; record.FamilyOf(p.Addr()) == f {
			r.clients = append(r.clients, p.Masked())
		}
	}
	return r
}

func (r requests) equal(o requests) bool {
	return r.byClient == o.byClient && r.restricted == o.restricted && slices.Equal(r.clients, o.clients)
}

// admitted marks the packets of admitted clients while they look for a node: above the number of any node, and no place.
const admitted = firstPlace - 1

// admission are the rules that drop packets of other clients, at most one rule for each range and one more.
func (r requests) admission(h header) (rules [][]expr.Any) {
	if !r.restricted {
		return nil
	}
	for _, p := range r.clients {
		rules = append(rules, append(h.within(h.source, p), &expr.Immediate{Register: regA, Data: mark(admitted)},
			&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: regA}))
	}
	return append(rules, []expr.Any{&expr.Meta{Key: expr.MetaKeyMARK, Register: regA}, differs(mark(admitted)...), verdictOf(expr.VerdictDrop)})
}

// portsKey writes the ports of a packet into the registers of the hash's key; zero if the client's address alone decides.
func (r requests) portsKey(register uint32) []expr.Any {
	if r.byClient {
		return []expr.Any{&expr.Immediate{Register: register, Data: mark(0)}, &expr.Immediate{Register: register + 1, Data: mark(0)}}
	}
	return []expr.Any{transport(register, portSource, 2), transport(register+1, portDest, 2)}
}

// haproxyAdmission is the line of a frontend that rejects other clients; empty without ranges.
func (r requests) haproxyAdmission() string {
	if !r.restricted {
		return ""
	}
	if len(r.clients) == 0 {
		return "  tcp-request connection reject\n"
	}
	var ranges strings.Builder
	for _, p := range r.clients {
		ranges.WriteString(" " + p.String())
	}
	return "  tcp-request connection reject unless { src" + ranges.String() + " }\n"
}
