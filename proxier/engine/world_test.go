package engine

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/proxier/desired"
	"github.com/hitless/hitless/proxier/kernel"
)

// world is a small cluster as node-1 sees it: three Services with up to four pods each, the first two of them local.
type world struct {
	services [3]service
	address  int         // index in nodeAddrs of the node's primary IPv4 address
	hostile  *v1.Service // Service with invalid claims; nil for none
}

// hostileName is the name of the hostile Service.
var hostileName = types.NamespacedName{Namespace: "default", Name: "s9"}

// nodeAddrs are the addresses of the node. The IPv6 address is always primary.
var nodeAddrs = []netip.Addr{netip.MustParseAddr("10.0.0.11"), netip.MustParseAddr("10.0.1.11"), netip.MustParseAddr("fd00:10::11")}

// NodeAddresses implements Objects.
func (w *world) NodeAddresses() []netip.Addr { return []netip.Addr{nodeAddrs[w.address], nodeAddrs[2]} }

type service struct {
	exists        bool
	loadBalancer  bool // type LoadBalancer with an address of its own
	nodePort      bool
	shared        bool // has the external IP that several Services claim
	externalLocal bool // externalTrafficPolicy: Local
	internalLocal bool // internalTrafficPolicy: Local
	secondPort    bool
	udpPort       bool
	hints         hints
	dualStack     bool // dual-stack
	scheduler     int  // index in schedulers
	clients       int  // index in clientRanges
	pods          [4]podState
	listedInBoth  bool // all endpoints are in two slices, as while the controller moves them
}

type podState uint8

const (
	absent podState = iota
	ready
	unready
	draining // terminating and serving
	dying    // terminating and not serving
)

const node = "node-1"

func name(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: fmt.Sprintf("s%d", i)}
}

// hints is a pattern of topology hints: each endpoint for its own zone or node. In the partial pattern the last pod
// has none.
type hints uint8

const (
	noHints hints = iota
	zoneHints
	nodeHints
	partialHints
)

// NodeZone implements Objects.
func (w *world) NodeZone() string { return "zone-of-" + node }

func (h hints) forPod(pod int, where string) *discovery.EndpointHints {
	switch {
	case h == noHints, h == partialHints && pod == 3:
		return nil
	case h == nodeHints:
		return &discovery.EndpointHints{ForNodes: []discovery.ForNode{{Name: where}}}
	}
	return &discovery.EndpointHints{ForZones: []discovery.ForZone{{Name: "zone-of-" + where}}}
}

// localHinted reports whether the hints of ready pods restrict this node to local ones.
func (s service) localHinted() bool {
	localReady := s.pods[0] == ready || s.pods[1] == ready
	return localReady && (s.hints == zoneHints || s.hints == nodeHints || s.hints == partialHints && s.pods[3] != ready)
}

// clientRanges are values of loadBalancerSourceRanges, some of which overlap.
var clientRanges = [][]string{nil, {"198.51.100.0/24"}, {"198.51.100.0/25", "10.9.0.0/16"}, {"198.51.0.0/16"}}

// schedulers are values of the annotation; the node's scheduler is rr.
var schedulers = []string{"", "wrr", "nonsense"}

func clusterIP6(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("fd00:96::%d", 10+i)) }

// podIPv6 returns the IPv6 address of a pod.
func podIPv6(v4 netip.AddrPort) netip.AddrPort {
	a := v4.Addr().As4()
	return netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf("fd00:244:%d::%d", a[2], a[3])), v4.Port())
}

func clusterIP(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 96, 0, byte(10 + i)}) }
func externIP(i int) netip.Addr  { return netip.AddrFrom4([4]byte{203, 0, 113, byte(10 + i)}) }

var sharedIP = netip.MustParseAddr("203.0.113.99")

func pod(svc, i, port int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, byte(1 + i/2), byte(10*svc + i)}), uint16(port))
}

func local(i int) bool { return i < 2 }

func (w *world) Names() []types.NamespacedName {
	var all []types.NamespacedName
	for i, s := range w.services {
		if s.exists {
			all = append(all, name(i))
		}
	}
	if w.hostile != nil {
		all = append(all, hostileName)
	}
	return all
}

func (w *world) index(n types.NamespacedName) int { return int(n.Name[1] - '0') }

func (w *world) Service(n types.NamespacedName) *v1.Service {
	if n == hostileName {
		return w.hostile
	}
	i := w.index(n)
	s := w.services[i]
	if !s.exists {
		return nil
	}
	svc := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: n.Name,
		CreationTimestamp: metav1.NewTime(time.Unix(int64(1000-i), 0))}}
	svc.Annotations = map[string]string{desired.SchedulerAnnotation: schedulers[s.scheduler]}
	svc.Spec.ClusterIP = clusterIP(i).String()
	svc.Spec.LoadBalancerSourceRanges = clientRanges[s.clients]
	if s.dualStack {
		svc.Spec.ClusterIPs = []string{clusterIP(i).String(), clusterIP6(i).String()}
	}
	svc.Spec.Ports = []v1.ServicePort{{Name: "a", Port: 80}}
	if s.secondPort {
		svc.Spec.Ports = append(svc.Spec.Ports, v1.ServicePort{Name: "b", Port: 81, Protocol: v1.ProtocolTCP})
	}
	if s.udpPort {
		svc.Spec.Ports = append(svc.Spec.Ports, v1.ServicePort{Name: "u", Port: 53, Protocol: v1.ProtocolUDP})
	}
	if s.nodePort {
		svc.Spec.Type = v1.ServiceTypeNodePort
		for p := range svc.Spec.Ports {
			svc.Spec.Ports[p].NodePort = int32(nodePort(i, uint16(svc.Spec.Ports[p].Port)))
		}
	}
	if s.loadBalancer {
		svc.Spec.Type = v1.ServiceTypeLoadBalancer
		svc.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: externIP(i).String()}}
		svc.Spec.HealthCheckNodePort = int32(healthPort(i))
	}
	if s.shared {
		svc.Spec.ExternalIPs = []string{sharedIP.String()}
	}
	if s.externalLocal {
		svc.Spec.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyLocal
	}
	if s.internalLocal {
		policy := v1.ServiceInternalTrafficPolicyLocal
		svc.Spec.InternalTrafficPolicy = &policy
	}
	return svc
}

func healthPort(svc int) uint16 { return uint16(30000 + svc) }

func nodePort(svc int, port uint16) uint16 { return 30000 + 100*uint16(svc) + port }

func (w *world) Slices(n types.NamespacedName) []*discovery.EndpointSlice {
	if n == hostileName {
		return hostileSlices()
	}
	i := w.index(n)
	s := w.services[i]
	one := &discovery.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: n.Name + "-1"}, AddressType: discovery.AddressTypeIPv4}
	for p, port := range map[string]int32{"a": 8080, "b": 8081} {
		one.Ports = append(one.Ports, discovery.EndpointPort{Name: &p, Port: &port})
	}
	dns, udp, udpPort := "u", v1.ProtocolUDP, int32(5353)
	one.Ports = append(one.Ports, discovery.EndpointPort{Name: &dns, Port: &udpPort, Protocol: &udp})
	for p, state := range s.pods {
		if state == absent {
			continue
		}
		where := "node-2"
		if local(p) {
			where = node
		}
		is := func(b bool) *bool { return &b }
		one.Endpoints = append(one.Endpoints, discovery.Endpoint{
			Addresses: []string{pod(i, p, 0).Addr().String()}, NodeName: &where, Hints: s.hints.forPod(p, where),
			Conditions: discovery.EndpointConditions{Ready: is(state == ready), Serving: is(state == ready || state == draining),
				Terminating: is(state == draining || state == dying)},
		})
	}
	all := []*discovery.EndpointSlice{one}
	if s.listedInBoth {
		two := one.DeepCopy()
		two.Name = n.Name + "-2"
		slices.Reverse(two.Endpoints)
		all = append(all, two)
	}
	if s.dualStack {
		all = append(all, ipv6Slice(one))
	}
	return all
}

// ipv6Slice returns the slice of the same pods in IPv6.
func ipv6Slice(s *discovery.EndpointSlice) *discovery.EndpointSlice {
	s = s.DeepCopy()
	s.Name, s.AddressType = s.Name+"-6", discovery.AddressTypeIPv6
	for i := range s.Endpoints {
		a := &s.Endpoints[i].Addresses[0]
		*a = podIPv6(netip.AddrPortFrom(netip.MustParseAddr(*a), 0)).Addr().String()
	}
	return s
}

// expectation is the wanted state of one virtual server, computed from the world independently of the code under
// test.
type expectation struct {
	reals  []netip.AddrPort
	drop   bool
	source kernel.Set
	from   []string // allowed clients; nil for all
	sched  string
	bound  bool                    // the address must be bound; false for NodePorts
	listed map[netip.AddrPort]bool // all endpoints, and whether they serve
}

func (s service) usable(svc int, onlyLocal bool, port int) []netip.AddrPort {
	onlyLocal = onlyLocal || s.localHinted()
	for _, want := range []podState{ready, draining} {
		var found []netip.AddrPort
		for p, state := range s.pods {
			if state == want && (local(p) || !onlyLocal) {
				found = append(found, pod(svc, p, port))
			}
		}
		if len(found) > 0 {
			return found
		}
	}
	return nil
}

// listed returns the endpoints of one port and family, and whether each serves.
func (s service) listed(svc, port int, is6 bool) map[netip.AddrPort]bool {
	all := map[netip.AddrPort]bool{}
	for p, state := range s.pods {
		real := pod(svc, p, port)
		if is6 {
			real = podIPv6(real)
		}
		if state != absent {
			all[real] = state == ready || state == draining
		}
	}
	return all
}

// contract returns the wanted state by virtual server.
func (w *world) contract() map[kernel.Key]expectation {
	all := map[kernel.Key]expectation{}
	// The shared address belongs to the oldest Service that claims it: the one with the highest number.
	for i, s := range w.services {
		if !s.exists {
			continue
		}
		ports := map[uint16]int{80: 8080}
		if s.secondPort {
			ports[81] = 8081
		}
		if s.udpPort {
			ports[53] = 5353
		}
		for port, target := range ports {
			protocol := kernel.TCP
			if port == 53 {
				protocol = kernel.UDP
			}
			at := func(a netip.Addr, port uint16, onlyLocal bool, source kernel.Set) {
				reals := s.usable(i, onlyLocal, target)
				if a.Is6() {
					for n := range reals {
						reals[n] = podIPv6(reals[n])
					}
				}
				all[kernel.Key{Addr: a, Protocol: protocol, Port: port}] = expectation{reals: reals, source: source, listed: s.listed(i, target, a.Is6()), sched: []string{"rr", "wrr", "rr"}[s.scheduler],
					drop: onlyLocal && len(reals) == 0 && len(s.usable(i, false, target)) > 0, bound: !slices.Contains(nodeAddrs, a)}
			}
			add := func(a netip.Addr, onlyLocal bool, source kernel.Set) { at(a, port, onlyLocal, source) }
			outside := kernel.Masquerade
			if s.externalLocal {
				outside = kernel.FromNode
			}
			add(clusterIP(i), s.internalLocal, kernel.OffCluster)
			if s.dualStack {
				add(clusterIP6(i), s.internalLocal, kernel.OffCluster)
			}
			if s.loadBalancer {
				add(externIP(i), s.externalLocal, outside)
				k := kernel.Key{Addr: externIP(i), Protocol: protocol, Port: port}
				e := all[k]
				e.from = clientRanges[s.clients]
				all[k] = e
			}
			if s.nodePort {
				at(nodeAddrs[w.address], nodePort(i, port), s.externalLocal, outside)
			}
			if s.nodePort && s.dualStack {
				at(nodeAddrs[2], nodePort(i, port), s.externalLocal, outside)
			}
			if s.shared {
				add(sharedIP, s.externalLocal, outside)
			}
		}
	}
	return all
}
