package proxier

import (
	"net/netip"
	"testing"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/proxier/kernel"
)

// nodePortServices are two Services, one of them with a NodePort.
type nodePortServices struct{}

func (nodePortServices) Names() []types.NamespacedName {
	return []types.NamespacedName{{Name: "a"}, {Name: "b"}, {Name: "gone"}}
}
func (nodePortServices) Slices(types.NamespacedName) []*discovery.EndpointSlice { return nil }
func (nodePortServices) NodeAddresses() []netip.Addr                            { return nil }
func (nodePortServices) NodeZone() string                                       { return "" }
func (nodePortServices) Service(n types.NamespacedName) *v1.Service {
	ports := map[string][]v1.ServicePort{"a": {{Port: 80, NodePort: 30080}, {Port: 53, NodePort: 30053, Protocol: v1.ProtocolUDP}}, "b": {{Port: 80}}}
	if n.Name == "gone" {
		return nil
	}
	return &v1.Service{Spec: v1.ServiceSpec{Ports: ports[n.Name]}}
}

// Of what kube-proxy leaves in IPVS nothing stays, and of what others made there nothing goes, at the port of a NodePort neither.
func TestWhoseVirtualServersAreLeft(t *testing.T) {
	l := leftover{device: []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00:96::10")},
		node: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("10.244.1.254")}, ports: nodePorts(nodePortServices{})}
	for _, test := range []struct {
		addr     string
		protocol kernel.Protocol
		port     uint16
		want     bool
	}{
		{"10.96.0.10", kernel.TCP, 80, true}, {"10.96.0.10", kernel.TCP, 8443, true}, {"fd00:96::10", kernel.UDP, 53, true},
		{"192.0.2.1", kernel.TCP, 30080, true}, {"10.244.1.254", kernel.TCP, 30080, true}, {"192.0.2.1", kernel.UDP, 30053, true},
		{"192.0.2.1", kernel.UDP, 30080, false}, {"192.0.2.1", kernel.TCP, 80, false}, {"192.0.2.1", kernel.TCP, 0, false},
		{"203.0.113.99", kernel.TCP, 30080, false}, {"203.0.113.99", kernel.TCP, 0, false}, {"203.0.113.99", kernel.TCP, 80, false},
	} {
		k := kernel.Key{Addr: netip.MustParseAddr(test.addr), Protocol: test.protocol, Port: test.port}
		if got := l.has(k); got != test.want {
			t.Errorf("%v is kube-proxy's: %v, want %v", k, got, test.want)
		}
	}
}
