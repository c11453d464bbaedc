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
	"k8s.io/client-go/tools/cache"
)

// managed labels what this controller writes of a Service's endpoints.
var managed = labels.Set{discoveryv1.LabelManagedBy: "hitless"}

// collect deletes the EndpointSlices and Endpoints of Services that are gone, as the garbage collector does.
func (c *controller) collect(ctx context.Context) error {
	left := slices.DeleteFunc(kept[*discoveryv1.EndpointSlice](c, "endpointslices"), func(s *discoveryv1.EndpointSlice) bool {
		return !c.gone(s.Namespace, s.Labels[discoveryv1.LabelServiceName])
	})
	for _, s := range left {
		if err := c.client.DiscoveryV1().EndpointSlices(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	old := slices.DeleteFunc(kept[*corev1.Endpoints](c, "endpoints"), func(e *corev1.Endpoints) bool { return !c.gone(e.Namespace, e.Name) })
	for _, e := range old {
		if err := c.client.CoreV1().Endpoints(e.Namespace).Delete(ctx, e.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// keep is the name of the index of what this controller keeps. A recorded cluster has thousands of Services with endpoints of their
// own, and each change of anything would go through all of them.
const keep = "keep"

var ours = cache.Indexers{keep: func(o any) ([]string, error) {
	mine := false
	switch o := o.(type) {
	case *corev1.Service:
		mine = len(o.Spec.Selector) > 0 || lacks(o)
	case metav1.Object:
		mine = managed.AsSelector().Matches(labels.Set(o.GetLabels()))
	}
	if !mine {
		return nil, nil
	}
	return []string{keep}, nil
}}

// kept are the objects of a resource that this controller keeps, sorted, since a cache lists them as it likes: the same run does the
// same things in the same order.
func kept[T metav1.Object](c *controller, resource string) (all []T) {
	objects, _ := c.own[resource].ByIndex(keep, keep) // an index that is not there is its only error
	for _, o := range objects {
		all = append(all, o.(T))
	}
	slices.SortFunc(all, func(a, b T) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return all
}

func (c *controller) gone(namespace, service string) bool {
	_, err := c.services.Services(namespace).Get(service)
	return apierrors.IsNotFound(err)
}
