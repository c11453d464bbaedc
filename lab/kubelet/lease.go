package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// leaseSeconds is the kubelet's default nodeLeaseDurationSeconds.
const leaseSeconds = 40

// heartbeat renews the node's lease until ctx ends, or with a negative Lease reports the node ready once.
func (k *kubelet) heartbeat(ctx context.Context) {
	if k.Lease >= 0 {
		k.keepLease(ctx)
	} else if err := k.reportReady(ctx, time.Now()); err != nil && ctx.Err() == nil {
		k.Log.Warn("reporting the node ready", "error", err)
	}
}

// keepLease renews the node's lease until ctx ends. Without renewals the node lifecycle controller sets the Ready
// condition to Unknown; only the kubelet sets it to True again.
func (k *kubelet) keepLease(ctx context.Context) {
	ticker := time.NewTicker(k.Lease)
	defer ticker.Stop()
	var lease *coordinationv1.Lease
	var renewed time.Time
	for {
		now := time.Now()
		next, err := k.renew(ctx, lease, now)
		if err == nil && now.Sub(renewed) > leaseSeconds*time.Second {
			err = k.reportReady(ctx, now)
		}
		if err == nil {
			lease, renewed = next, now
		} else if lease = nil; ctx.Err() == nil {
			k.Log.Warn("renewing the node's lease", "error", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// renew updates a lease; a nil lease is first read or created.
func (k *kubelet) renew(ctx context.Context, lease *coordinationv1.Lease, now time.Time) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, k.Lease)
	defer cancel()
	api := k.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	write := func(l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
		return api.Update(ctx, l, metav1.UpdateOptions{})
	}
	if lease == nil {
		known, err := api.Get(ctx, k.name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		if lease = known; err != nil {
			lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: k.name}}
			write = func(l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
				return api.Create(ctx, l, metav1.CreateOptions{})
			}
		}
	}
	seconds, at := int32(leaseSeconds), metav1.NewMicroTime(now)
	lease = lease.DeepCopy()
	lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &k.name, LeaseDurationSeconds: &seconds, RenewTime: &at}
	return write(lease)
}

// reportReady sets the node's Ready condition to True, at the start and after missed heartbeats.
func (k *kubelet) reportReady(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, DefaultLease)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
		Message:           "the lab's kubelet runs",
		LastHeartbeatTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(now),
	}}}})
	if err != nil {
		return err
	}
	_, err = k.Client.CoreV1().Nodes().Patch(ctx, k.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("reporting the node ready: %w", err)
	}
	return nil
}
