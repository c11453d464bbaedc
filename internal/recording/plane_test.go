package recording

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"
	"sigs.k8s.io/e2e-framework/klient/k8s/resources"

	"github.com/hitless/hitless/lab/replay"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
	"github.com/hitless/hitless/scenarios/timeline"
)

// TestMain keeps client-go from logging each watch that a test cuts.
func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	os.Exit(m.Run())
}

// tb is the common part of *testing.T and *rapid.T.
type tb interface {
	rapid.TB
	Cleanup(func())
}

// plane is a replay control plane over HTTP.
type plane struct {
	*replay.Server
	config *rest.Config
	client kubernetes.Interface
}

func newPlane(t tb) plane {
	t.Helper()
	p := plane{Server: replay.New()}
	server := httptest.NewServer(p.Handler())
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	p.config = &rest.Config{Host: server.URL, QPS: -1}
	var err error
	if p.client, err = kubernetes.NewForConfig(p.config); err != nil {
		t.Fatal(err)
	}
	return p
}

// instant is a clock without waiting, and a recorder that stores nothing.
type instant struct{}

func (instant) Now() time.Duration                               { return 1000 * time.Hour }
func (instant) Sleep(ctx context.Context, _ time.Duration) error { return ctx.Err() }
func (instant) Event(record.Event)                               {}
func (instant) Attempt(record.Attempt)                           {}

// do performs a timeline on the plane, as a replay does.
func (p plane) do(t tb, text string) {
	t.Helper()
	line, err := timeline.Parse("recording", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	cluster, err := resources.New(p.config)
	if err != nil {
		t.Fatal(err)
	}
	w := &scenarios.World{Cluster: cluster, Clock: instant{}, Recorder: instant{}}
	s := scenarios.Replay(line)
	if err := s.Prepare(context.Background(), w); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if err := s.Run(context.Background(), w); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
}

// shown returns the recorded fields of each object of the plane. A replay of the recording must give the same.
func (p plane) shown(t tb) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, from := range sources(p.client) {
		list, err := from.list(context.Background(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range items(list) {
			if k := recordedPart(o); k != nil {
				text, _, err := encode(k, true)
				if err != nil {
					t.Fatal(err)
				}
				all[fmt.Sprint(from.kind, "/", k.GetNamespace(), "/", k.GetName())] = fmt.Sprintf("%s grace %d", text, gracePeriod(o))
			}
		}
	}
	return all
}

// items returns the objects of a list.
func items(list runtime.Object) (all []metav1.Object) {
	switch l := list.(type) {
	case *corev1.ServiceList:
		for i := range l.Items {
			all = append(all, &l.Items[i])
		}
	case *discoveryv1.EndpointSliceList:
		for i := range l.Items {
			all = append(all, &l.Items[i])
		}
	case *corev1.NodeList:
		for i := range l.Items {
			all = append(all, &l.Items[i])
		}
	case *corev1.PodList:
		for i := range l.Items {
			all = append(all, &l.Items[i])
		}
	}
	return all
}

func ptr[T any](value T) *T { return &value }

// secret is in every field that must not be recorded.
const secret = "s3cr3t"

// anyService draws a Service with fields that are recorded and fields that must not be.
func anyService(t *rapid.T, name string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: drawn(t, "namespace", "default", "shop"), Annotations: map[string]string{secret: secret},
		Labels: map[string]string{"app": secret}},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": secret},
			Type:  corev1.ServiceType(drawn(t, "type", "ClusterIP", "NodePort", "LoadBalancer", "ExternalName")),
			Ports: []corev1.ServicePort{{Name: drawn(t, "port name", "http", "grpc"), Port: int32(rapid.IntRange(1, 3).Draw(t, "port")), AppProtocol: ptr(secret)}}}}
	s.Spec.ClusterIPs = rapid.OneOf(rapid.Just([]string{"None"}), inFamilies([]string{"10.0.0.1", "10.0.0.2"}, []string{"fd00:a::1", "fd00:a::2"})).Draw(t, "clusterIPs")
	s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	switch {
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		s.Spec.ExternalName, s.Spec.ClusterIP, s.Spec.ClusterIPs = secret, "", nil
	case s.Spec.Type != corev1.ServiceTypeClusterIP:
		s.Spec.Ports[0].NodePort = int32(rapid.IntRange(30000, 30003).Draw(t, "node port"))
		s.Spec.Ports[0].TargetPort = intstr.FromString("http")
		s.Spec.LoadBalancerSourceRanges = append([]string{"0.0.0.0/0", "::/0"},
			inFamilies([]string{"192.168.0.0/16", "192.168.3.0/24"}, []string{"2001:470::/32", "2001:470:3::/48"}).Draw(t, "ranges")...)
	}
	if rapid.Bool().Draw(t, "external") {
		s.Spec.ExternalIPs = inFamilies([]string{"198.51.100.7", "198.51.100.8"}, []string{"2001:470:5::7", "2001:470:5::8"}).Draw(t, "external IPs")
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer && rapid.Bool().Draw(t, "balanced") {
		for _, address := range inFamilies([]string{"203.0.113.1", "203.0.113.2"}, []string{"2001:470:6::1", "2001:470:6::2"}).Draw(t, "ingress") {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: address})
		}
	}
	if rapid.Bool().Draw(t, "headless") {
		s.Labels["service.kubernetes.io/headless"] = ""
	}
	return s
}

func drawn(t *rapid.T, label string, values ...string) string {
	return rapid.SampledFrom(values).Draw(t, label)
}

// inFamilies generates an IPv4 address, an IPv6 address, or one of each in any order.
func inFamilies(four, six []string) *rapid.Generator[[]string] {
	return rapid.Custom(func(t *rapid.T) []string {
		a, b := drawn(t, "IPv4", four...), drawn(t, "IPv6", six...)
		return rapid.SampledFrom([][]string{{a}, {b}, {a, b}, {b, a}}).Draw(t, "families")
	})
}

// endpointAddresses are the addresses of endpoints by the type of their slice.
var endpointAddresses = map[discoveryv1.AddressType][]string{
	discoveryv1.AddressTypeIPv4: {"10.1.0.1", "10.1.0.2", "10.1.0.3"}, discoveryv1.AddressTypeIPv6: {"fd00:b::1", "fd00:b::2", "fd00:b::3"}}

func anySlice(t *rapid.T, name string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: drawn(t, "namespace", "default", "shop"),
		Labels: map[string]string{discoveryv1.LabelServiceName: drawn(t, "service", "a", "b"), "app": secret}, Annotations: map[string]string{secret: secret}},
		AddressType: discoveryv1.AddressType(drawn(t, "address type", "IPv4", "IPv6")),
		Ports:       []discoveryv1.EndpointPort{{Name: ptr("http"), Port: ptr(int32(80)), AppProtocol: ptr(secret)}}}
	for _, address := range rapid.SliceOfNDistinct(rapid.SampledFrom(endpointAddresses[s.AddressType]), 0, 3, rapid.ID[string]).Draw(t, "addresses") {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}, Hostname: ptr(secret), NodeName: ptr(drawn(t, "node", "n1", "n2")),
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Name: secret},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr(rapid.Bool().Draw(t, "ready")), Terminating: ptr(rapid.Bool().Draw(t, "terminating"))}})
	}
	return s
}

func anyNode(t *rapid.T, name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: "z1", "app": secret}, Annotations: map[string]string{secret: secret}},
		Spec: corev1.NodeSpec{ProviderID: secret, Unschedulable: rapid.Bool().Draw(t, "cordoned")},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: secret}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionStatus(drawn(t, "ready", "True", "Unknown")), Message: secret}}}}
	for _, address := range inFamilies([]string{"10.9.0.1"}, []string{"fd00:c::1"}).Draw(t, "addresses") {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	}
	return n
}

func anyPod(t *rapid.T, name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: drawn(t, "namespace", "default", "shop"), Labels: map[string]string{"app": secret}, Annotations: map[string]string{secret: secret}},
		Spec: corev1.PodSpec{NodeName: drawn(t, "node", "", "n1"), ServiceAccountName: secret, Containers: []corev1.Container{{Name: "a", Image: secret, Args: []string{secret}, Env: []corev1.EnvVar{{Name: "TOKEN", Value: secret}}}},
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodPhase(drawn(t, "phase", "Pending", "Running", "Succeeded")), Message: secret}}
	if rapid.Bool().Draw(t, "addressed") {
		for _, address := range inFamilies([]string{"10.1.0.1"}, []string{"fd00:b::1"}).Draw(t, "addresses") {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: address})
		}
		p.Status.PodIP = p.Status.PodIPs[0].IP
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionStatus(drawn(t, "ready", "True", "False")), Message: secret}}
	}
	return p
}
