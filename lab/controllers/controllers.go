// Package controllers has small replacements for the Deployment controller, the scheduler, the EndpointSlice and
// Endpoints controllers and, in part, the node lifecycle controller (Lose). With them a lab on the replay control plane
// runs the same scenarios as one on a real control plane, in seconds.
//
// They support rolling updates (maxSurge 1, maxUnavailable 0), anti-affinity by node and cordoned nodes. Other features
// need the real control plane.
package controllers

import (
	"cmp"
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

	"github.com/hitless/hitless/record"
)

type controller struct {
	client        kubernetes.Interface
	names         []string // the lab's nodes, in order
	nodes         corelisters.NodeLister
	deployments   appslisters.DeploymentLister
	pods          corelisters.PodLister
	services      corelisters.ServiceLister
	slices        discoverylisters.EndpointSliceLister
	endpoints     corelisters.EndpointsLister
	managedCaches map[string]cache.Indexer // objects that this controller manages, by resource
	created       map[string]int           // number of created pods, by Deployment (keyOf)
	expected      map[string]string        // the last created pod until the watch has delivered it, by Deployment (keyOf)
	family        record.Family
	nextAddrs     map[record.Family]netip.Addr
	nextPort      int32
	wake          chan struct{}
}

// Run reconciles Deployments, EndpointSlices and Endpoints of a cluster of a family until ctx ends. Pods are placed on the given nodes.
func Run(ctx context.Context, client kubernetes.Interface, family record.Family, nodes []string) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	c := &controller{
		client: client, names: nodes, created: map[string]int{}, expected: map[string]string{}, family: family, nextAddrs: firstClusterIPs(), nextPort: firstNodePort, wake: make(chan struct{}, 1),
		nodes:       factory.Core().V1().Nodes().Lister(),
		deployments: factory.Apps().V1().Deployments().Lister(),
		pods:        factory.Core().V1().Pods().Lister(),
		services:    factory.Core().V1().Services().Lister(),
		slices:      factory.Discovery().V1().EndpointSlices().Lister(),
		endpoints:   factory.Core().V1().Endpoints().Lister(),
		managedCaches: map[string]cache.Indexer{
			"services":       factory.Core().V1().Services().Informer().GetIndexer(),
			"endpointslices": factory.Discovery().V1().EndpointSlices().Informer().GetIndexer(),
			"endpoints":      factory.Core().V1().Endpoints().Informer().GetIndexer(),
		},
	}
	for _, indexer := range c.managedCaches {
		if err := indexer.AddIndexers(managedIndexers); err != nil {
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

// handler wakes the loop after every change; changes during a pass cause one more pass.
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
	slices.SortFunc(deployments, func(a, b *appsv1.Deployment) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Namespace, b.Namespace))
	})
	services := managedObjects[*corev1.Service](c, "services")
	for _, d := range deployments {
		c.report(ctx, "Deployment "+d.Name, c.syncDeployment(ctx, d))
	}
	for _, s := range services {
		c.report(ctx, "Service "+s.Name, c.syncService(ctx, s))
		c.report(ctx, "Endpoints "+s.Name, c.syncEndpoints(ctx, s))
	}
	c.report(ctx, "what Services left", c.collect(ctx))
}

// report logs an error. It ignores conflicts and existing objects, which come from a cache that lags: the pending
// change wakes the loop.
func (c *controller) report(ctx context.Context, what string, err error) {
	if err == nil || ctx.Err() != nil || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return
	}
	slog.Error("keeping it as it should be failed", "object", what, "err", err)
}

// podsOf returns the selected pods, sorted by name.
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
