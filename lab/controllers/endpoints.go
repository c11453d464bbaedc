package controllers

//lint:file-ignore SA1019 Endpoints are deprecated, and the only thing that kube-proxy up to 1.18 watches

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/record"
)

// syncEndpoints writes the Endpoints of a Service with a selector as the endpoints controller does
// (pkg/controller/endpoint): unready pods in notReadyAddresses, terminating pods omitted.
func (c *controller) syncEndpoints(ctx context.Context, s *corev1.Service) error {
	if len(s.Spec.Selector) == 0 {
		return nil
	}
	want := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: s.Namespace, Labels: managed},
		Subsets: subsets(s, c.podsOf(s.Namespace, s.Spec.Selector))}
	client := c.client.CoreV1().Endpoints(s.Namespace)
	have, err := c.endpoints.Endpoints(s.Namespace).Get(want.Name)
	if apierrors.IsNotFound(err) {
		_, err = client.Create(ctx, want, metav1.CreateOptions{})
		return err
	}
	if err != nil || apiequality.Semantic.DeepEqual(have.Subsets, want.Subsets) {
		return err
	}
	want.ResourceVersion = have.ResourceVersion
	_, err = client.Update(ctx, want, metav1.UpdateOptions{})
	return err
}

// subsets returns one subset for all pods, since their ports are the same; none if no pod has an address of the Service's primary family.
func subsets(s *corev1.Service, pods []*corev1.Pod) []corev1.EndpointSubset {
	family := record.IPv4
	if all := familiesOf(s); len(all) > 0 {
		family = all[0]
	}
	var all corev1.EndpointSubset
	for _, pod := range pods {
		ip, has := family.Among(podIPs(pod)...)
		if !has || pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			continue
		}
		node := pod.Spec.NodeName
		address := corev1.EndpointAddress{IP: ip, NodeName: &node,
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}}
		if ready(pod) {
			all.Addresses = append(all.Addresses, address)
		} else {
			all.NotReadyAddresses = append(all.NotReadyAddresses, address)
		}
	}
	if len(all.Addresses)+len(all.NotReadyAddresses) == 0 {
		return nil
	}
	for _, port := range s.Spec.Ports {
		protocol := port.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		all.Ports = append(all.Ports, corev1.EndpointPort{Name: port.Name, Port: port.TargetPort.IntVal, Protocol: protocol})
	}
	return []corev1.EndpointSubset{all}
}
