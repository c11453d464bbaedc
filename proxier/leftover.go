package proxier

import (
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/hitless/hitless/proxier/engine"
	"github.com/hitless/hitless/proxier/kernel"
)

// leftover knows kube-proxy's virtual servers: those at addresses on its device, and those of NodePorts at addresses of the node.
// Anything else in IPVS is a stranger's, at whatever port.
type leftover struct {
	device, node []netip.Addr
	ports        map[nodePort]bool
}

type nodePort struct {
	protocol kernel.Protocol
	port     uint16
}

func (l leftover) has(k kernel.Key) bool {
	return slices.Contains(l.device, k.Addr) || slices.Contains(l.node, k.Addr) && l.ports[nodePort{k.Protocol, k.Port}]
}

// nodePorts are those of all Services.
func nodePorts(source engine.Objects) map[nodePort]bool {
	all := map[nodePort]bool{}
	for _, name := range source.Names() {
		svc := source.Service(name)
		if svc == nil {
			continue
		}
		for _, p := range svc.Spec.Ports {
			if p.NodePort > 0 {
				all[nodePort{protocols[p.Protocol], uint16(p.NodePort)}] = true
			}
		}
	}
	return all
}

// protocols are those that the ports of Services have; one that says nothing is of TCP.
var protocols = map[v1.Protocol]kernel.Protocol{"": kernel.TCP, v1.ProtocolTCP: kernel.TCP, v1.ProtocolUDP: kernel.UDP, v1.ProtocolSCTP: kernel.SCTP}
