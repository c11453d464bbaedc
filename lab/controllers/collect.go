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

// managed is the label of this controller's endpoint objects.
var managed = labels.Set{discoveryv1.LabelManagedBy: "hitless"}

// collect deletes the EndpointSlices and Endpoints of deleted Services, as the garbage collector does.
func (c *controller) collect(ctx context.Context) error {
	for _, s := range managedObjects[*discoveryv1.EndpointSlice](c, "endpointslices") {
		missing, err := c.serviceMissing(ctx, s.Namespace, s.Labels[discoveryv1.LabelServiceName])
		if err == nil && missing {
			err = c.client.DiscoveryV1().EndpointSlices(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{})
		}
		if err != nil {
			return err
		}
	}
	for _, e := range managedObjects[*corev1.Endpoints](c, "endpoints") {
		missing, err := c.serviceMissing(ctx, e.Namespace, e.Name)
		if err == nil && missing {
			err = c.client.CoreV1().Endpoints(e.Namespace).Delete(ctx, e.Name, metav1.DeleteOptions{})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// managedIndex is the index of the objects that this controller manages. A recorded cluster can have thousands of
// Services with their own endpoints, which each pass would otherwise list.
const managedIndex = "keep"

var managedIndexers = cache.Indexers{managedIndex: func(o any) ([]string, error) {
	mine := false
	switch o := o.(type) {
	case *corev1.Service:
		mine = len(o.Spec.Selector) > 0 || needsAllocation(o)
	case metav1.Object:
		mine = managed.AsSelector().Matches(labels.Set(o.GetLabels()))
	}
	if !mine {
		return nil, nil
	}
	return []string{managedIndex}, nil
}}

// managedObjects returns the managed objects of a resource, sorted, because the order of a cache is random and runs
// must be deterministic.
func managedObjects[T metav1.Object](c *controller, resource string) (all []T) {
	objects, _ := c.managedCaches[resource].ByIndex(managedIndex, managedIndex) // it fails only for an unknown index
	for _, o := range objects {
		all = append(all, o.(T))
	}
	slices.SortFunc(all, func(a, b T) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return all
}

// serviceMissing reports whether a Service does not exist. It asks the API when the cache has none, because the Service
// watch can lag behind that of the endpoints.
func (c *controller) serviceMissing(ctx context.Context, namespace, service string) (bool, error) {
	_, err := c.services.Services(namespace).Get(service)
	if apierrors.IsNotFound(err) && service != "" {
		_, err = c.client.CoreV1().Services(namespace).Get(ctx, service, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return false, err
}
