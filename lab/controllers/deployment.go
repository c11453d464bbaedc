package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// syncDeployment does one step towards the Deployment's template: it creates one pod or deletes one old pod, and writes
// the status. The resulting change wakes the loop for the next step.
func (c *controller) syncDeployment(ctx context.Context, d *appsv1.Deployment) error {
	hash, err := templateHash(d)
	if err != nil {
		return err
	}
	if lags, err := c.lags(ctx, d); lags || err != nil {
		return err // the watch event of the new pod wakes the loop
	}
	// A ReplicaSet would not select a pod without the label.
	all := slices.DeleteFunc(c.podsOf(d.Namespace, d.Spec.Selector.MatchLabels), func(pod *corev1.Pod) bool {
		return pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == ""
	})
	var current, old, available int
	var oldest *corev1.Pod
	for _, pod := range all {
		switch {
		case pod.DeletionTimestamp != nil:
			continue
		case pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == hash:
			current++
		default:
			old++
			oldest = pod
		}
		if ready(pod) {
			available++
		}
	}
	want := int(*d.Spec.Replicas)
	switch {
	case current < want && current+old < want+1:
		err = c.create(ctx, d, hash, all)
	case old > 0 && available > want:
		err = c.client.CoreV1().Pods(d.Namespace).Delete(ctx, oldest.Name, metav1.DeleteOptions{})
	case current > want && oldest == nil:
		err = c.shrink(ctx, d, all)
	}
	if err != nil {
		return err
	}
	return c.writeStatus(ctx, d, current, old, available)
}

// keyOf names a Deployment among those of all namespaces.
func keyOf(d *appsv1.Deployment) string { return d.Namespace + "/" + d.Name }

// lags reports whether the watch has not yet delivered the last created pod; the pods would be miscounted.
func (c *controller) lags(ctx context.Context, d *appsv1.Deployment) (bool, error) {
	name := c.expected[keyOf(d)]
	if name == "" {
		return false, nil
	}
	if _, err := c.pods.Pods(d.Namespace).Get(name); apierrors.IsNotFound(err) {
		_, err := c.client.CoreV1().Pods(d.Namespace).Get(ctx, name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) { // NotFound: it has been deleted already
			return true, err
		}
	}
	delete(c.expected, d.Name)
	return false, nil
}

func (c *controller) shrink(ctx context.Context, d *appsv1.Deployment, all []*corev1.Pod) error {
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].DeletionTimestamp == nil {
			return c.client.CoreV1().Pods(d.Namespace).Delete(ctx, all[i].Name, metav1.DeleteOptions{})
		}
	}
	return nil
}

func templateHash(d *appsv1.Deployment) (string, error) {
	data, err := json.Marshal(d.Spec.Template)
	if err != nil {
		return "", fmt.Errorf("hashing the pod template: %w", err)
	}
	h := fnv.New32a()
	h.Write(data)
	return fmt.Sprintf("%08x", h.Sum32()), nil
}

func (c *controller) create(ctx context.Context, d *appsv1.Deployment, hash string, all []*corev1.Pod) error {
	node := c.place(d, all)
	if node == "" {
		return nil // the deletion of a pod frees a node and wakes the loop
	}
	number := c.created[keyOf(d)] + 1
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprintf("%s-%s-%d", d.Name, hash, number), Namespace: d.Namespace,
		Labels: maps.Clone(d.Spec.Template.Labels), Annotations: maps.Clone(d.Spec.Template.Annotations)},
		Spec: *d.Spec.Template.Spec.DeepCopy()}
	pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
	pod.Spec.NodeName = node
	_, err := c.client.CoreV1().Pods(d.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err == nil {
		c.created[keyOf(d)], c.expected[keyOf(d)] = number, pod.Name
	}
	return err
}

// place returns the node with the fewest pods of the Deployment, the next in turn among equals, or "" when
// anti-affinity leaves no node. Cordoned and unready nodes get no pods.
func (c *controller) place(d *appsv1.Deployment, all []*corev1.Pod) string {
	count := map[string]int{}
	for _, pod := range all {
		count[pod.Spec.NodeName]++
	}
	best := ""
	for i := range c.names {
		node := c.names[(i+c.created[keyOf(d)])%len(c.names)]
		if !c.schedulable(node) {
			continue
		}
		if best == "" || count[node] < count[best] {
			best = node
		}
	}
	if best == "" {
		return ""
	}
	affinity := d.Spec.Template.Spec.Affinity
	if affinity != nil && affinity.PodAntiAffinity != nil && count[best] > 0 {
		return ""
	}
	return best
}

func (c *controller) writeStatus(ctx context.Context, d *appsv1.Deployment, current, old, available int) error {
	status := appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: int32(current + old),
		UpdatedReplicas: int32(current), ReadyReplicas: int32(available), AvailableReplicas: int32(available)}
	s := d.Status
	if s.ObservedGeneration == status.ObservedGeneration && s.Replicas == status.Replicas && s.UpdatedReplicas == status.UpdatedReplicas &&
		s.AvailableReplicas == status.AvailableReplicas {
		return nil
	}
	d = d.DeepCopy()
	d.Status = status
	_, err := c.client.AppsV1().Deployments(d.Namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{})
	return err
}
