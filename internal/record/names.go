package record

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// role is what an address was first seen as. It says from which range another is taken.
type role int

const (
	ofService  role = iota // of the cluster
	ofWorkload             // of a pod, an endpoint or a node
	ofOutside              // of a load balancer, or a client
)

// The ranges that addresses are moved to: private and documentation ones (RFC 1918, RFC 3849), in which the lab has none
// (lab/topology, and the AnyIP range of its client).
var (
	ranges4 = map[role]netip.Prefix{ofService: netip.MustParsePrefix("10.112.0.0/12"), ofWorkload: netip.MustParsePrefix("10.128.0.0/10"),
		ofOutside: netip.MustParsePrefix("172.16.0.0/12")}
	ranges6 = map[role]netip.Prefix{ofService: netip.MustParsePrefix("2001:db8:1::/64"), ofWorkload: netip.MustParsePrefix("2001:db8:2::/64"),
		ofOutside: netip.MustParsePrefix("2001:db8:3::/64")}
)

// firstNodePort is above those that the lab gives its own Services (lab/controllers).
const firstNodePort = 31000

// names puts others in the place of names, addresses and node ports: the same for the same, and in the order in which they
// were among what was there at the beginning. What comes later is numbered as it comes. A nil names leaves all as it is.
type names struct {
	words map[sorted]string
	addrs map[netip.Addr]netip.Addr
	ports map[int32]int32
	used  map[string]int // how many of each sort, by the word or range
	learn *learnt        // while what is there at the beginning is gone through
	err   error          // a range was too small
}

// sorted is a name with the sort of thing that has it: ns, svc, slice, pod, node, zone, port or proxy.
type sorted struct{ sort, name string }

// learnt is what was met, before it is numbered in order.
type learnt struct {
	words map[sorted]bool
	addrs map[netip.Addr]role
	ports map[int32]bool
}

func newNames() *names {
	return &names{words: map[sorted]string{}, addrs: map[netip.Addr]netip.Addr{}, ports: map[int32]int32{}, used: map[string]int{},
		learn: &learnt{map[sorted]bool{}, map[netip.Addr]role{}, map[int32]bool{}}}
}

// settle numbers what was met until now, in its order.
func (n *names) settle() {
	met := n.learn
	n.learn = nil
	for _, w := range slices.SortedFunc(maps.Keys(met.words), func(a, b sorted) int {
		return strings.Compare(a.sort+"\x00"+a.name, b.sort+"\x00"+b.name)
	}) {
		n.word(w.sort, w.name)
	}
	for _, a := range slices.SortedFunc(maps.Keys(met.addrs), netip.Addr.Compare) {
		n.address(met.addrs[a], a)
	}
	for _, p := range slices.Sorted(maps.Keys(met.ports)) {
		n.nodePort(p)
	}
}

func (n *names) next(sort string) int {
	n.used[sort]++
	return n.used[sort]
}

// word is the name in the place of another.
func (n *names) word(sort, name string) string {
	key := sorted{sort, name}
	switch known, has := n.words[key]; {
	case name == "" || has:
		return known
	case n.learn != nil:
		n.learn.words[key] = true
		return name
	}
	n.words[key] = fmt.Sprintf("%s-%05d", sort, n.next(sort))
	return n.words[key]
}

// address is the address in the place of another.
func (n *names) address(r role, a netip.Addr) netip.Addr {
	if known, has := n.addrs[a]; has {
		return known
	}
	if n.learn != nil {
		if _, has := n.learn.addrs[a]; !has {
			n.learn.addrs[a] = r
		}
		return a
	}
	within := ranges4[r]
	if a.Is6() {
		within = ranges6[r]
	}
	moved := nth(within, n.next(within.String()))
	if !within.Contains(moved) {
		n.err = fmt.Errorf("there are more addresses than %s has; record fewer hours", within)
	}
	n.addrs[a] = moved
	return moved
}

// nth is the nth address of a range.
func nth(within netip.Prefix, n int) netip.Addr {
	bytes := within.Addr().AsSlice()
	for i := len(bytes) - 1; n > 0 && i >= 0; i-- {
		n += int(bytes[i])
		bytes[i], n = byte(n), n>>8
	}
	a, _ := netip.AddrFromSlice(bytes)
	return a
}

// addr is the text of an address moved; what is no address, as the word None, stays.
func (n *names) addr(r role, text string) string {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return text
	}
	return n.address(r, a.Unmap()).String()
}

// prefix is the text of a range of clients, moved to one address: how many there were tells nothing that a proxy's table
// needs, and everybody stays everybody.
func (n *names) prefix(text string) string {
	p, err := netip.ParsePrefix(strings.TrimSpace(text))
	if err != nil || p.Bits() == 0 {
		return text
	}
	moved := n.address(ofOutside, p.Masked().Addr().Unmap())
	return netip.PrefixFrom(moved, moved.BitLen()).String()
}

func (n *names) nodePort(p int32) int32 {
	switch known, has := n.ports[p]; {
	case p == 0 || has:
		return known
	case n.learn != nil:
		n.learn.ports[p] = true
		return p
	}
	n.ports[p] = firstNodePort - 1 + int32(n.next("node port"))
	return n.ports[p]
}

// rename changes what is kept of an object.
func (n *names) rename(object metav1.Object) {
	if n == nil {
		return
	}
	if object.GetNamespace() != "" {
		object.SetNamespace(n.word("ns", object.GetNamespace()))
	}
	labels := object.GetLabels()
	for key, sort := range map[string]string{discoveryv1.LabelServiceName: "svc", "service.kubernetes.io/service-proxy-name": "proxy", corev1.LabelTopologyZone: "zone"} {
		if value, has := labels[key]; has {
			labels[key] = n.word(sort, value)
		}
	}
	switch o := object.(type) {
	case *corev1.Service:
		o.Name = n.word("svc", o.Name)
		n.service(&o.Spec)
		for i := range o.Status.LoadBalancer.Ingress {
			o.Status.LoadBalancer.Ingress[i].IP = n.addr(ofOutside, o.Status.LoadBalancer.Ingress[i].IP)
		}
	case *discoveryv1.EndpointSlice:
		o.Name = n.word("slice", o.Name)
		n.slice(o)
	case *corev1.Node:
		o.Name = n.word(nodeWord, o.Name)
		for i := range o.Status.Addresses {
			o.Status.Addresses[i].Address = n.addr(ofWorkload, o.Status.Addresses[i].Address)
		}
	case *corev1.Pod:
		o.Name, o.Spec.NodeName, o.Status.PodIP = n.word("pod", o.Name), n.word(nodeWord, o.Spec.NodeName), n.addr(ofWorkload, o.Status.PodIP)
		for i := range o.Status.PodIPs {
			o.Status.PodIPs[i].IP = n.addr(ofWorkload, o.Status.PodIPs[i].IP)
		}
	}
}

// nodeWord is no name that the lab gives its nodes.
const nodeWord = "recorded-node"

func (n *names) service(s *corev1.ServiceSpec) {
	s.ClusterIP = n.addr(ofService, s.ClusterIP)
	for i := range s.ClusterIPs {
		s.ClusterIPs[i] = n.addr(ofService, s.ClusterIPs[i])
	}
	for i := range s.ExternalIPs {
		s.ExternalIPs[i] = n.addr(ofOutside, s.ExternalIPs[i])
	}
	for i := range s.LoadBalancerSourceRanges {
		s.LoadBalancerSourceRanges[i] = n.prefix(s.LoadBalancerSourceRanges[i])
	}
	s.HealthCheckNodePort = n.nodePort(s.HealthCheckNodePort)
	for i := range s.Ports {
		p := &s.Ports[i]
		p.Name, p.NodePort = n.word("port", p.Name), n.nodePort(p.NodePort)
		if p.TargetPort.Type == intstr.String {
			p.TargetPort.StrVal = n.word("port", p.TargetPort.StrVal)
		}
	}
}

func (n *names) slice(s *discoveryv1.EndpointSlice) {
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		for j := range e.Addresses {
			e.Addresses[j] = n.addr(ofWorkload, e.Addresses[j])
		}
		n.pointed(nodeWord, e.NodeName)
		n.pointed("zone", e.Zone)
		if e.Hints == nil {
			continue
		}
		for j := range e.Hints.ForZones {
			n.pointed("zone", &e.Hints.ForZones[j].Name)
		}
		for j := range e.Hints.ForNodes {
			n.pointed(nodeWord, &e.Hints.ForNodes[j].Name)
		}
	}
	for i := range s.Ports {
		n.pointed("port", s.Ports[i].Name)
	}
}

func (n *names) pointed(sort string, name *string) {
	if name != nil {
		*name = n.word(sort, *name)
	}
}
