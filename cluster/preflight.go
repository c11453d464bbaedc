package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/yaml"

	"github.com/hitless/hitless/observers"
)

// Verb is an API permission. Namespace is empty for objects without a namespace, and InRun for the run's own.
type Verb struct{ Verb, Group, Resource, Subresource, Namespace string }

// String is the verb as in RBAC rules.
func (v Verb) String() string {
	text := v.Verb + " " + v.Resource
	if v.Subresource != "" {
		text += "/" + v.Subresource
	}
	if v.Group != "" {
		text += "." + v.Group
	}
	return text
}

// InRun stands for the run's own namespace, whose name is generated.
const InRun = "*"

// needed are verbs for a resource in the run's namespace.
type needed struct{ group, resource, verbs string }

// Needs are the verbs that every run needs. Those in the run's namespace must be granted in all namespaces.
func Needs() []Verb {
	all := []Verb{{"create", "", "namespaces", "", ""}, {"get", "", "namespaces", "", ""}, {"delete", "", "namespaces", "", ""}, {"list", "", "nodes", "", ""}}
	return append(all, inRun(needed{"apps", "deployments", "create get update"}, needed{"", "services", "create get"}, needed{"", "pods", "list watch"},
		needed{"discovery.k8s.io", "endpointslices", "list watch"})...)
}

// NeedsRecovery are the verbs that the recovery check needs besides. A run has it unless it is turned off.
func NeedsRecovery() []Verb {
	return inRun(needed{"", "services", "delete"}, needed{"discovery.k8s.io", "endpointslices", "create update delete"})
}

func inRun(resources ...needed) (all []Verb) {
	for _, r := range resources {
		for verb := range strings.FieldsSeq(r.verbs) {
			all = append(all, Verb{verb, r.group, r.resource, "", InRun})
		}
	}
	return all
}

// Denied returns the verbs that the kubeconfig's user lacks (SelfSubjectAccessReview).
func (c *Cluster) Denied(ctx context.Context, verbs []Verb) ([]Verb, error) {
	var denied []Verb
	for _, v := range verbs {
		namespace := v.Namespace
		if namespace == InRun {
			namespace = "hitless-preflight" // any name: only a ClusterRoleBinding can grant rights in it
		}
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: v.Verb, Group: v.Group, Resource: v.Resource,
				Subresource: v.Subresource, Namespace: namespace}}}
		answer, err := c.Client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("checking the permission to %s: %w", v, Explain(err))
		}
		if !answer.Status.Allowed {
			denied = append(denied, v)
		}
	}
	return denied, nil
}

// Facts are facts about a cluster before a run.
type Facts struct {
	Version string // of the API server
	Nodes   []Node // those that take pods, sorted by name
	// Proxy and Mode are kube-proxy and its mode, from its ConfigMap. Unknown is the reason why they are unknown.
	Proxy   string
	Mode    string
	Unknown string
}

// Node is a node that takes pods.
type Node struct {
	Name      string
	Addresses []string // external ones first
	Kernel    string   // release
	Kubelet   string   // version
}

// Facts reads the facts of the cluster. It needs `list nodes`; facts that it may not read are unknown.
func (c *Cluster) Facts(ctx context.Context) (Facts, error) {
	var f Facts
	version, err := discovery.ToServerVersionInterfaceWithContext(c.Client.Discovery()).ServerVersionWithContext(ctx)
	if err != nil {
		return f, fmt.Errorf("reading the version of the API server at %s: %w", c.Server, Explain(err))
	}
	f.Version = version.GitVersion
	nodes, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return f, fmt.Errorf("listing the nodes: %w", Explain(err))
	}
	for i := range nodes.Items {
		if n := &nodes.Items[i]; takesPods(n) {
			f.Nodes = append(f.Nodes, Node{n.Name, addresses(n), n.Status.NodeInfo.KernelVersion, n.Status.NodeInfo.KubeletVersion})
		}
	}
	if len(f.Nodes) == 0 {
		return f, fmt.Errorf("none of the %d nodes takes pods: each is not ready, cordoned or tainted", len(nodes.Items))
	}
	slices.SortFunc(f.Nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	f.Proxy, f.Mode, f.Unknown = c.proxy(ctx)
	return f, nil
}

func takesPods(n *corev1.Node) bool {
	tainted := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule })
	return observers.NodeReady(n) && !n.Spec.Unschedulable && !tainted
}

func addresses(n *corev1.Node) []string {
	var all []string
	for _, kind := range []corev1.NodeAddressType{corev1.NodeExternalIP, corev1.NodeInternalIP} {
		for _, a := range n.Status.Addresses {
			if a.Type == kind {
				all = append(all, a.Address)
			}
		}
	}
	return all
}

// proxy reads the configuration of kube-proxy from the ConfigMap of kubeadm, kind and most others.
func (c *Cluster) proxy(ctx context.Context) (name, mode, unknown string) {
	config, err := c.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "kube-proxy", metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", "", "there is no ConfigMap kube-system/kube-proxy: the cluster has another proxy, or its configuration elsewhere"
	case err != nil:
		return "", "", "reading the ConfigMap kube-system/kube-proxy: " + err.Error()
	}
	var parsed struct {
		Mode string `json:"mode"`
	}
	keys := []string{"config.conf", "config"} // kubeadm and kind; GKE and others
	for _, key := range keys {
		if text, has := config.Data[key]; has {
			err = yaml.Unmarshal([]byte(text), &parsed)
			if err == nil && parsed.Mode == "" {
				parsed.Mode = "iptables" // kube-proxy's default on Linux
			}
			if err == nil {
				return "kube-proxy", parsed.Mode, ""
			}
		}
	}
	if err == nil {
		return "kube-proxy", "", "the ConfigMap kube-system/kube-proxy has none of the keys " + strings.Join(keys, ", ") + ", so that its configuration is elsewhere"
	}
	return "kube-proxy", "", fmt.Sprintf("the ConfigMap kube-system/kube-proxy has no configuration that can be read: %v", err)
}
