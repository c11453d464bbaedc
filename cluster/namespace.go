package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
)

// The labels of a run's namespace, by which `hitless clean` finds it.
const (
	ManagedBy = "app.kubernetes.io/managed-by"
	Managed   = "hitless"
	RunLabel  = "hitless/scenario"
	enforce   = "pod-security.kubernetes.io/enforce"
)

// MakeNamespace creates the namespace of a run. It contains all objects of the run, so its deletion removes them. Its Pod Security is
// restricted, or privileged for pods in the network of their nodes. The name is chosen here, so that the error has that of a namespace which
// may exist all the same.
func (c *Cluster) MakeNamespace(ctx context.Context, scenario string, onHost bool) (name string, err error) {
	security := "restricted"
	if onHost {
		security = "privileged"
	}
	name = "hitless-" + scenario + "-" + rand.String(5)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{ManagedBy: Managed, RunLabel: scenario, enforce: security}}}
	_, err = c.Client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
	switch {
	case err == nil:
		return name, nil
	case refused(err):
		return "", fmt.Errorf("creating the run's namespace: %w", Explain(err))
	}
	return "", fmt.Errorf("creating the run's namespace %s: %w; it may exist all the same, and `hitless clean` deletes it", name, Explain(err))
}

// refused reports whether an error of a write says that it did not happen: it never reached the server, or the server refused it. A client
// that repeats a write by itself may find that the object exists already.
func refused(err error) bool {
	var op *net.OpError
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &op):
		return op.Op == "dial"
	case errors.As(err, &status):
		code := status.Status().Code
		return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusRequestTimeout && code != http.StatusConflict
	}
	return false
}

// RemoveNamespace deletes a namespace and waits, at most for the given time, until it is deleted. The error names what blocks it.
func (c *Cluster) RemoveNamespace(ctx context.Context, name string, most time.Duration) error {
	err := c.Client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the namespace %s: %w; `hitless clean` tries again", name, Explain(err))
	}
	var last *corev1.Namespace
	var lost error
	gone := c.poll(ctx, most, func(ctx context.Context) bool {
		now, err := c.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		lost = err
		if err == nil {
			last = now
		}
		return apierrors.IsNotFound(err)
	})
	switch {
	case gone:
		return nil
	case lost != nil:
		return fmt.Errorf("the namespace %s is being deleted, with an unknown result: %w; `hitless clean` tries again", name, Explain(lost))
	default:
		return fmt.Errorf("the namespace %s still exists after %s: %s; `hitless clean` tries again", name, most, blockers(last))
	}
}

// blockers returns the conditions and finalizers that block the deletion of a namespace.
func blockers(ns *corev1.Namespace) string {
	if ns == nil {
		return "it could not be read"
	}
	var why []string
	for _, c := range ns.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			why = append(why, c.Message)
		}
	}
	if len(ns.Finalizers) > 0 {
		why = append(why, "finalizers on it: "+strings.Join(ns.Finalizers, ", "))
	}
	if len(why) == 0 {
		return "without a reason (phase " + string(ns.Status.Phase) + ")"
	}
	return strings.Join(why, "; ")
}

// Namespaces lists the namespaces of runs, also of runs that were killed.
func (c *Cluster) Namespaces(ctx context.Context) ([]corev1.Namespace, error) {
	list, err := c.Client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: ManagedBy + "=" + Managed})
	if err != nil {
		return nil, fmt.Errorf("listing the namespaces of runs: %w", Explain(err))
	}
	return list.Items, nil
}
