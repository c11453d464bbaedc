package scenarios

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hitless/hitless/record"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/e2e-framework/klient/k8s/resources"
)

const (
	// Image is the test image of the end-to-end tests of Kubernetes. The lab maps it to its built-in backend; a live
	// cluster pulls it.
	Image = "registry.k8s.io/e2e-test-images/agnhost:2.53"
	port  = 80
)

// workload is a Deployment behind a Service of type LoadBalancer.
type workload struct {
	name     string
	replicas int
	policy   corev1.ServiceExternalTrafficPolicy
	gated    bool // its pods have a readiness gate
	// datagrams adds a UDP port with the same number to the Service.
	datagrams bool
	special   []corev1.ServicePort     // instead of the usual ports; nil for those
	targets   map[record.Family]target // for lanes, once they are known
	wrong     map[string]wrongNode     // in the load balancer, by the last wait for the right nodes
}

// The ports of the backend, by default those of agnhost netexec.
const (
	httpPort = 8080
	udpPort  = 8081
)

func (k *workload) ports() []corev1.ServicePort {
	if k.special != nil {
		return k.special
	}
	all := []corev1.ServicePort{{Name: "http", Port: port, TargetPort: intstr.FromInt32(httpPort), Protocol: corev1.ProtocolTCP}}
	if k.datagrams {
		all = append(all, corev1.ServicePort{Name: "udp", Port: port, TargetPort: intstr.FromInt32(udpPort), Protocol: corev1.ProtocolUDP})
	}
	return all
}

// answersLocally reports whether only pods on the node of an attempt can answer it.
func (k *workload) answersLocally(w *World) bool {
	return k.policy == corev1.ServiceExternalTrafficPolicyLocal && w.Params.ThroughBalancer()
}

func (k *workload) service(w *World) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: k.name, Namespace: w.namespace()},
		Spec: corev1.ServiceSpec{
			Type:                  cmp.Or(w.ServiceType, corev1.ServiceTypeLoadBalancer),
			ExternalTrafficPolicy: k.policy,
			Selector:              map[string]string{"app": k.name},
			Ports:                 k.ports(),
		},
	}
	w.shapeFamilies(&s.Spec)
	return k.shapeService(w, s)
}

// deployment replaces one pod at a time and never has fewer than the wanted number.
func (k *workload) deployment(w *World) *appsv1.Deployment {
	p := w.Params
	labels := map[string]string{"app": k.name}
	grace := int64(GracePeriod.Of(p).Seconds())
	zero, one := intstr.FromInt32(0), intstr.FromInt32(1)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: k.name, Namespace: w.namespace()},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr(int32(k.replicas)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &zero, MaxSurge: &one}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: &grace,
					Affinity:                      k.affinity(w),
					ReadinessGates:                k.readinessGates(),
					SecurityContext:               restricted,
					AutomountServiceAccountToken:  ptr(false),
					Containers:                    []corev1.Container{k.container(p)},
				},
			},
		},
	}
}

// restricted is the pod security context of the Pod Security Standard restricted. The user id is arbitrary, but not
// root.
var restricted = &corev1.PodSecurityContext{RunAsNonRoot: ptr(true), RunAsUser: ptr(int64(65532)),
	SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}

func (k *workload) container(p Params) corev1.Container {
	c := corev1.Container{
		Name: "backend", Image: Image,
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")}},
		SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr(false),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
		Args:  []string{"netexec", "--http-port=8080", "--delay-shutdown=" + strconv.Itoa(int(shutdownDelay.Of(p).Seconds()))},
		Ports: []corev1.ContainerPort{{ContainerPort: httpPort}},
		ReadinessProbe: &corev1.Probe{PeriodSeconds: int32(readinessPeriod.Of(p).Seconds()), FailureThreshold: 1, ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(httpPort)}}},
	}
	if stop := PreStop.Of(p); stop > 0 {
		c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: int64(stop.Seconds())}}}
	}
	return c
}

func (k *workload) readinessGates() []corev1.PodReadinessGate {
	if !k.gated {
		return nil
	}
	return []corev1.PodReadinessGate{{ConditionType: gate}}
}

func (k *workload) affinity(w *World) *corev1.Affinity {
	a := k.antiAffinity(w.Params)
	if node := nodeChoice.Of(w.Params); !w.balancerKnown() && k == w.run.main && node != "" { // the disturbed node needs a pod
		if a == nil {
			a = &corev1.Affinity{}
		}
		a.NodeAffinity = &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 100,
			Preference: corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}}}
	}
	return a
}

// antiAffinity keeps the pods to different nodes.
func (k *workload) antiAffinity(p Params) *corev1.Affinity {
	if !AntiAffinity.Of(p) {
		return nil
	}
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": k.name}},
			TopologyKey:   corev1.LabelHostname,
		}}}}
}

// deploy creates the workload and waits until it serves.
func (k *workload) deploy(ctx context.Context, w *World) error {
	if err := w.Cluster.Create(ctx, k.deployment(w)); err != nil {
		return fmt.Errorf("creating the Deployment %s: %w", k.name, err)
	}
	return k.publish(ctx, w)
}

// publish creates the workload's Service and waits until it serves: pods ready, an address known, membership right, answers.
func (k *workload) publish(ctx context.Context, w *World) error {
	if err := w.Cluster.Create(ctx, k.service(w)); err != nil {
		return fmt.Errorf("creating the Service %s: %w", k.name, err)
	}
	if err := k.awaitRollout(ctx, w, 2*time.Minute); err != nil {
		return err
	}
	if err := k.awaitTarget(ctx, w); err != nil {
		return err
	}
	if err := k.awaitMembers(ctx, w, 2*time.Minute); err != nil {
		return err
	}
	return k.awaitAnswers(ctx, w)
}

// awaitTarget waits until the address of the Service is known.
func (k *workload) awaitTarget(ctx context.Context, w *World) error {
	if t, err := part[Targets](w.Site, SiteTargets); err == nil {
		tcp, err := t.Target(ctx, k.service(w))
		k.targets = map[record.Family]target{w.families()[0]: {tcp: tcp}}
		return err
	}
	return w.Until(ctx, "an address for the Service "+k.name, time.Minute, func(ctx context.Context) (bool, string, error) {
		var s corev1.Service
		if err := w.Cluster.Get(ctx, k.name, w.namespace(), &s); err != nil {
			return false, "", err
		}
		k.targets = map[record.Family]target{}
		for _, f := range w.families() {
			found, err := k.findTarget(ctx, w, f, &s)
			if err != nil || found.tcp == "" {
				return false, missing(w.Params), err
			}
			k.targets[f] = found
		}
		return true, "", nil
	})
}

// consecutiveAnswers is the number of successful connections in a row before a Service counts as set up. With three
// nodes the probability that a node got none is 1 in 60,000.
const consecutiveAnswers = 30

// awaitAnswers waits until the Service answers over each node. Losses before that belong to the setup.
func (k *workload) awaitAnswers(ctx context.Context, w *World) error {
	for _, f := range w.families() {
		if err := k.awaitAnswersOf(ctx, w, f); err != nil {
			return err
		}
	}
	return nil
}

// awaitAnswersOf is awaitAnswers for one family.
func (k *workload) awaitAnswersOf(ctx context.Context, w *World, f record.Family) error {
	networks := []string{"tcp"}
	if k.datagrams {
		networks = append(networks, "udp")
	}
	for _, network := range networks {
		target := k.targetFor(f, record.ProtocolNew)
		if network == "udp" {
			target = k.targetFor(f, record.ProtocolFresh)
		}
		what := fmt.Sprintf("%d answers in a row from %s over %s", consecutiveAnswers, target, network)
		err := w.Until(ctx, what, time.Minute, func(ctx context.Context) (bool, string, error) {
			for range consecutiveAnswers {
				if err := w.Site.client.Reach(ctx, network, target); err != nil {
					return false, "", err
				}
			}
			return true, "", nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// awaitRollout waits until the Deployment has rolled out and its old pods are gone.
func (k *workload) awaitRollout(ctx context.Context, w *World, most time.Duration) error {
	err := w.Until(ctx, "the Deployment "+k.name+" to be rolled out", most, func(ctx context.Context) (bool, string, error) {
		var d appsv1.Deployment
		if err := w.Cluster.Get(ctx, k.name, w.namespace(), &d); err != nil {
			return false, "", err
		}
		s := d.Status
		if s.ObservedGeneration < d.Generation || int(s.UpdatedReplicas) != k.replicas || int(s.AvailableReplicas) != k.replicas || int(s.Replicas) != k.replicas {
			return false, fmt.Sprintf("%d replicas, %d updated, %d available, want %d", s.Replicas, s.UpdatedReplicas, s.AvailableReplicas, k.replicas), k.openGates(ctx, w)
		}
		pods, err := k.pods(ctx, w) // read last: in a long soak these requests are most of the cost of a rollout
		pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == "" })
		return len(pods) == k.replicas, fmt.Sprintf("rolled out, %d pods, want %d", len(pods), k.replicas), err
	})
	if err != nil {
		if why := k.failureReason(ctx, w); why != "" {
			err = fmt.Errorf("%w; %s", err, why)
		}
	}
	return err
}

// failureReason is the reason in the API for pods that do not become ready: a quota or policy, no node, or an image that
// cannot be pulled. Empty when there is none.
func (k *workload) failureReason(ctx context.Context, w *World) string {
	var all []string
	add := func(text string) {
		if text != "" && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	var d appsv1.Deployment
	if err := w.Cluster.Get(ctx, k.name, w.namespace(), &d); err == nil {
		for _, c := range d.Status.Conditions {
			if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
				add(c.Message)
			}
		}
	}
	pods, _ := k.pods(ctx, w) // the caller reports the first error
	for _, pod := range pods {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				add("pod " + pod.Name + " has no node: " + c.Message)
			}
		}
		for _, c := range pod.Status.ContainerStatuses {
			if c.State.Waiting != nil {
				add("pod " + pod.Name + " waits (" + c.State.Waiting.Reason + "): " + c.State.Waiting.Message)
			}
		}
	}
	return strings.Join(all, "; ")
}

func (k *workload) pods(ctx context.Context, w *World) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := w.Cluster.WithNamespace(w.namespace()).List(ctx, &pods, resources.WithLabelSelector("app="+k.name))
	return pods.Items, err
}

// awaitMembers waits until the load balancer has exactly the right nodes: those with a ready pod for Local, all for
// Cluster.
func (k *workload) awaitMembers(ctx context.Context, w *World, most time.Duration) error {
	k.wrong = map[string]wrongNode{}
	return w.Until(ctx, "the load balancer to have the right nodes for "+k.name, most, func(ctx context.Context) (bool, string, error) {
		got, known := w.members(k.name)
		if !known {
			return true, "", nil
		}
		want := slices.Clone(w.Nodes)
		if k.policy == corev1.ServiceExternalTrafficPolicyLocal {
			pods, err := k.pods(ctx, w)
			if err != nil {
				return false, "", err
			}
			want = readyNodes(pods)
		}
		slices.Sort(want)
		k.noteWrong(w, got, want)
		return slices.Equal(got, want), fmt.Sprintf("nodes %s, want %s", strings.Join(got, ","), strings.Join(want, ",")), nil
	})
}

func readyNodes(pods []corev1.Pod) []string {
	var nodes []string
	for _, pod := range pods {
		if podIsReady(pod) && pod.DeletionTimestamp == nil && !slices.Contains(nodes, pod.Spec.NodeName) {
			nodes = append(nodes, pod.Spec.NodeName)
		}
	}
	return nodes
}

func podIsReady(pod corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func ptr[T any](v T) *T { return &v }
