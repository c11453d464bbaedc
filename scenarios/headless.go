package scenarios

//lint:file-ignore SA1019 Endpoints are deprecated, and the only thing that kube-proxy up to 1.18 watches

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/e2e-framework/klient/k8s"

	"github.com/hitless/hitless/record"
)

// headless is a Service without a selector, whose endpoints the scenario writes.
type headless struct {
	name      string
	addresses []string                    // of any family
	family    record.Family               // on a live cluster: that of its first addresses, once they are known
	shape     func(s *corev1.ServiceSpec) // nil for a Service of type ClusterIP
	slices    bool                        // EndpointSlices only: no proxy reads Endpoints
}

func (h *headless) create(ctx context.Context, w *World) error {
	for _, o := range h.objects(w) {
		if err := w.Cluster.Create(ctx, o); err != nil {
			_, kind, _ := strings.Cut(fmt.Sprintf("%T", o), ".")
			return fmt.Errorf("creating the %s of the Service %s: %w", kind, h.name, err)
		}
	}
	return nil
}

// objects are the Service and its endpoints, in the order of their creation.
func (h *headless) objects(w *World) []k8s.Object {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: h.name, Namespace: w.namespace()},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: port, TargetPort: intstr.FromInt32(httpPort), Protocol: corev1.ProtocolTCP}}}}
	w.shapeFamilies(&s.Spec)
	if h.shape != nil {
		h.shape(&s.Spec)
	}
	all := []k8s.Object{s}
	if !h.slices {
		all = append(all, h.endpoints(w))
	}
	for _, slice := range h.endpointSlices(w) {
		all = append(all, slice)
	}
	return all
}

// update writes the current endpoints.
func (h *headless) update(ctx context.Context, w *World) error {
	if !h.slices {
		if err := w.Cluster.Update(ctx, h.endpoints(w)); err != nil {
			return fmt.Errorf("changing the Endpoints of %s: %w", h.name, err)
		}
	}
	for _, s := range h.endpointSlices(w) {
		if err := w.Cluster.Update(ctx, s); err != nil {
			return fmt.Errorf("changing the EndpointSlice of %s: %w", h.name, err)
		}
	}
	return nil
}

// delete deletes the Service and its endpoints. Objects that a controller has deleted meanwhile are no error.
func (h *headless) delete(ctx context.Context, w *World) error {
	var all []k8s.Object
	for _, s := range h.endpointSlices(w) {
		all = append(all, s)
	}
	if !h.slices {
		all = append(all, h.endpoints(w))
	}
	all = append(all, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: h.name, Namespace: w.namespace()}})
	for _, o := range all {
		if err := w.Cluster.Delete(ctx, o); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting %s: %w", o.GetName(), err)
		}
	}
	return nil
}

// endpoints are the Endpoints, which old proxies read. The label keeps the cluster's controller from mirroring them into
// a second EndpointSlice.
func (h *headless) endpoints(w *World) *corev1.Endpoints {
	all := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: h.name, Namespace: w.namespace(),
		Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"}}}
	if len(h.addressesOf(h.families(w)[0])) == 0 { // the API refuses a subset without addresses
		return all
	}
	subset := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Name: "http", Port: httpPort, Protocol: corev1.ProtocolTCP}}}
	for _, ip := range h.addressesOf(h.families(w)[0]) {
		subset.Addresses = append(subset.Addresses, corev1.EndpointAddress{IP: ip})
	}
	all.Subsets = []corev1.EndpointSubset{subset}
	return all
}

// families are those of the run; on a live cluster that of the first address.
func (h *headless) families(w *World) []record.Family {
	if w.Site.Offers().Has(SiteTargets) {
		if h.family == "" {
			h.family = record.IPv4
			if _, six := record.IPv6.Among(h.addresses...); six {
				h.family = record.IPv6
			}
		}
		return h.family.Each()
	}
	return w.families()
}

func (h *headless) addressesOf(f record.Family) (all []string) {
	for _, ip := range h.addresses {
		if _, is := f.Among(ip); is {
			all = append(all, ip)
		}
	}
	return all
}

// endpointSlices are one for each family.
func (h *headless) endpointSlices(w *World) (all []*discoveryv1.EndpointSlice) {
	for _, f := range h.families(w) {
		all = append(all, h.slice(w, f))
	}
	return all
}

func (h *headless) slice(w *World, f record.Family) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: f.Named(h.name + "-1"), Namespace: w.namespace(),
		Labels: map[string]string{discoveryv1.LabelServiceName: h.name, discoveryv1.LabelManagedBy: "hitless"}},
		AddressType: discoveryv1.AddressType(f.API()),
		Ports:       []discoveryv1.EndpointPort{{Name: ptr("http"), Port: ptr(int32(httpPort)), Protocol: ptr(corev1.ProtocolTCP)}}}
	for _, ip := range h.addressesOf(f) {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{ip},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr(true), Serving: ptr(true), Terminating: ptr(false)}})
	}
	return s
}
