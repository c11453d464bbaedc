//go:build netns

//lint:file-ignore SA1019 Endpoints are deprecated, and the only thing that kube-proxy up to 1.18 watches

package replay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/hitless/hitless/lab/kube"
	"github.com/hitless/hitless/lab/kube/kubetest"
	"github.com/hitless/hitless/lab/procs"
	"github.com/hitless/hitless/lab/replay/replaytest"
	"github.com/hitless/hitless/lab/topology"
)

// realAPIServer starts a real control plane in the test's network namespace, with the service account controller only.
func realAPIServer(t *testing.T) *rest.Config {
	t.Helper()
	programs := kubetest.Binaries(t)
	network, err := topology.New(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(network.Close)
	supervisor, err := procs.New(filepath.Join(t.TempDir(), "logs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { supervisor.StopAll(time.Second) })
	config := kube.Config{Binaries: programs, Dir: t.TempDir(), Procs: supervisor, Controllers: []string{"serviceaccount-controller"}}
	plane, err := kube.Up(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Down(); err != nil {
			t.Error(err)
		}
	})
	real, err := plane.RESTConfig("")
	if err != nil {
		t.Fatal(err)
	}
	return real
}

// The requests of proxies and of the lab's programs are sent to this server and to a real kube-apiserver; the responses are
// compared event by event and field by field.
func TestResponsesMatchTheRealAPIServer(t *testing.T) {
	real := realAPIServer(t)
	l := start(t, nil)
	for name, form := range map[string]func(*rest.Config){"json": plainJSON, "protobuf": protobuf} {
		t.Run(name, func(t *testing.T) {
			want, got := play(t, real, form, name), play(t, l.config(), form, name)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("answers (-the real one's +ours):\n%s", diff)
			}
			if len(want) < 60 {
				t.Errorf("only %d answers were compared", len(want))
			}
		})
	}
	t.Run("custom resources", func(t *testing.T) {
		if diff := cmp.Diff(customResources(t, real), customResources(t, l.config())); diff != "" {
			t.Errorf("answers (-the real one's +ours):\n%s", diff)
		}
	})
	t.Run("discovery", func(t *testing.T) { compareDiscovery(t, real, l.config()) })
}

// player sends requests to one of the two servers and records the responses.
type player struct {
	*testing.T
	client   kubernetes.Interface
	space    string            // the namespace
	versions map[string]string // what is written for a resource version: that it is the first that was seen, the second …
	lines    []string
}

// play sends all requests in a new namespace.
func play(t *testing.T, config *rest.Config, form func(*rest.Config), space string) []string {
	t.Helper()
	config = rest.CopyConfig(config)
	form(config)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	p := &player{T: t, client: client, space: space, versions: map[string]string{}}
	defer func() {
		if t.Failed() {
			t.Log("what was answered until then:\n" + strings.Join(p.lines, "\n"))
		}
	}()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	from := p.services()
	p.slicesAndEndpoints()
	p.nodes()
	p.pods()
	p.watches(from)
	return p.lines
}

// record records a response.
func (p *player) record(what string, object any, err error) {
	p.Helper()
	if err == nil {
		p.lines = append(p.lines, what+": "+p.plain(object))
		return
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		p.Fatalf("%s: %v", what, err)
	}
	s := status.Status()
	p.lines = append(p.lines, fmt.Sprintf("%s: %d %s", what, s.Code, s.Reason))
}

// plain is an object without the fields that differ between servers: times, uids, managed fields and the values of versions,
// of which the order is kept.
func (p *player) plain(object any) string {
	p.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		p.Fatal(err)
	}
	metadata, _ := fields["metadata"].(map[string]any)
	delete(metadata, "managedFields")
	for _, key := range []string{"uid", "creationTimestamp", "deletionTimestamp"} {
		if metadata[key] != nil {
			metadata[key] = "some"
		}
	}
	if version, _ := metadata["resourceVersion"].(string); version != "" {
		if p.versions[version] == "" {
			p.versions[version] = fmt.Sprint("nr ", len(p.versions)+1)
		}
		metadata["resourceVersion"] = p.versions[version]
	}
	delete(fields, "kind") // typed clients take these off, but not of every answer
	delete(fields, "apiVersion")
	data, err := json.Marshal(fields)
	if err != nil {
		p.Fatal(err)
	}
	return string(data)
}

func (p *player) meta(name string, labels ...string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: name, Namespace: p.space}
	for _, label := range labels {
		if m.Labels == nil {
			m.Labels = map[string]string{}
		}
		key, value, _ := strings.Cut(label, "=")
		m.Labels[key] = value
	}
	return m
}

// number differs by namespace, because a cluster IP and a node port belong to one Service only.
func (p *player) number(n int) int { return 10*len(p.space) + n }

// services writes and reads Services. It returns the version of the first write, from which watches start.
func (p *player) services() (from string) {
	ctx, services := p.Context(), p.client.CoreV1().Services(p.space)
	ip := func(n int) string { return fmt.Sprintf("10.96.1.%d", p.number(n)) }
	nodePort := int32(30000 + p.number(1))
	plain := &corev1.Service{ObjectMeta: p.meta("plain", "app=plain"), Spec: corev1.ServiceSpec{ClusterIP: ip(1), Ports: []corev1.ServicePort{{Port: 80}}}}
	made, err := services.Create(ctx, plain, metav1.CreateOptions{})
	p.record("create a Service", made, err)
	from = made.ResourceVersion
	outside := &corev1.Service{ObjectMeta: p.meta("outside", "app=outside"), Spec: corev1.ServiceSpec{ClusterIP: ip(2), Type: corev1.ServiceTypeLoadBalancer,
		ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal, HealthCheckNodePort: nodePort + 1, SessionAffinity: corev1.ServiceAffinityClientIP,
		LoadBalancerSourceRanges: []string{"198.51.100.0/24"}, ExternalIPs: []string{"203.0.113.7"}, PublishNotReadyAddresses: true,
		Ports: []corev1.ServicePort{{Name: "http", Port: 80, NodePort: nodePort, TargetPort: intstr.FromString("web")},
			{Name: "dns", Port: 53, NodePort: nodePort + 2, Protocol: corev1.ProtocolUDP, AppProtocol: new("kubernetes.io/dns")}}}}
	got, err := services.Create(ctx, outside, metav1.CreateOptions{})
	p.record("create one for a load balancer", got, err)
	none := &corev1.Service{ObjectMeta: p.meta("headless", "service.kubernetes.io/headless="), Spec: corev1.ServiceSpec{ClusterIP: "None", Ports: []corev1.ServicePort{{Port: 80}}}}
	got, err = services.Create(ctx, none, metav1.CreateOptions{})
	p.record("create a headless one", got, err)
	again := plain.DeepCopy()
	again.Spec.ClusterIP = ip(3)
	_, err = services.Create(ctx, again, metav1.CreateOptions{})
	p.record("create what is there", nil, err)
	_, err = services.Get(ctx, "nobody", metav1.GetOptions{})
	p.record("get what is not there", nil, err)
	got, err = services.Update(ctx, made.DeepCopy(), metav1.UpdateOptions{})
	p.record("update nothing", got, err)
	changed := made.DeepCopy()
	changed.Labels["color"], changed.Spec.SessionAffinity = "blue", corev1.ServiceAffinityClientIP
	got, err = services.Update(ctx, changed, metav1.UpdateOptions{})
	p.record("update", got, err)
	_, err = services.Update(ctx, changed, metav1.UpdateOptions{})
	p.record("update a stale one", nil, err)
	strange := got.DeepCopy()
	strange.UID = "strange"
	_, err = services.Update(ctx, strange, metav1.UpdateOptions{})
	p.record("update another one's uid", nil, err)
	got, err = services.Patch(ctx, "plain", types.MergePatchType, []byte(`{"metadata":{"labels":{"color":null}},"spec":{"sessionAffinity":"None"}}`), metav1.PatchOptions{})
	p.record("merge", got, err)
	got, err = services.Patch(ctx, "outside", types.StrategicMergePatchType, []byte(`{"spec":{"ports":[{"port":80,"protocol":"TCP","targetPort":8080}]}}`), metav1.PatchOptions{})
	p.record("merge by the keys of lists", got, err)
	ingress := []byte(`{"status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.10","ipMode":"VIP"}]}},"spec":{"sessionAffinity":"None"}}`)
	got, err = services.Patch(ctx, "outside", types.MergePatchType, ingress, metav1.PatchOptions{}, "status")
	p.record("patch the status", got, err)
	for _, selector := range []string{"", "app=plain", "!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name", "app in (plain,outside),color!=blue"} {
		found, err := services.List(ctx, metav1.ListOptions{LabelSelector: selector})
		p.record("list those with "+selector, &metav1.PartialObjectMetadata{}, err)
		for i := range found.Items {
			p.record("  it has", &found.Items[i], nil)
		}
	}
	found, err := services.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=outside", ResourceVersion: "0"})
	if err == nil && len(found.Items) == 1 {
		p.record("list one by its name", &found.Items[0], nil)
	}
	_, err = services.List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=x"})
	p.record("list by a field that cannot be selected", nil, err)
	_, err = services.List(ctx, metav1.ListOptions{ResourceVersion: "999999999"})
	p.record("list of a version of the future", nil, err)
	_, err = services.List(ctx, metav1.ListOptions{ResourceVersion: "x"})
	p.record("list of a version that is none", nil, err)
	uid := types.UID("strange")
	err = services.Delete(ctx, "plain", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	p.record("delete another one's uid", nil, err)
	if err := services.Delete(ctx, "headless", metav1.DeleteOptions{}); err != nil {
		p.Fatal(err)
	}
	err = services.Delete(ctx, "headless", metav1.DeleteOptions{})
	p.record("delete what is gone", nil, err)
	return from
}

func (p *player) slicesAndEndpoints() {
	ctx := p.Context()
	slice := &discoveryv1.EndpointSlice{ObjectMeta: p.meta("plain-1", discoveryv1.LabelServiceName+"=plain"), AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Port: new(int32(8080))}, {Name: new("dns"), Port: new(int32(53)), Protocol: new(corev1.ProtocolUDP)}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.1.2"}, NodeName: new("node-1"), Zone: new("a"),
			Conditions: discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)},
			Hints:      &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "a"}}}}, {Addresses: []string{"10.244.1.3"}}}}
	made, err := p.client.DiscoveryV1().EndpointSlices(p.space).Create(ctx, slice, metav1.CreateOptions{})
	p.record("create an EndpointSlice", made, err)
	made.Endpoints = made.Endpoints[1:]
	made, err = p.client.DiscoveryV1().EndpointSlices(p.space).Update(ctx, made, metav1.UpdateOptions{})
	p.record("take an endpoint from it", made, err)
	typeless := slice.DeepCopy()
	typeless.Name, typeless.AddressType = "typeless", ""
	_, err = p.client.DiscoveryV1().EndpointSlices(p.space).Create(ctx, typeless, metav1.CreateOptions{})
	p.record("create one without a type", nil, err)
	old, err := p.client.CoreV1().Endpoints(p.space).Create(ctx, &corev1.Endpoints{ObjectMeta: p.meta("plain"), Subsets: []corev1.EndpointSubset{{
		Addresses: []corev1.EndpointAddress{{IP: "10.244.1.2"}}, NotReadyAddresses: []corev1.EndpointAddress{{IP: "10.244.1.3"}},
		Ports: []corev1.EndpointPort{{Port: 8080}}}}}, metav1.CreateOptions{})
	p.record("create Endpoints", old, err)
}

func (p *player) nodes() {
	ctx, nodes := p.Context(), p.client.CoreV1().Nodes()
	name := "node-" + p.space
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"topology.kubernetes.io/zone": "a"}},
		Spec: corev1.NodeSpec{PodCIDR: "10.244.9.0/24", PodCIDRs: []string{"10.244.9.0/24"}}}
	made, err := nodes.Create(ctx, node, metav1.CreateOptions{})
	p.record("create a Node", withoutTaints(made), err)
	made, err = nodes.PatchStatus(ctx, name, []byte(`{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.9"}],"conditions":[{"type":"Ready","status":"True"}]}}`))
	p.record("patch its status", withoutTaints(made), err)
	made, err = nodes.Patch(ctx, name, types.StrategicMergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{})
	p.record("cordon it", withoutTaints(made), err)
}

// withoutTaints removes from a node what admission plugins add; the replay control plane has none.
func withoutTaints(n *corev1.Node) *corev1.Node {
	n.Spec.Taints = nil
	return n
}

// pods creates and deletes pods. Specs are not compared, because admission changes them.
func (p *player) pods() {
	ctx, pods := p.Context(), p.client.CoreV1().Pods(p.space)
	w, err := pods.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		p.Fatal(err)
	}
	defer w.Stop()
	for _, name := range []string{"slow", "forced", "nowhere"} {
		draft := pod(name, "node-"+p.space)
		draft.Namespace, draft.Spec.AutomountServiceAccountToken = p.space, new(false)
		if name == "nowhere" {
			draft.Spec.NodeName, draft.Spec.SchedulerName = "", "nobody"
		}
		eventually(p, "the pod "+name+" is admitted", func() bool { // its service account is made by a controller
			_, err := pods.Create(ctx, draft, metav1.CreateOptions{})
			if err != nil && !apierrors.IsForbidden(err) {
				p.Fatal(err)
			}
			return err == nil
		})
		if name == "slow" {
			if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
				p.Fatal(err)
			}
			err := pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(60))})
			p.lines = append(p.lines, fmt.Sprintf("delete it again, with more grace: %v", err))
		}
		if err := pods.Delete(ctx, name, *metav1.NewDeleteOptions(0)); err != nil {
			p.Fatal(err)
		}
	}
	for deleted := 0; deleted < 3; {
		e := replaytest.Next(p, w)
		pod, ok := e.Object.(*corev1.Pod)
		if !ok {
			p.Fatalf("%s of %T", e.Type, e.Object)
		}
		state := "lives"
		if pod.DeletionTimestamp != nil {
			state = fmt.Sprint("has a grace of ", *pod.DeletionGracePeriodSeconds)
		}
		p.lines = append(p.lines, fmt.Sprintf("%s pod %s generation %d: it %s", e.Type, pod.Name, pod.Generation, state))
		if e.Type == apiwatch.Deleted {
			deleted++
		}
	}
}

// watches watches the Services from each kind of start, and checks how watches end.
func (p *player) watches(from string) {
	ctx, services := p.Context(), p.client.CoreV1().Services(p.space)
	p.events("from a version on", 7, metav1.ListOptions{ResourceVersion: from})
	p.events("those without a color, from a version on", 6, metav1.ListOptions{ResourceVersion: from, LabelSelector: "!color"})
	p.events("what is there", 2, metav1.ListOptions{ResourceVersion: "0"})
	p.events("what is there, most recently", 2, metav1.ListOptions{})
	p.events("initial events", 3, metav1.ListOptions{SendInitialEvents: new(true), AllowWatchBookmarks: true,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	_, err := services.Watch(ctx, metav1.ListOptions{SendInitialEvents: new(true)})
	p.record("initial events without a rule", nil, err)
	list, err := services.List(ctx, metav1.ListOptions{})
	if err != nil {
		p.Fatal(err)
	}
	w, err := services.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion, TimeoutSeconds: new(int64(1))})
	if err != nil {
		p.Fatal(err)
	}
	closed(p, w)
}

// events records the first events of a watch of Services.
func (p *player) events(what string, count int, opts metav1.ListOptions) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	w, err := p.client.CoreV1().Services(p.space).Watch(ctx, opts)
	if err != nil {
		p.record("watch "+what, nil, err)
		return
	}
	defer w.Stop()
	for range count {
		e := replaytest.Next(p, w)
		switch o := e.Object.(type) {
		case *metav1.Status:
			p.lines = append(p.lines, fmt.Sprintf("watch %s: %s %d %s", what, e.Type, o.Code, o.Reason))
		case *corev1.Service:
			if e.Type == apiwatch.Bookmark { // at a version of the whole store, in which the real one has much more
				p.lines = append(p.lines, fmt.Sprintf("watch %s: %s %v", what, e.Type, o.Annotations))
				continue
			}
			p.record(fmt.Sprintf("watch %s: %s", what, e.Type), o, nil)
		default:
			p.Fatalf("%s of %T", e.Type, e.Object)
		}
	}
}

// compareDiscovery compares the discovery documents of each served resource with those of the real server.
func compareDiscovery(t *testing.T, real, ours *rest.Config) {
	describe := func(config *rest.Config) map[string]metav1.APIResource {
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		_, lists, err := client.Discovery().ServerGroupsAndResources()
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]metav1.APIResource{}
		for _, list := range lists {
			for _, r := range list.APIResources {
				r.StorageVersionHash, r.Categories, r.ShortNames = "", nil, nil // for kubectl's users
				found[list.GroupVersion+" "+r.Name] = r
			}
		}
		return found
	}
	want, compared := describe(real), 0
	for name, got := range describe(ours) {
		full, has := want[name]
		if !has {
			if !strings.Contains(name, "/v1beta1 ") { // of which older clients ask
				t.Errorf("%s: the real one does not have it", name)
			}
			continue
		}
		compared++
		for _, verb := range got.Verbs {
			if !strings.Contains(fmt.Sprint(full.Verbs), verb) {
				t.Errorf("%s: it can %s here, and not there", name, verb)
			}
		}
		got.Verbs, full.Verbs = nil, nil // here there are fewer
		if diff := cmp.Diff(full, got); diff != "" {
			t.Errorf("%s (-the real one's +ours):\n%s", name, diff)
		}
	}
	if compared < 20 {
		t.Errorf("only %d resources were compared", compared)
	}
}
