package cluster

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// External is an address of a Service's port for clients outside the cluster.
type External struct {
	Service string // namespace/name
	Port    uint16 // of the Service
	Host    string // an IP address, or a name of the load balancer
	Number  uint16 // the port of the address: that of the Service, or its node port
	Node    string // whose address it is; empty unless Number is a node port
}

// String names the Service's port and the address.
func (e External) String() string {
	if e.Node != "" {
		return fmt.Sprintf("%s:%d at %s", e.Service, e.Port, net.JoinHostPort(e.Host, strconv.Itoa(int(e.Number))))
	}
	return fmt.Sprintf("%s:%d at %s", e.Service, e.Port, e.Host)
}

// Externals returns the addresses of a Service's TCP ports, ordered: those that its load balancer gave it, and its external IPs. With
// nodes, they are the node ports on the first address of each node instead. unprobed names its ports of other protocols.
func Externals(s *corev1.Service, nodes []Node) (found []External, unprobed []string) {
	name := s.Namespace + "/" + s.Name
	var places []External
	for _, in := range s.Status.LoadBalancer.Ingress {
		places = append(places, External{Service: name, Host: cmp.Or(in.IP, in.Hostname)})
	}
	for _, ip := range s.Spec.ExternalIPs {
		places = append(places, External{Service: name, Host: ip})
	}
	if nodes != nil {
		places = nil
	}
	for _, n := range nodes {
		if len(n.Addresses) > 0 {
			places = append(places, External{Service: name, Host: n.Addresses[0], Node: n.Name})
		}
	}
	slices.SortFunc(places, func(a, b External) int { return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Node, b.Node)) })
	places = slices.DeleteFunc(slices.Compact(places), func(e External) bool { return e.Host == "" })
	for _, p := range s.Spec.Ports {
		number := p.Port
		if nodes != nil {
			number = p.NodePort
		}
		switch {
		case number == 0 || len(places) == 0:
		case p.Protocol != corev1.ProtocolTCP && p.Protocol != "":
			unprobed = append(unprobed, fmt.Sprintf("%s:%d/%s", name, p.Port, p.Protocol))
		default:
			for _, e := range places {
				e.Port, e.Number = uint16(p.Port), uint16(number)
				found = append(found, e)
			}
		}
	}
	return found, unprobed
}

// NodeOf returns what a run needs of a node.
func NodeOf(n *corev1.Node) Node {
	return Node{n.Name, addresses(n), n.Status.NodeInfo.KernelVersion, n.Status.NodeInfo.KubeletVersion}
}
