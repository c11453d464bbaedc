package cluster

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Fleet describes the probe workers in a cluster.
type Fleet struct {
	Workers     int // of a Deployment; 0 for one on each node, by a DaemonSet
	Image       string
	HostNetwork bool     // in the network of their nodes
	Args        []string // of the image's program
	Env         map[string]string
	Port        int    // on which workers listen
	PathAlive   string // for readiness probes
}

// FleetName is the name of the fleet's objects, the label of its pods, and the prefix of their names.
const FleetName = "fleet"

// restricted is the pod's part of the Pod Security Standard restricted.
var restricted = &corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(65532)),
	SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}

// MakeFleet creates the workers in a run's namespace, and does not wait for their start.
func (c *Cluster) MakeFleet(ctx context.Context, namespace string, f Fleet) error {
	labels := map[string]string{"app": FleetName}
	meta := metav1.ObjectMeta{Name: FleetName, Namespace: namespace, Labels: labels}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	var err error
	if f.Workers == 0 {
		_, err = c.Client.AppsV1().DaemonSets(namespace).Create(ctx, &appsv1.DaemonSet{ObjectMeta: meta,
			Spec: appsv1.DaemonSetSpec{Selector: selector, Template: f.template(labels)}}, metav1.CreateOptions{})
	} else {
		_, err = c.Client.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{ObjectMeta: meta,
			Spec: appsv1.DeploymentSpec{Replicas: new(int32(f.Workers)), Selector: selector, Template: f.template(labels)}}, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("creating the fleet of probes: %w", Explain(err))
	}
	return nil
}

// Requests are the resource requests of a worker's pod.
func (f Fleet) Requests() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
}

func (f Fleet) template(labels map[string]string) corev1.PodTemplateSpec {
	worker := corev1.Container{
		Name: "worker", Image: f.Image, Args: f.Args,
		Ports:           []corev1.ContainerPort{{ContainerPort: int32(f.Port)}},
		Resources:       corev1.ResourceRequirements{Requests: f.Requests()},
		SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
		ReadinessProbe:  &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: f.PathAlive, Port: intstr.FromInt(f.Port)}}},
	}
	for name, value := range f.Env {
		worker.Env = append(worker.Env, corev1.EnvVar{Name: name, Value: value})
	}
	slices.SortFunc(worker.Env, func(a, b corev1.EnvVar) int { return strings.Compare(a.Name, b.Name) })
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
		HostNetwork: f.HostNetwork, SecurityContext: restricted, AutomountServiceAccountToken: new(false), Containers: []corev1.Container{worker},
		// Spread evenly, but start all workers.
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelHostname,
			WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: &metav1.LabelSelector{MatchLabels: labels}}},
	}}
}

// Worker is a pod of the fleet that has started.
type Worker struct{ Name, Node string }

// Workers lists the fleet's running pods, also terminating ones. The error names the reason why another pod has not started.
func (c *Cluster) Workers(ctx context.Context, namespace string) ([]Worker, error) {
	pods, err := c.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + FleetName})
	if err != nil {
		return nil, fmt.Errorf("listing the fleet's pods: %w", Explain(err))
	}
	var all []Worker
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Status.Phase == corev1.PodRunning {
			all = append(all, Worker{p.Name, p.Spec.NodeName})
		} else if why := waitReason(p); why != "" {
			err = fmt.Errorf("the pod %s waits: %s", p.Name, why)
		}
	}
	return all, err
}

// waitReason returns the cluster's reason why a pod has not started; empty without one.
func waitReason(p *corev1.Pod) string {
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && w.Message != "" {
			return w.Reason + ": " + w.Message
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Status == corev1.ConditionFalse && c.Message != "" {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}

// CallWorker sends an HTTP request to a pod of the fleet through the API server (pods/proxy), so the cluster needs no other access.
func (c *Cluster) CallWorker(ctx context.Context, namespace, pod string, port int, path string, query map[string]string) ([]byte, error) {
	return c.unlimited.CoreV1().Pods(namespace).ProxyGet("http", pod, strconv.Itoa(port), path, query).DoRaw(ctx)
}

// ClusterAddress returns the cluster IP of a Service with its first port.
func (c *Cluster) ClusterAddress(ctx context.Context, namespace, service string) (string, error) {
	s, err := c.Client.CoreV1().Services(namespace).Get(ctx, service, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("reading the cluster IP of the Service %s: %w", service, Explain(err))
	}
	if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone || len(s.Spec.Ports) == 0 {
		return "", fmt.Errorf("the Service %s has no cluster IP with a port that a fleet could measure", service)
	}
	return net.JoinHostPort(s.Spec.ClusterIP, strconv.Itoa(int(s.Spec.Ports[0].Port))), nil
}

// NeedsFleet are the additional verbs of a fleet.
func NeedsFleet(everywhere bool) []Verb {
	all := []Verb{{"get", "", "pods", "proxy", InRun}}
	if everywhere {
		all = append(all, Verb{"create", "apps", "daemonsets", "", InRun})
	}
	return all
}
