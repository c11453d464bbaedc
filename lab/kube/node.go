package kube

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hitless/hitless/lab/topology"
)

// Node describes a node of the lab for its Node object.
type Node struct {
	Name     string
	Addrs    []netip.Addr      // of each family, the primary one first
	PodCIDRs []netip.Prefix    // likewise
	Zone     string            // label topology.kubernetes.io/zone; none when empty
	Labels   map[string]string // added to the well-known ones
}

// podsPerNode is the node's capacity for pods: its /24 less the network, the gateway and the broadcast address.
const podsPerNode = 253

// NodeOf describes a node of the topology. Every node has a zone of its own.
func NodeOf(n *topology.Node) Node {
	return Node{Name: n.Name, Addrs: n.Addrs(), PodCIDRs: n.PodCIDRs(), Zone: "zone-" + strconv.Itoa(n.Number)}
}

func (c *ControlPlane) registerNodes(ctx context.Context) error {
	client, err := c.Client("")
	if err != nil {
		return err
	}
	for _, n := range c.config.Nodes {
		if err := CreateNode(ctx, client, n); err != nil {
			return err
		}
	}
	return nil
}

// CreateNode registers a node as a kubelet does: with its addresses, capacity, pod range and Ready condition. The node
// lifecycle controller marks it NotReady after 50 s without a lease renewal (kubelet.Run renews it).
func CreateNode(ctx context.Context, client kubernetes.Interface, n Node) error {
	if n.Name == "" || len(n.Addrs) == 0 || len(n.Addrs) != len(n.PodCIDRs) {
		return fmt.Errorf("registering node %q: a name, and an address %s and a pod range %s of each family are required", n.Name, n.Addrs, n.PodCIDRs)
	}
	if _, err := client.CoreV1().Nodes().Create(ctx, n.object(time.Now()), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("registering node %s: %w", n.Name, err)
	}
	return nil
}

func (n Node) object(now time.Time) *corev1.Node {
	labels := map[string]string{
		corev1.LabelHostname: n.Name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"}
	if n.Zone != "" {
		labels[corev1.LabelTopologyZone] = n.Zone
	}
	maps.Copy(labels, n.Labels)
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("64"),
		corev1.ResourceMemory:           resource.MustParse("256Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourcePods:             *resource.NewQuantity(podsPerNode, resource.DecimalSI),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: labels},
		Spec:       corev1.NodeSpec{PodCIDR: n.PodCIDRs[0].String(), PodCIDRs: texts(n.PodCIDRs)},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: capacity, Conditions: conditions(now),
			Addresses: n.addresses(),
			NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.37.1+hitless", OperatingSystem: "linux",
				Architecture: "amd64", ContainerRuntimeVersion: "hitless://1"},
		},
	}
}

func (n Node) addresses() (all []corev1.NodeAddress) {
	for _, a := range texts(n.Addrs) {
		all = append(all, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return append(all, corev1.NodeAddress{Type: corev1.NodeHostName, Address: n.Name})
}

func texts[T fmt.Stringer](values []T) (all []string) {
	for _, v := range values {
		all = append(all, v.String())
	}
	return all
}

// conditions returns the conditions of a healthy kubelet; the lifecycle controller taints nodes without them.
func conditions(now time.Time) []corev1.NodeCondition {
	at := metav1.NewTime(now)
	healthy := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, Reason: reason, LastHeartbeatTime: at, LastTransitionTime: at}
	}
	return []corev1.NodeCondition{
		healthy(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory"),
		healthy(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure"),
		healthy(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID"),
		healthy(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady"),
	}
}

// namespaces are those that an API server creates for itself.
var namespaces = []string{metav1.NamespaceDefault, "kube-node-lease", metav1.NamespacePublic, metav1.NamespaceSystem}

// CreateNamespaces creates the namespaces that each cluster has, as an API server does.
func CreateNamespaces(ctx context.Context, client kubernetes.Interface) error {
	for _, name := range namespaces {
		object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}}
		if _, err := client.CoreV1().Namespaces().Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating the namespace %s: %w", name, err)
		}
	}
	return nil
}
