package engine

import (
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/proxier/desired"
	"github.com/hitless/hitless/proxier/kernel"
)

// hostileIP belongs to the hostile Service; foreignIP is an address of a foreign virtual server, of which the hostile
// Service may use other ports.
var hostileIP, foreignIP = netip.MustParseAddr("10.96.0.200"), netip.MustParseAddr("192.168.1.1")

// hostileNodePorts are ports that programs of a node use. The API server chooses and checks the range of NodePorts,
// so if it allocates one of these, it belongs to the Service.
var hostileNodePorts = []uint16{22, 10250}

// goodEndpoint is the only valid endpoint of the hostile Service.
var goodEndpoint = netip.MustParseAddrPort("10.244.9.9:8080")

func hostileMayHave(k kernel.Key) bool {
	return k.Addr == hostileIP || k.Addr == foreignIP || slices.Contains(nodeAddrs, k.Addr) && slices.Contains(hostileNodePorts, k.Port)
}

// claims returns the virtual servers to which the hostile Service is entitled.
func (w *world) claims() map[kernel.Key]bool {
	all := map[kernel.Key]bool{}
	if w.hostile == nil {
		return all
	}
	for _, p := range w.hostile.Spec.Ports {
		k := kernel.Key{Addr: hostileIP, Protocol: map[v1.Protocol]kernel.Protocol{"": kernel.TCP, "UDP": kernel.UDP}[p.Protocol], Port: uint16(p.Port)}
		if k.Protocol == 0 || p.Port < 1 || p.Port > 65535 || all[k] {
			continue
		}
		all[k] = true
		if slices.Contains(w.hostile.Spec.ExternalIPs, foreignIP.String()) {
			all[kernel.Key{Addr: foreignIP, Protocol: k.Protocol, Port: k.Port}] = true
		}
		if p.NodePort >= 1 && p.NodePort <= 65535 {
			all[kernel.Key{Addr: nodeAddrs[w.address], Protocol: k.Protocol, Port: uint16(p.NodePort)}] = true
		}
	}
	return all
}

// hostileService claims addresses that it must not get: invalid ones, those of the node, of foreign virtual servers
// and of other, older Services. Where another Service may not exist, it claims a port that no other Service uses.
func hostileService(t *rapid.T) *v1.Service {
	if rapid.IntRange(0, 3).Draw(t, "gone") == 0 {
		return nil
	}
	s := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: hostileName.Namespace, Name: hostileName.Name, CreationTimestamp: metav1.NewTime(time.Unix(9999, 0))}}
	s.Spec.ClusterIP = hostileIP.String()
	s.Spec.Type = v1.ServiceTypeLoadBalancer
	claims := rapid.SliceOfN(rapid.SampledFrom([]string{"127.0.0.1", "10.0.0.11", "10.0.1.11", "169.254.169.254", "0.0.0.0", "255.255.255.255", "x", "::1",
		"fd00:10::11", "fe80::1", "192.168.1.1"}), 0, 4).Draw(t, "claims")
	s.Spec.ExternalIPs = claims
	for _, ip := range claims {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, v1.LoadBalancerIngress{IP: ip})
	}
	for range rapid.IntRange(0, 3).Draw(t, "ports") {
		s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Port: rapid.SampledFrom([]int32{-1, 0, 22, 80, 80, 70000}).Draw(t, "port"),
			NodePort: rapid.SampledFrom([]int32{-1, 0, 0, 22, 10250, 70000}).Draw(t, "NodePort"), Protocol: rapid.SampledFrom([]v1.Protocol{"", "UDP", "QUIC"}).Draw(t, "protocol")})
	}
	s.Spec.LoadBalancerSourceRanges = rapid.SliceOfN(rapid.SampledFrom([]string{"x", "10.0.0.0/8", "10.0.0.0/9"}), 0, 2).Draw(t, "ranges")
	return s
}

// hostileSlices has endpoints that no kernel should get, and a good one.
func hostileSlices() []*discovery.EndpointSlice {
	port, bad := int32(8080), int32(0)
	s := &discovery.EndpointSlice{AddressType: discovery.AddressTypeIPv4, Ports: []discovery.EndpointPort{{Port: &port}, {Port: &bad}, {}}}
	for _, addr := range []string{"127.0.0.1", "169.254.1.1", "", "fd00::1", "10.244.9.9"} {
		s.Endpoints = append(s.Endpoints, discovery.Endpoint{Addresses: []string{addr}})
	}
	return []*discovery.EndpointSlice{s, {AddressType: "FQDN", Endpoints: make([]discovery.Endpoint, 2)}}
}

// wantedByAnyWorld reports whether any world since the kernel last agreed contains this virtual server.
func (r *rig) wantedByAnyWorld(k kernel.Key) bool {
	wanted := func(w map[kernel.Key]expectation) bool { _, is := w[k]; return is }
	claimed := func(c map[kernel.Key]bool) bool { return c[k] }
	return slices.ContainsFunc(r.worlds, wanted) || slices.ContainsFunc(r.claims, claimed)
}

// checkHostile checks that the hostile Service only gets its own virtual servers and its valid endpoint.
func (r *rig) checkHostile(op kernel.Op) {
	state := r.kernel.State()
	for _, a := range state.Addresses() {
		if slices.Contains(nodeAddrs, a) || a.IsLoopback() || a.IsLinkLocalUnicast() || !a.IsGlobalUnicast() {
			r.t.Fatalf("after %v: %v is bound", op, a)
		}
	}
	for _, k := range state.Keys() {
		if k.Addr.IsLoopback() || !k.Addr.IsGlobalUnicast() {
			r.t.Fatalf("after %v: %v is a virtual server", op, k)
		}
		if slices.Contains(nodeAddrs, k.Addr) && len(serving(state, k)) > 0 && !r.wantedByAnyWorld(k) {
			r.t.Fatalf("after %v: %v takes connections at a node address, but no Service has that NodePort", op, k)
		}
		for _, real := range state.Reals(k) {
			if hostileMayHave(k) && real.Addr != goodEndpoint {
				r.t.Fatalf("after %v: %v goes to %v", op, k, real)
			}
		}
	}
}

// hostile is a world whose second Service has invalid claims.
type hostile struct{ *world }

func (h hostile) Service(n types.NamespacedName) *v1.Service {
	s := h.world.Service(n)
	if n == name(1) && s != nil {
		s.Spec.ExternalIPs = []string{"127.0.0.1", "10.0.0.11", "169.254.169.254", clusterIP(0).String(), "x"}
		s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Port: 80}, v1.ServicePort{Port: -1}, v1.ServicePort{Port: 9, Protocol: "?"})
	}
	return s
}

func TestHostileServiceAffectsNoOther(t *testing.T) {
	b := newFixture(t)
	b.engine.objects = hostile{b.world}
	b.world.services[1] = service{exists: true, pods: [4]podState{ready}}
	names := []types.NamespacedName{name(1), name(0)}
	r := b.mustReport(b.engine.Sync(context.Background(), names))
	reasons := map[desired.Reason]int{}
	for _, refusal := range r.Refused {
		reasons[refusal.Reason]++
	}
	want := map[desired.Reason]int{desired.BadAddress: 4, desired.AddressTaken: 1, desired.DuplicatePort: 1, desired.BadPort: 1, desired.UnknownProtocol: 1}
	if diff := cmp.Diff(want, reasons); diff != "" || len(r.Failures) > 0 {
		t.Errorf("refused (-want +got):\n%s\nfailures %v", diff, r.Failures)
	}
	if r = b.mustReport(b.engine.Sync(context.Background(), names)); len(r.Refused) > 0 {
		t.Errorf("refused a second time: %v", r.Refused)
	}
	if got := b.kernel.State().Addresses(); len(got) != 2 {
		t.Errorf("bound are %v, want the two cluster IPs", got)
	}
	if got := serving(b.kernel.State(), vip); len(got) != 1 || got[0] != pod0 {
		t.Errorf("the Service whose address was claimed is served by %v", got)
	}
}
