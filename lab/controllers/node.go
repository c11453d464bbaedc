package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Lost is how long the node lifecycle controller waits for a heartbeat before it marks a node unready: the default
// --node-monitor-grace-period since 1.32.
const Lost = 50 * time.Second

// schedulable reports whether pods may be placed on a node. Nodes without a Node object are schedulable, since tests
// have such nodes.
func (c *controller) schedulable(name string) bool {
	node, err := c.nodes.Get(name)
	if err != nil {
		return true
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			return false
		}
	}
	return !node.Spec.Unschedulable
}

// Lose marks a node as the node lifecycle controller does after missed heartbeats: after Lost the Ready condition
// becomes Unknown and the node's pods unready. It returns nil early when ctx ends, because the node is back.
func Lose(ctx context.Context, client kubernetes.Interface, node string) error {
	timer := time.NewTimer(Lost)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil
	}
	err := lose(ctx, client, node)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func lose(ctx context.Context, client kubernetes.Interface, node string) error {
	unknown, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{{Type: corev1.NodeReady,
		Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", Message: "the node has no power"}}}})
	if err != nil {
		return err
	}
	if _, err := client.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, unknown, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("marking node %s unready: %w", node, err)
	}
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return fmt.Errorf("listing the pods of %s: %w", node, err)
	}
	unready, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.PodCondition{{Type: corev1.PodReady,
		Status: corev1.ConditionFalse, Reason: "NodeNotReady"}}}})
	if err != nil {
		return err
	}
	for _, pod := range pods.Items {
		_, err := client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, unready, metav1.PatchOptions{}, "status")
		if err != nil {
			return fmt.Errorf("marking pod %s of node %s unready: %w", pod.Name, node, err)
		}
	}
	return nil
}
