//go:build linux

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

// Services have a cluster IP, one port and one EndpointSlice.
const (
	endpoints = 4   // of each Service
	rollout   = 100 // endpoints of the Service of the rollout
	namespace = "bench"

	servicePort, podPort = 80, 8080
)

// service is a Service and its pods.
type service struct {
	addr netip.Addr
	pods []netip.Addr // in the order of the slice
}

func (v *service) address() netip.AddrPort { return netip.AddrPortFrom(v.addr, servicePort) }

func (v *service) backends() []netip.AddrPort {
	all := make([]netip.AddrPort, len(v.pods))
	for i, a := range v.pods {
		all[i] = netip.AddrPortFrom(a, podPort)
	}
	return all
}

// fleet is the set of Services in the API. One of them has more pods than the others, for rollouts.
type fleet struct {
	server  *replay.Server
	all     []*service
	roll    *service // the one for rollouts
	created uint32   // pods so far
}

func newFleet(s *replay.Server) *fleet { return &fleet{server: s} }

// pod returns an address that no pod has had.
func (f *fleet) pod() netip.Addr {
	f.created++
	n := f.created
	return netip.AddrFrom4([4]byte{10, 128 | byte(n>>16), byte(n >> 8), byte(n)})
}

func clusterIP(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}) }

func (f *fleet) name(v *service) string { return fmt.Sprintf("service-%d", index(v.addr)) }

func index(a netip.Addr) int { b := a.As4(); return int(b[2])<<8 | int(b[3]) }

// grow increases the number of Services to n, without that for rollouts.
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

// services returns all Services, with that for rollouts.
func (f *fleet) services() []*service { return append([]*service{f.roll}, f.all...) }

func (f *fleet) add(i, pods int) (*service, error) {
	v := &service{addr: clusterIP(i)}
	for range pods {
		v.pods = append(v.pods, f.pod())
	}
	if _, err := f.server.Apply(f.serviceObject(v)); err != nil {
		return nil, err
	}
	return v, f.write(v)
}

// remove deletes a Service.
func (f *fleet) remove(v *service) error {
	name := f.name(v)
	if err := f.server.Delete(replay.Ref{Kind: "Service", Namespace: namespace, Name: name}, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return f.server.Delete(replay.Ref{Kind: "EndpointSlice", Namespace: namespace, Name: name + "-1"}, metav1.DeleteOptions{})
}

// replace replaces a pod, as the rollout of a Deployment does.
func (f *fleet) replace(v *service, i int) error {
	v.pods[i] = f.pod()
	return f.write(v)
}

func (f *fleet) write(v *service) error {
	_, err := f.server.Apply(f.sliceObject(v))
	return err
}

func (f *fleet) serviceObject(v *service) *v1.Service {
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: f.name(v), Namespace: namespace, Labels: map[string]string{"app": f.name(v)}},
		Spec: v1.ServiceSpec{Type: v1.ServiceTypeClusterIP, ClusterIP: v.addr.String(), ClusterIPs: []string{v.addr.String()},
			Selector: map[string]string{"app": f.name(v)},
			Ports:    []v1.ServicePort{{Name: "http", Protocol: v1.ProtocolTCP, Port: servicePort, TargetPort: intstr.FromInt32(podPort)}}},
	}
}

func (f *fleet) sliceObject(v *service) *discovery.EndpointSlice {
	name, port, protocol, text, yes, no := f.name(v), int32(podPort), v1.ProtocolTCP, "http", true, false
	s := &discovery.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-1", Namespace: namespace, GenerateName: name + "-",
			Labels:          map[string]string{"app": name, discovery.LabelServiceName: name, discovery.LabelManagedBy: "endpointslice-controller.k8s.io"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: name, UID: types.UID("uid-of-" + name), Controller: &yes}}},
		AddressType: discovery.AddressTypeIPv4,
		Ports:       []discovery.EndpointPort{{Name: &text, Port: &port, Protocol: &protocol}},
	}
	for i, a := range v.pods {
		node, zone := fmt.Sprintf("other-%d", i), fmt.Sprintf("zone-%d", i%3)
		s.Endpoints = append(s.Endpoints, discovery.Endpoint{Addresses: []string{a.String()}, NodeName: &node, Zone: &zone,
			Conditions: discovery.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
			TargetRef:  &v1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: fmt.Sprintf("%s-%s", name, a), UID: types.UID("uid-of-" + a.String())}})
	}
	return s
}
