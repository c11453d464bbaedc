package controllers

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/hitless/hitless/record"
)

// syncService writes an EndpointSlice of each family of a Service with a selector, with the conditions of KEP-1672.
func (c *controller) syncService(ctx context.Context, s *corev1.Service) error {
	if changed, err := c.allocate(ctx, s); changed || err != nil {
		return err // the change wakes the loop
	}
	if len(s.Spec.Selector) == 0 {
		return nil
	}
	for _, f := range familiesOf(s) {
		if err := c.syncSlice(ctx, s, f); err != nil {
			return err
		}
	}
	return nil
}

// syncSlice writes the EndpointSlice of one family.
func (c *controller) syncSlice(ctx context.Context, s *corev1.Service, f record.Family) error {
	want := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: f.Named(s.Name + "-1"), Namespace: s.Namespace,
			Labels: labels.Merge(managed, labels.Set{discoveryv1.LabelServiceName: s.Name})},
		AddressType: discoveryv1.AddressType(f.API()),
	}
	for _, port := range s.Spec.Ports {
		number, protocol, name := port.TargetPort.IntVal, port.Protocol, port.Name
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		want.Ports = append(want.Ports, discoveryv1.EndpointPort{Name: &name, Port: &number, Protocol: &protocol})
	}
	for _, pod := range c.podsOf(s.Namespace, s.Spec.Selector) {
		if address, has := f.Among(podIPs(pod)...); has && pod.Status.Phase == corev1.PodRunning {
			want.Endpoints = append(want.Endpoints, endpoint(pod, address))
		}
	}
	client := c.client.DiscoveryV1().EndpointSlices(s.Namespace)
	have, err := c.slices.EndpointSlices(s.Namespace).Get(want.Name)
	if apierrors.IsNotFound(err) {
		_, err = client.Create(ctx, want, metav1.CreateOptions{})
		return err
	}
	if err != nil || (apiequality.Semantic.DeepEqual(have.Endpoints, want.Endpoints) && apiequality.Semantic.DeepEqual(have.Ports, want.Ports)) {
		return err
	}
	want.ResourceVersion = have.ResourceVersion
	_, err = client.Update(ctx, want, metav1.UpdateOptions{})
	return err
}

// podIPs are the addresses of a pod, each once or twice.
func podIPs(pod *corev1.Pod) []string {
	all := []string{pod.Status.PodIP}
	for _, ip := range pod.Status.PodIPs {
		all = append(all, ip.IP)
	}
	return all
}

func endpoint(pod *corev1.Pod, address string) discoveryv1.Endpoint {
	serving, terminating := ready(pod), pod.DeletionTimestamp != nil
	isReady, node := serving && !terminating, pod.Spec.NodeName
	return discoveryv1.Endpoint{
		Addresses:  []string{address},
		Conditions: discoveryv1.EndpointConditions{Ready: &isReady, Serving: &serving, Terminating: &terminating},
		NodeName:   &node,
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name},
	}
}
