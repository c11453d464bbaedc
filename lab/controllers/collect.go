package controllers

//lint:file-ignore SA1019 Endpoints are deprecated, and the only thing that kube-proxy up to 1.18 watches

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// managed labels what this controller writes of a Service's endpoints.
var managed = labels.Set{discoveryv1.LabelManagedBy: "hitless"}

// collect deletes the EndpointSlices and Endpoints of Services that are gone, as the garbage collector does.
func (c *controller) collect(ctx context.Context) error {
	left, _ := c.slices.List(managed.AsSelector())
	left = slices.DeleteFunc(left, func(s *discoveryv1.EndpointSlice) bool {
		return !c.gone(s.Namespace, s.Labels[discoveryv1.LabelServiceName])
	})
	for _, s := range inOrder(left) {
		if err := c.client.DiscoveryV1().EndpointSlices(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	old, _ := c.endpoints.List(managed.AsSelector())
	old = slices.DeleteFunc(old, func(e *corev1.Endpoints) bool { return !c.gone(e.Namespace, e.Name) })
	for _, e := range inOrder(old) {
		if err := c.client.CoreV1().Endpoints(e.Namespace).Delete(ctx, e.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// inOrder sorts what a cache lists as it likes: the same run does the same things in the same order.
func inOrder[T metav1.Object](all []T) []T {
	slices.SortFunc(all, func(a, b T) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return all
}

func (c *controller) gone(namespace, service string) bool {
	_, err := c.services.Services(namespace).Get(service)
	return apierrors.IsNotFound(err)
}
