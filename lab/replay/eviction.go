package replay

import (
	"encoding/json"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// serveEviction deletes a pod unless a PodDisruptionBudget forbids it; then the answer is 429, as in the real server.
// The real server uses the budget's status, which the disruption controller writes; this one counts the pods.
func (s *Server) serveEviction(w http.ResponseWriter, q *request) error {
	u, err := body(q.Request)
	if err != nil {
		return err
	}
	var eviction policyv1.Eviction
	if u != nil {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &eviction); err != nil {
			return apierrors.NewBadRequest(fmt.Sprintf("the eviction cannot be read: %v", err))
		}
	}
	var opts metav1.DeleteOptions
	if eviction.DeleteOptions != nil {
		opts = *eviction.DeleteOptions
	}
	s.mu.Lock()
	err = s.evict(q, opts)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	data, err := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
	if err != nil {
		return err
	}
	write(w, q.media, http.StatusCreated, data)
	return nil
}

func (s *Server) evict(q *request, opts metav1.DeleteOptions) error {
	o, err := q.store.get(q.key)
	if err != nil {
		return err
	}
	for _, b := range s.byResource("policy", "v1", "poddisruptionbudgets").sorted() {
		if b.key.namespace != q.key.namespace {
			continue
		}
		if err := allows(b, o, q.store); err != nil {
			return err
		}
	}
	_, _, err = s.remove(q.store, q.key, opts)
	return err
}

// allows returns an error if a budget that covers the pod has no healthy pod to spare.
func allows(budget, pod *object, pods *store) error {
	var b policyv1.PodDisruptionBudget
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(budget.content.Object, &b); err != nil {
		return fmt.Errorf("reading the PodDisruptionBudget %s: %w", budget.key.name, err)
	}
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("the selector of the PodDisruptionBudget %s: %v", b.Name, err))
	}
	if !selector.Matches(labels.Set(pod.labels)) {
		return nil
	}
	least := b.Spec.MinAvailable
	if least == nil || least.Type != intstr.Int {
		return apierrors.NewBadRequest("the replay control plane knows PodDisruptionBudgets with minAvailable as a whole number only; " + b.Name + " is another")
	}
	left := 0
	for _, other := range pods.sorted() {
		if other.key != pod.key && other.key.namespace == pod.key.namespace && selector.Matches(labels.Set(other.labels)) && healthy(other) {
			left++
		}
	}
	if left >= least.IntValue() {
		return nil
	}
	return apierrors.NewTooManyRequests(fmt.Sprintf("Cannot evict pod as it would violate the pod's disruption budget: %s needs %d healthy pods, %d would be left",
		b.Name, least.IntValue(), left), 0)
}

// healthy reports whether a pod counts for a budget: ready and not terminating.
func healthy(pod *object) bool {
	var p corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(pod.content.Object, &p); err != nil || p.DeletionTimestamp != nil {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
