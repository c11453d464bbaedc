package balancer

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// cleanupFinalizer keeps a Service until its load balancer is removed (LoadBalancerCleanupFinalizer of the service controller).
const cleanupFinalizer = "service.kubernetes.io/load-balancer-cleanup"

// finalizers keeps the finalizers of Services as the service controller of a cloud does. It has its own goroutine, like announcer.
type finalizers struct {
	client kubernetes.Interface
	log    *slog.Logger
	wake   chan struct{}

	mu      sync.Mutex
	pending map[types.UID]*corev1.Service // whose finalizers are to be changed
}

func newFinalizers(client kubernetes.Interface, log *slog.Logger) *finalizers {
	return &finalizers{client: client, log: log, wake: make(chan struct{}, 1), pending: map[types.UID]*corev1.Service{}}
}

// observe handles the newest state of a Service whose forwarding is up to date.
func (f *finalizers) observe(svc *corev1.Service, gone bool) {
	f.mu.Lock()
	delete(f.pending, svc.UID)
	if !gone && wantsFinalizer(svc) != slices.Contains(svc.Finalizers, cleanupFinalizer) {
		f.pending[svc.UID] = svc
	}
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// wantsFinalizer reports whether a Service has a load balancer of this lab.
func wantsFinalizer(svc *corev1.Service) bool {
	return svc.DeletionTimestamp == nil && svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Spec.LoadBalancerClass == nil
}

func (f *finalizers) run(ctx context.Context) {
	for {
		var again <-chan time.Time
		if f.writeAll(ctx) {
			again = time.After(retryStatus)
		}
		select {
		case <-f.wake:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

// writeAll writes what is pending, and reports whether a part of it failed. After a conflict a newer state comes.
func (f *finalizers) writeAll(ctx context.Context) (failed bool) {
	f.mu.Lock()
	all := make([]*corev1.Service, 0, len(f.pending))
	for _, svc := range f.pending {
		all = append(all, svc)
	}
	f.mu.Unlock()
	for _, svc := range all {
		err := f.write(ctx, svc)
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			if ctx.Err() == nil {
				f.log.Warn("writing a Service's finalizer", "service", keyOf(svc), "error", err, "again in", retryStatus)
			}
			failed = true
			continue
		}
		f.mu.Lock()
		if f.pending[svc.UID] == svc {
			delete(f.pending, svc.UID)
		}
		f.mu.Unlock()
	}
	return failed
}

func (f *finalizers) write(ctx context.Context, svc *corev1.Service) error {
	all := slices.DeleteFunc(slices.Clone(svc.Finalizers), func(name string) bool { return name == cleanupFinalizer })
	if wantsFinalizer(svc) {
		all = append(all, cleanupFinalizer)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": all, "resourceVersion": svc.ResourceVersion}})
	if err != nil {
		return fmt.Errorf("writing the finalizers of %s: %w", keyOf(svc), err)
	}
	_, err = f.client.CoreV1().Services(svc.Namespace).Patch(ctx, svc.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
