package lab

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/hitless/hitless/lab/kubelet"
	"github.com/hitless/hitless/lab/subject"
)

// The DaemonSet of the proxies has the names of kubeadm's.
const (
	proxyName  = subject.KubeProxy
	nodeName   = "NODE_NAME" // environment variable
	healthPort = 10256       // of every kube-proxy
)

// proxyImages are the kube-proxies that pods can run; none in a lab without the DaemonSet.
func (l *Lab) proxyImages() kubelet.Proxies {
	if !l.choice.DaemonSet {
		return kubelet.Proxies{}
	}
	p := kubelet.Proxies{Programs: map[string]string{}, Kubeconfig: l.Kubeconfig}
	for _, s := range l.choice.Subjects {
		p.Programs[s.Spec.Version] = s.Path
	}
	return p
}

// ProxyImage is the image of a kube-proxy for pods of the lab.
func ProxyImage(version string) string { return "registry.k8s.io/kube-proxy:" + version }

// startDaemonSet creates the DaemonSet of the subject and waits until each node has a ready pod with a ready proxy.
func (l *Lab) startDaemonSet(ctx context.Context) error {
	set := proxyDaemonSet(l.choice.Subjects[0], l.choice.SubjectEnv)
	if _, err := l.Client.AppsV1().DaemonSets(set.Namespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the DaemonSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	err := l.Proxies.AwaitReady(ctx)
	if err == nil {
		err = l.awaitProxyPods(ctx, set)
	}
	if err != nil {
		return fmt.Errorf("%w\nThe pods of the DaemonSet %s/%s:%s", err, set.Namespace, set.Name, l.describeProxyPods(ctx, set))
	}
	return nil
}

// podsReadyTimeout bounds the time from a proxy's readiness until the API shows that of its pod.
const podsReadyTimeout = 30 * time.Second

// awaitProxyPods waits until the API shows a ready pod of the DaemonSet on each node.
func (l *Lab) awaitProxyPods(ctx context.Context, set *appsv1.DaemonSet) error {
	for end := l.cfg.Now() + podsReadyTimeout; ; {
		now, err := l.Client.AppsV1().DaemonSets(set.Namespace).Get(ctx, set.Name, metav1.GetOptions{})
		switch {
		case err != nil:
			return fmt.Errorf("reading the DaemonSet %s/%s: %w", set.Namespace, set.Name, err)
		case int(now.Status.NumberReady) == len(l.Net.Nodes):
			return nil
		case l.cfg.Now() > end:
			return fmt.Errorf("the proxies are ready, but only %d of %d pods after %s", now.Status.NumberReady, len(l.Net.Nodes), podsReadyTimeout)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond): // interval of the checks
		}
	}
}

// proxyDaemonSet is kubeadm's DaemonSet with the subject's flags in the place of a configuration file, and with a
// readiness probe of the page that load balancers check.
func proxyDaemonSet(p subject.Program, env []string) *appsv1.DaemonSet {
	labels := map[string]string{"k8s-app": proxyName}
	one, privileged := intstr.FromInt32(1), true
	c := corev1.Container{Name: proxyName, Image: ProxyImage(p.Spec.Version), Command: []string{"/usr/local/bin/kube-proxy"},
		Args:            p.Spec.Args("$("+nodeName+")", kubelet.ProxyKubeconfig, p.Fallback),
		SecurityContext: &corev1.SecurityContext{Privileged: &privileged},
		Env:             []corev1.EnvVar{{Name: nodeName, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}},
		ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(healthPort)}}}}
	for _, variable := range env {
		name, value, _ := strings.Cut(variable, "=")
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
	}
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: proxyName, Labels: labels},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &one}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				HostNetwork: true, Containers: []corev1.Container{c}, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}}}}}
}

// describeProxyPods returns the state of the DaemonSet's containers and the ends of their logs, for an error message.
func (l *Lab) describeProxyPods(ctx context.Context, set *appsv1.DaemonSet) string {
	pods, err := l.Client.CoreV1().Pods(set.Namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(set.Spec.Selector)})
	if err != nil {
		return " " + err.Error()
	}
	text := fmt.Sprintf(" %d", len(pods.Items))
	for _, pod := range pods.Items {
		for _, c := range pod.Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil {
				text += fmt.Sprintf("\n%s on %s waits: %s: %s", pod.Name, pod.Spec.NodeName, w.Reason, w.Message)
			}
			text += fmt.Sprintf("\n%s on %s, the end of its log:\n%s", pod.Name, pod.Spec.NodeName, l.Procs.Tail(kubelet.LogName(pod.Namespace, pod.Name, c.Name), 5))
		}
	}
	return text
}
