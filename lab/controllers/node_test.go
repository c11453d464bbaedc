package controllers

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestCordonedNodeGetsNoPod(t *testing.T) {
	client, replicas := api(t), int32(3)
	_, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"},
		Spec: corev1.NodeSpec{Unschedulable: true}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app": "web"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}}}}
	if _, err := client.AppsV1().Deployments("default").Create(ctx, d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	control(t, client)
	waitFor(t, "three pods", func() bool { return len(pods(t, client)) == 3 })
	for _, pod := range pods(t, client) {
		if pod.Spec.NodeName != "node-2" {
			t.Errorf("pod %s is on the cordoned %s", pod.Name, pod.Spec.NodeName)
		}
	}
}

// The pods of a node without heartbeats become unready, and so do their endpoints.
func TestPodsOfALostNodeBecomeUnready(t *testing.T) {
	client := api(t)
	if _, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for pod, node := range map[string]string{"gone": "node-1", "other": "node-2"} {
		created, err := client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: "default"},
			Spec: corev1.PodSpec{NodeName: node}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		makeReady(t, client, *created, "10.244.1.2")
	}
	if err := lose(ctx, client, "node-1"); err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods(t, client) {
		if ready(&pod) != (pod.Name == "other") {
			t.Errorf("pod %s on %s is ready: %t", pod.Name, pod.Spec.NodeName, ready(&pod))
		}
	}
	node, err := client.CoreV1().Nodes().Get(ctx, "node-1", metav1.GetOptions{})
	if err != nil || len(node.Status.Conditions) != 1 || node.Status.Conditions[0].Status != corev1.ConditionUnknown {
		t.Errorf("the lost node: %+v, %v", node.Status.Conditions, err)
	}
}

func TestNodeThatReturnsInTimeStaysReady(t *testing.T) {
	back, cancel := context.WithCancel(ctx)
	cancel()
	if err := Lose(back, nil, "node-1"); err != nil {
		t.Error(err)
	}
}
