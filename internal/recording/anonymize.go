package recording

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

// addressRange selects the range of an address's replacement: by the first use of the address.
type addressRange int

const (
	serviceRange  addressRange = iota // addresses of Services in the cluster
	workloadRange                     // of pods, endpoints and nodes
	outsideRange                      // of load balancers and clients
)

// The ranges of replacements: private and documentation ranges (RFC 1918, RFC 3849) without addresses of the lab.
var (
	ranges4 = map[addressRange]netip.Prefix{serviceRange: netip.MustParsePrefix("10.112.0.0/12"), workloadRange: netip.MustParsePrefix("10.128.0.0/10"),
		outsideRange: netip.MustParsePrefix("172.16.0.0/12")}
	ranges6 = map[addressRange]netip.Prefix{serviceRange: netip.MustParsePrefix("2001:db8:1::/64"), workloadRange: netip.MustParsePrefix("2001:db8:2::/64"),
		outsideRange: netip.MustParsePrefix("2001:db8:3::/64")}
)

// firstNodePort is above the node ports of the lab's own Services (lab/controllers).
const firstNodePort = 31000

// renamer replaces names, addresses and node ports consistently. Those of the beginning are numbered in their order, later ones as
// they come. A nil renamer replaces nothing.
type renamer struct {
	names  map[key]string
	addrs  map[netip.Addr]netip.Addr
	ports  map[int32]int32
	counts map[string]int // replacements so far, by kind or range
	found  *foundNames    // collects the names of the beginning; nil afterwards
	err    error          // a range is exhausted
}

// key identifies an object by kind and name. Kinds are ns, svc, slice, pod, node, zone, port and proxy.
type key struct{ kind, name string }

// foundNames are names that are not numbered yet.
type foundNames struct {
	names map[key]bool
	addrs map[netip.Addr]addressRange
	ports map[int32]bool
}

func newRenamer() *renamer {
	return &renamer{names: map[key]string{}, addrs: map[netip.Addr]netip.Addr{}, ports: map[int32]int32{}, counts: map[string]int{},
		found: &foundNames{map[key]bool{}, map[netip.Addr]addressRange{}, map[int32]bool{}}}
}

// assign numbers the names that were found so far, in their order.
func (n *renamer) assign() {
	met := n.found
	n.found = nil
	for _, w := range slices.SortedFunc(maps.Keys(met.names), func(a, b key) int {
		return strings.Compare(a.kind+"\x00"+a.name, b.kind+"\x00"+b.name)
	}) {
		n.name(w.kind, w.name)
	}
	for _, a := range slices.SortedFunc(maps.Keys(met.addrs), netip.Addr.Compare) {
		n.address(met.addrs[a], a)
	}
	for _, p := range slices.Sorted(maps.Keys(met.ports)) {
		n.nodePort(p)
	}
}

func (n *renamer) next(kind string) int {
	n.counts[kind]++
	return n.counts[kind]
}

// name returns the replacement of a name.
func (n *renamer) name(kind, name string) string {
	k := key{kind, name}
	switch known, has := n.names[k]; {
	case name == "" || has:
		return known
	case n.found != nil:
		n.found.names[k] = true
		return name
	}
	n.names[k] = fmt.Sprintf("%s-%05d", kind, n.next(kind))
	return n.names[k]
}

// address returns the replacement of an address.
func (n *renamer) address(r addressRange, a netip.Addr) netip.Addr {
	if known, has := n.addrs[a]; has {
		return known
	}
	if n.found != nil {
		if _, has := n.found.addrs[a]; !has {
			n.found.addrs[a] = r
		}
		return a
	}
	within := ranges4[r]
	if a.Is6() {
		within = ranges6[r]
	}
	moved := nth(within, n.next(within.String()))
	if !within.Contains(moved) {
		n.err = fmt.Errorf("the range %s has too few addresses; record fewer hours", within)
	}
	n.addrs[a] = moved
	return moved
}

// nth returns the nth address of a range.
func nth(within netip.Prefix, n int) netip.Addr {
	bytes := within.Addr().AsSlice()
	for i := len(bytes) - 1; n > 0 && i >= 0; i-- {
		n += int(bytes[i])
		bytes[i], n = byte(n), n>>8
	}
	a, _ := netip.AddrFromSlice(bytes)
	return a
}

// addressText returns the replacement of an address in text form; other text, such as None, stays.
func (n *renamer) addressText(r addressRange, text string) string {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return text
	}
	return n.address(r, a.Unmap()).String()
}

// clientRange replaces a range of clients by a single address. 0.0.0.0/0 and ::/0 stay.
func (n *renamer) clientRange(text string) string {
	p, err := netip.ParsePrefix(strings.TrimSpace(text))
	if err != nil || p.Bits() == 0 {
		return text
	}
	moved := n.address(outsideRange, p.Masked().Addr().Unmap())
	return netip.PrefixFrom(moved, moved.BitLen()).String()
}

func (n *renamer) nodePort(p int32) int32 {
	switch known, has := n.ports[p]; {
	case p == 0 || has:
		return known
	case n.found != nil:
		n.found.ports[p] = true
		return p
	}
	n.ports[p] = firstNodePort - 1 + int32(n.next("node port"))
	return n.ports[p]
}

// rename replaces the names in an object.
func (n *renamer) rename(object metav1.Object) {
	if n == nil {
		return
	}
	if object.GetNamespace() != "" {
		object.SetNamespace(n.name("ns", object.GetNamespace()))
	}
	labels := object.GetLabels()
	for label, kind := range map[string]string{discoveryv1.LabelServiceName: "svc", "service.kubernetes.io/service-proxy-name": "proxy", corev1.LabelTopologyZone: "zone"} {
		if value, has := labels[label]; has {
			labels[label] = n.name(kind, value)
		}
	}
	switch o := object.(type) {
	case *corev1.Service:
		o.Name = n.name("svc", o.Name)
		n.service(&o.Spec)
		for i := range o.Status.LoadBalancer.Ingress {
			o.Status.LoadBalancer.Ingress[i].IP = n.addressText(outsideRange, o.Status.LoadBalancer.Ingress[i].IP)
		}
	case *discoveryv1.EndpointSlice:
		o.Name = n.name("slice", o.Name)
		n.slice(o)
	case *corev1.Node:
		o.Name = n.name(nodeWord, o.Name)
		for i := range o.Status.Addresses {
			o.Status.Addresses[i].Address = n.addressText(workloadRange, o.Status.Addresses[i].Address)
		}
	case *corev1.Pod:
		o.Name, o.Spec.NodeName, o.Status.PodIP = n.name("pod", o.Name), n.name(nodeWord, o.Spec.NodeName), n.addressText(workloadRange, o.Status.PodIP)
		for i := range o.Status.PodIPs {
			o.Status.PodIPs[i].IP = n.addressText(workloadRange, o.Status.PodIPs[i].IP)
		}
	}
}

// nodeWord begins the names of nodes; the lab uses another name.
const nodeWord = "recorded-node"

func (n *renamer) service(s *corev1.ServiceSpec) {
	s.ClusterIP = n.addressText(serviceRange, s.ClusterIP)
	for i := range s.ClusterIPs {
		s.ClusterIPs[i] = n.addressText(serviceRange, s.ClusterIPs[i])
	}
	for i := range s.ExternalIPs {
		s.ExternalIPs[i] = n.addressText(outsideRange, s.ExternalIPs[i])
	}
	for i := range s.LoadBalancerSourceRanges {
		s.LoadBalancerSourceRanges[i] = n.clientRange(s.LoadBalancerSourceRanges[i])
	}
	s.HealthCheckNodePort = n.nodePort(s.HealthCheckNodePort)
	for i := range s.Ports {
		p := &s.Ports[i]
		p.Name, p.NodePort = n.name("port", p.Name), n.nodePort(p.NodePort)
		if p.TargetPort.Type == intstr.String {
			p.TargetPort.StrVal = n.name("port", p.TargetPort.StrVal)
		}
	}
}

func (n *renamer) slice(s *discoveryv1.EndpointSlice) {
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		for j := range e.Addresses {
			e.Addresses[j] = n.addressText(workloadRange, e.Addresses[j])
		}
		n.namePointer(nodeWord, e.NodeName)
		n.namePointer("zone", e.Zone)
		if e.Hints == nil {
			continue
		}
		for j := range e.Hints.ForZones {
			n.namePointer("zone", &e.Hints.ForZones[j].Name)
		}
		for j := range e.Hints.ForNodes {
			n.namePointer(nodeWord, &e.Hints.ForNodes[j].Name)
		}
	}
	for i := range s.Ports {
		n.namePointer("port", s.Ports[i].Name)
	}
}

func (n *renamer) namePointer(kind string, name *string) {
	if name != nil {
		*name = n.name(kind, *name)
	}
}
