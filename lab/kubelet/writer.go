package kubelet

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Timeout and retry interval of writes.
const (
	writeTimeout = 10 * time.Second
	writeAgain   = time.Second
)

// writer writes a pod's newest status to the API and finally deletes the pod. It has its own goroutine, so that a slow
// API does not delay a SIGTERM.
type writer struct {
	k         *kubelet
	namespace string
	name      string
	uid       types.UID

	mu     sync.Mutex
	status *corev1.PodStatus // the pending write
	remove bool              // a deletion is pending
	closed bool              // no more writes will come
	busy   bool              // a write is in progress or pending
	rv     string            // resource version of the last write
	signal chan struct{}

	// idle is called when nothing is left to write.
	idle func()
}

func newWriter(k *kubelet, object *corev1.Pod, idle func()) *writer {
	return &writer{k: k, namespace: object.Namespace, name: object.Name, uid: object.UID, idle: idle,
		signal: make(chan struct{}, 1)}
}

// put replaces the pending status.
func (w *writer) put(status corev1.PodStatus) {
	w.mu.Lock()
	w.status, w.busy = &status, true
	w.mu.Unlock()
	w.wake()
}

// finish ends the writes and deletes the pod from the API, unless it is gone.
func (w *writer) finish(gone bool) {
	w.mu.Lock()
	w.closed, w.remove = true, !gone
	if gone {
		w.status = nil
	}
	w.mu.Unlock()
	w.wake()
}

func (w *writer) wake() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// run writes until finish or the end of ctx.
func (w *writer) run(ctx context.Context) {
	for {
		select {
		case <-w.signal:
		case <-ctx.Done():
			return
		}
		if !w.drain(ctx) || w.hasEnded() {
			return
		}
		w.idle()
	}
}

// drain writes until nothing is pending; false means that ctx ended first.
func (w *writer) drain(ctx context.Context) bool {
	for {
		more, err := w.step(ctx)
		switch {
		case err != nil:
			w.k.Log.Warn("writing a pod's status failed; retrying", "pod", w.name, "error", err)
			if !pause(ctx, writeAgain) {
				return false
			}
		case !more:
			return true
		}
	}
}

// newerThanLastWrite reports whether an object is newer than the last write and no write is pending.
func (w *writer) newerThanLastWrite(object *corev1.Pod) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy || w.closed || w.rv == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(object.ResourceVersion, w.rv)
	return err == nil && order > 0
}

func (w *writer) hasEnded() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed && !w.remove && w.status == nil
}

// step does one write; more means that another one may be pending. A pod that is gone from the API, or was replaced
// under its name, needs no writes.
func (w *writer) step(ctx context.Context) (more bool, err error) {
	w.mu.Lock()
	status, remove := w.status, w.remove
	w.status = nil
	w.busy = status != nil || remove
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	switch {
	case status != nil:
		if err = w.patch(ctx, *status); err != nil {
			w.restore(status)
		}
	case remove:
		if err = w.delete(ctx); err == nil {
			w.mu.Lock()
			w.remove = false
			w.mu.Unlock()
		}
	default:
		return false, nil
	}
	return true, err
}

// restore makes a failed status pending again, unless a newer one is.
func (w *writer) restore(status *corev1.PodStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.status == nil {
		w.status = status
	}
}

func (w *writer) patch(ctx context.Context, status corev1.PodStatus) error {
	patch, err := statusPatch(string(w.uid), status)
	if err != nil {
		return fmt.Errorf("writing the status as a patch: %w", err)
	}
	after, err := w.k.Client.CoreV1().Pods(w.namespace).
		Patch(ctx, w.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return ignoreGone(err)
	}
	w.mu.Lock()
	w.rv = after.ResourceVersion
	w.mu.Unlock()
	return nil
}

func (w *writer) delete(ctx context.Context) error {
	var now int64
	return ignoreGone(w.k.Client.CoreV1().Pods(w.namespace).Delete(ctx, w.name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &w.uid}}))
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
