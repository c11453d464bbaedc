package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The labels of a run's namespace, by which `hitless clean` finds it.
const (
	ManagedBy = "app.kubernetes.io/managed-by"
	Managed   = "hitless"
	RunLabel  = "hitless/scenario"
	enforce   = "pod-security.kubernetes.io/enforce"
)

// MakeNamespace creates the namespace of a run. It contains all objects of the run, so its deletion removes them. Its Pod Security is
// restricted, or privileged for pods in the network of their nodes.
func (c *Cluster) MakeNamespace(ctx context.Context, scenario string, onHost bool) (name string, err error) {
	security := "restricted"
	if onHost {
		security = "privileged"
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "hitless-" + scenario + "-",
		Labels: map[string]string{ManagedBy: Managed, RunLabel: scenario, enforce: security}}}
	made, err := c.Client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("creating the run's namespace: %w", Explain(err))
	}
	return made.Name, nil
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
