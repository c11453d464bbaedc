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

// Make makes a namespace for one run. Everything that the run makes stands in it, so that deleting it takes everything away; no
// finalizer of ours keeps it. Its Pod Security is restricted, or privileged when pods are to be in the network of their nodes.
func (c *Cluster) Make(ctx context.Context, scenario string, onHost bool) (name string, err error) {
	security := "restricted"
	if onHost {
		security = "privileged"
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "hitless-" + scenario + "-",
		Labels: map[string]string{ManagedBy: Managed, RunLabel: scenario, enforce: security}}}
	made, err := c.Client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("making the run's namespace: %w", Explain(err))
	}
	return made.Name, nil
}

// Remove deletes a namespace and waits until it is gone, for as long as most says. The error names what keeps it.
func (c *Cluster) Remove(ctx context.Context, name string, most time.Duration) error {
	err := c.Client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the namespace %s: %w; `hitless clean` tries again", name, Explain(err))
	}
	var last *corev1.Namespace
	var lost error
	gone := c.until(ctx, most, func(ctx context.Context) bool {
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
		return fmt.Errorf("the namespace %s is being deleted, but whether it is gone is not known: %w; `hitless clean` looks again", name, Explain(lost))
	default:
		return fmt.Errorf("the namespace %s is still there after %s: %s; `hitless clean` looks again", name, most, keeps(last))
	}
}

// keeps says what keeps a namespace from going, in the words of its conditions.
func keeps(ns *corev1.Namespace) string {
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
		return "it says nothing of what keeps it (phase " + string(ns.Status.Phase) + ")"
	}
	return strings.Join(why, "; ")
}

// Spaces lists the namespaces of runs, also of those that were killed.
func (c *Cluster) Spaces(ctx context.Context) ([]corev1.Namespace, error) {
	list, err := c.Client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: ManagedBy + "=" + Managed})
	if err != nil {
		return nil, fmt.Errorf("listing the namespaces of runs: %w", Explain(err))
	}
	return list.Items, nil
}
