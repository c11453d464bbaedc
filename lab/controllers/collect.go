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
	for _, s := range kept[*discoveryv1.EndpointSlice](c, "endpointslices") {
		gone, err := c.gone(ctx, s.Namespace, s.Labels[discoveryv1.LabelServiceName])
		if err == nil && gone {
			err = c.client.DiscoveryV1().EndpointSlices(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{})
		}
		if err != nil {
			return err
		}
	}
	for _, e := range kept[*corev1.Endpoints](c, "endpoints") {
		gone, err := c.gone(ctx, e.Namespace, e.Name)
		if err == nil && gone {
			err = c.client.CoreV1().Endpoints(e.Namespace).Delete(ctx, e.Name, metav1.DeleteOptions{})
		}
		if err != nil {
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

// gone reports whether there is no such Service. What the cache does not have is asked for: its watch can be behind that of the endpoints.
func (c *controller) gone(ctx context.Context, namespace, service string) (bool, error) {
	_, err := c.services.Services(namespace).Get(service)
	if apierrors.IsNotFound(err) && service != "" {
		_, err = c.client.CoreV1().Services(namespace).Get(ctx, service, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return false, err
}
