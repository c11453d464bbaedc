package scenarios

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/e2e-framework/klient/k8s"
)

// Others is the number of other Services, which a proxy must program besides the measured one.
var Others = newNumber("others", "0", "other Services of the cluster, each with endpoints and without traffic", 0, 10000).needing(ManyServices)

// programmedWithin is the time that proxies have to program all other Services.
const programmedWithin = 10 * time.Minute

// createOthers creates the other Services, and waits until each proxy serves the last of them. Their endpoints get no traffic, except
// for that of the last, which is a pod of the canary.
func (w *World) createOthers(ctx context.Context) error {
	n := Others.Of(w.Params)
	if n == 0 {
		return nil
	}
	return w.Step(ctx, fmt.Sprintf("create %d other Services", n), "", func(ctx context.Context) error {
		pod, err := w.recoveryPod(ctx)
		if err != nil {
			return err
		}
		for i := range n {
			h := &headless{name: fmt.Sprintf("other-%d", i+1), addresses: slices.Concat(otherAddresses(2*i), otherAddresses(2*i+1))}
			if i == n-1 {
				h.addresses = podIPs(pod)
			}
			for _, o := range h.objects(w) {
				if err := w.putObject(ctx, o); err != nil {
					return fmt.Errorf("creating the Service %s: %w", h.name, err)
				}
			}
		}
		return w.awaitOther(ctx, fmt.Sprintf("other-%d", n))
	})
}

// otherAddresses are the i-th addresses of the ranges for benchmarks (RFC 2544, RFC 5180), which the network of no site has.
func otherAddresses(i int) []string {
	i++
	return []string{fmt.Sprintf("198.%d.%d.%d", 18+i>>16, i>>8&0xff, i&0xff), fmt.Sprintf("2001:2::%x", i)}
}

// putObject creates an object, without a request where the site can: thousands of requests take minutes.
func (w *World) putObject(ctx context.Context, o k8s.Object) error {
	if plane, err := w.controlPlane(); err == nil {
		return plane.Put(o)
	}
	return w.Cluster.Create(ctx, o)
}

// awaitOther waits until a Service without a load balancer is served on each node.
func (w *World) awaitOther(ctx context.Context, name string) error {
	return w.Until(ctx, "the Service "+name+" on each node", programmedWithin, func(ctx context.Context) (bool, string, error) {
		var s corev1.Service
		if err := w.Cluster.Get(ctx, name, w.namespace(), &s); err != nil || s.Spec.ClusterIP == "" {
			return false, "it has no address", err
		}
		all, ctx := errgroup.WithContext(ctx)
		all.SetLimit(mostAttempts)
		for _, node := range w.Nodes {
			for _, f := range w.families() {
				all.Go(func() error {
					if err := w.Site.client.Over(ctx, node, f, &s); err != nil {
						return fmt.Errorf("over %s: %w", node, err)
					}
					return nil
				})
			}
		}
		err := all.Wait()
		return err == nil, "", err
	})
}
