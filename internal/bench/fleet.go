package bench

import (
	"fmt"
	"net/netip"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/hitless/hitless/lab/replay"
)

// The objects: Services with a cluster IP and one port, each with one EndpointSlice.
const (
	endpoints = 4     // of each Service
	rollout   = 100   // endpoints of the Service that is rolled
	steps     = 10    // Services that are changed, at least
	most      = 20000 // Services that the addresses have room for
	namespace = "bench"

	servicePort, podPort = 80, 8080
)

// virtual is what the kernel should have of a Service.
type virtual struct {
	addr  netip.Addr
	reals []netip.Addr // in the order of the slice
}

func (v *virtual) address() netip.AddrPort { return netip.AddrPortFrom(v.addr, servicePort) }

func (v *virtual) backends() []netip.AddrPort {
	all := make([]netip.AddrPort, len(v.reals))
	for i, a := range v.reals {
		all[i] = netip.AddrPortFrom(a, podPort)
	}
	return all
}

// fleet is the Services in the API. The last one is larger than the others, and is rolled.
type fleet struct {
	server  *replay.Server
	all     []*virtual
	roll    *virtual
	created uint32 // endpoints ever
}

func newFleet(s *replay.Server) *fleet { return &fleet{server: s} }

// pod is an address that no other pod has, or had.
func (f *fleet) pod() netip.Addr {
	f.created++
	n := f.created
	return netip.AddrFrom4([4]byte{10, 128 | byte(n>>16), byte(n >> 8), byte(n)})
}

func clusterIP(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}) }

func (f *fleet) name(v *virtual) string { return fmt.Sprintf("service-%d", index(v.addr)) }

func index(a netip.Addr) int { b := a.As4(); return int(b[2])<<8 | int(b[3]) }

// grow makes the number of Services n, beside the one that is rolled.
func (f *fleet) grow(n int) (err error) {
	if f.roll == nil {
		if f.roll, err = f.add(1, rollout); err != nil {
			return err
		}
	}
	for len(f.all) < n {
		v, err := f.add(2+len(f.all), endpoints)
		if err != nil {
			return err
		}
		f.all = append(f.all, v)
	}
	return f.server.Warm()
}

// virtuals are all that the kernel should have.
func (f *fleet) virtuals() []*virtual { return append([]*virtual{f.roll}, f.all...) }

func (f *fleet) add(i, pods int) (*virtual, error) {
	v := &virtual{addr: clusterIP(i)}
	for range pods {
		v.reals = append(v.reals, f.pod())
	}
	if _, err := f.server.Apply(f.service(v)); err != nil {
		return nil, err
	}
	return v, f.write(v)
}

// remove takes a Service away.
func (f *fleet) remove(v *virtual) error {
	name := f.name(v)
	if err := f.server.Delete(replay.Ref{Kind: "Service", Namespace: namespace, Name: name}, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return f.server.Delete(replay.Ref{Kind: "EndpointSlice", Namespace: namespace, Name: name + "-1"}, metav1.DeleteOptions{})
}

// replace puts a new pod into the place of another, as a Deployment that is rolled does.
func (f *fleet) replace(v *virtual, i int) error {
	v.reals[i] = f.pod()
	return f.write(v)
}

func (f *fleet) write(v *virtual) error {
	_, err := f.server.Apply(f.slice(v))
	return err
}

func (f *fleet) service(v *virtual) *v1.Service {
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: f.name(v), Namespace: namespace, Labels: map[string]string{"app": f.name(v)}},
		Spec: v1.ServiceSpec{Type: v1.ServiceTypeClusterIP, ClusterIP: v.addr.String(), ClusterIPs: []string{v.addr.String()},
			Selector: map[string]string{"app": f.name(v)},
			Ports:    []v1.ServicePort{{Name: "http", Protocol: v1.ProtocolTCP, Port: servicePort, TargetPort: intstr.FromInt32(podPort)}}},
	}
}

func (f *fleet) slice(v *virtual) *discovery.EndpointSlice {
	name, port, protocol, text, yes, no := f.name(v), int32(podPort), v1.ProtocolTCP, "http", true, false
	s := &discovery.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-1", Namespace: namespace, GenerateName: name + "-",
			Labels:          map[string]string{"app": name, discovery.LabelServiceName: name, discovery.LabelManagedBy: "endpointslice-controller.k8s.io"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: name, UID: types.UID("uid-of-" + name), Controller: &yes}}},
		AddressType: discovery.AddressTypeIPv4,
		Ports:       []discovery.EndpointPort{{Name: &text, Port: &port, Protocol: &protocol}},
	}
	for i, a := range v.reals {
		node, zone := fmt.Sprintf("other-%d", i), fmt.Sprintf("zone-%d", i%3)
		s.Endpoints = append(s.Endpoints, discovery.Endpoint{Addresses: []string{a.String()}, NodeName: &node, Zone: &zone,
			Conditions: discovery.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
			TargetRef:  &v1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: fmt.Sprintf("%s-%s", name, a), UID: types.UID("uid-of-" + a.String())}})
	}
	return s
}
