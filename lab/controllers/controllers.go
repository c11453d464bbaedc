// Package controllers has small stand-ins for the Deployment controller, the scheduler and the controllers of endpoint
// slices and of Endpoints, so that a lab on the replay control plane can run the same scenarios as one on a real control
// plane, in seconds. They know rolling updates (one pod more, none less), anti-affinity by node, cordoned nodes, and
// nodes that are lost (Lose). Runs that must be real use the real control plane.
package controllers

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
)

type controller struct {
	client      kubernetes.Interface
	names       []string // of the lab's nodes, in their order
	nodes       corelisters.NodeLister
	deployments appslisters.DeploymentLister
	pods        corelisters.PodLister
	services    corelisters.ServiceLister
	slices      discoverylisters.EndpointSliceLister
	endpoints   corelisters.EndpointsLister
	own         map[string]cache.Indexer // what this controller keeps, by resource
	made        map[string]int           // pods made so far, by Deployment
	expected    map[string]string        // the pod made last, until the watch has shown it, by Deployment
	nextAddr    netip.Addr
	nextPort    int32
	wake        chan struct{}
}

// Run keeps Deployments, EndpointSlices and Endpoints as they should be until ctx ends. Pods go to the given nodes.
func Run(ctx context.Context, client kubernetes.Interface, nodes []string) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	c := &controller{
		client: client, names: nodes, made: map[string]int{}, expected: map[string]string{}, nextAddr: firstClusterIP, nextPort: firstNodePort, wake: make(chan struct{}, 1),
		nodes:       factory.Core().V1().Nodes().Lister(),
		deployments: factory.Apps().V1().Deployments().Lister(),
		pods:        factory.Core().V1().Pods().Lister(),
		services:    factory.Core().V1().Services().Lister(),
		slices:      factory.Discovery().V1().EndpointSlices().Lister(),
		endpoints:   factory.Core().V1().Endpoints().Lister(),
		own: map[string]cache.Indexer{
			"services":       factory.Core().V1().Services().Informer().GetIndexer(),
			"endpointslices": factory.Discovery().V1().EndpointSlices().Informer().GetIndexer(),
			"endpoints":      factory.Core().V1().Endpoints().Informer().GetIndexer(),
		},
	}
	for _, indexer := range c.own {
		if err := indexer.AddIndexers(ours); err != nil {
			return fmt.Errorf("watching the replay control plane: %w", err)
		}
	}
	for _, informer := range []cache.SharedIndexInformer{
		factory.Apps().V1().Deployments().Informer(), factory.Core().V1().Pods().Informer(),
		factory.Core().V1().Services().Informer(), factory.Discovery().V1().EndpointSlices().Informer(),
		factory.Core().V1().Endpoints().Informer(), factory.Core().V1().Nodes().Informer(),
	} {
		if _, err := informer.AddEventHandler(c.handler()); err != nil {
			return fmt.Errorf("watching the replay control plane: %w", err)
		}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for {
		select {
		case <-ctx.Done():
			factory.Shutdown()
			return nil
		case <-c.wake:
			c.sync(ctx)
		}
	}
}

// handler wakes the one loop at every change; what is queued meanwhile is one change.
func (c *controller) handler() cache.ResourceEventHandler {
	poke := func() {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { poke() },
		UpdateFunc: func(any, any) { poke() },
		DeleteFunc: func(any) { poke() },
	}
}

func (c *controller) sync(ctx context.Context) {
	deployments, _ := c.deployments.List(labels.Everything())
	slices.SortFunc(deployments, func(a, b *appsv1.Deployment) int { return strings.Compare(a.Name, b.Name) })
	services := kept[*corev1.Service](c, "services")
	for _, d := range deployments {
		c.report(ctx, "Deployment "+d.Name, c.syncDeployment(ctx, d))
	}
	for _, s := range services {
		c.report(ctx, "Service "+s.Name, c.syncService(ctx, s))
		c.report(ctx, "Endpoints "+s.Name, c.syncEndpoints(ctx, s))
	}
	c.report(ctx, "what Services left", c.collect(ctx))
}

// report logs an error. A conflict or an object that is already there comes from a cache that lags: the change on its
// way wakes the loop again.
func (c *controller) report(ctx context.Context, what string, err error) {
	if err == nil || ctx.Err() != nil || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return
	}
	slog.Error("keeping it as it should be failed", "object", what, "err", err)
}

// podsOf are the pods that a selector selects, sorted by name.
func (c *controller) podsOf(namespace string, selector map[string]string) []*corev1.Pod {
	pods, _ := c.pods.Pods(namespace).List(labels.SelectorFromSet(selector))
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods
}

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
