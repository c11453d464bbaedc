package balancer

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// retryStatus is the wait after a failed status write.
const retryStatus = time.Second

// announcer writes addresses into the status of Services. It has its own goroutine, so that a slow API server does not
// delay forwarding.
type announcer struct {
	client kubernetes.Interface
	log    *slog.Logger
	wake   chan struct{}

	mu    sync.Mutex
	order []string // waiting keys, oldest first
	addrs map[string][]netip.Addr
}

func newAnnouncer(client kubernetes.Interface, log *slog.Logger) *announcer {
	return &announcer{client: client, log: log, wake: make(chan struct{}, 1), addrs: map[string][]netip.Addr{}}
}

// announce queues a write of the addresses, which replace all others.
func (a *announcer) announce(key string, addrs []netip.Addr) {
	a.mu.Lock()
	if !slices.Contains(a.order, key) {
		a.order = append(a.order, key)
	}
	a.addrs[key] = addrs
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// removePending drops the queued write of a deleted Service.
func (a *announcer) removePending(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.order = slices.DeleteFunc(a.order, func(k string) bool { return k == key })
	delete(a.addrs, key)
}

func (a *announcer) next() (key string, addrs []netip.Addr, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.order) == 0 {
		return "", nil, false
	}
	key = a.order[0]
	a.order = a.order[1:]
	addrs = a.addrs[key]
	delete(a.addrs, key)
	return key, addrs, true
}

// requeue queues a failed write again, unless a newer one is queued.
func (a *announcer) requeue(key string, addrs []netip.Addr) {
	a.mu.Lock()
	_, newer := a.addrs[key]
	a.mu.Unlock()
	if !newer {
		a.announce(key, addrs)
	}
}

func (a *announcer) run(ctx context.Context) {
	for {
		key, addrs, ok := a.next()
		if !ok {
			select {
			case <-ctx.Done():
				return
			case <-a.wake:
			}
			continue
		}
		err := a.write(ctx, key, addrs)
		if err == nil || apierrors.IsNotFound(err) {
			continue
		}
		if ctx.Err() != nil {
			return
		}
		a.log.Warn("writing a Service's external address", "service", key, "error", err, "again in", retryStatus)
		a.requeue(key, addrs)
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryStatus):
		}
	}
}

func (a *announcer) write(ctx context.Context, key string, addrs []netip.Addr) error {
	namespace, name, _ := strings.Cut(key, "/")
	mode := corev1.LoadBalancerIPModeVIP
	ingress := []corev1.LoadBalancerIngress{}
	for _, addr := range addrs {
		ingress = append(ingress, corev1.LoadBalancerIngress{IP: addr.String(), IPMode: &mode})
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"loadBalancer": map[string]any{"ingress": ingress}}})
	if err != nil {
		return fmt.Errorf("writing the status of %s: %w", key, err)
	}
	_, err = a.client.CoreV1().Services(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
