//go:build netns

package kubelet_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/hitless/hitless/lab/backend"
	"github.com/hitless/hitless/lab/kube"
	"github.com/hitless/hitless/lab/kube/kubetest"
	"github.com/hitless/hitless/lab/kubelet"
	"github.com/hitless/hitless/lab/procs"
	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/record"
)

// The test program also runs the backend, as the hitless binary does in a lab.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "agnhost" {
		os.Exit(agnhost(os.Args[1:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "backend" {
		c := backend.Command()
		c.SetArgs(os.Args[2:])
		if err := c.Execute(); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// cluster is a lab with a real control plane and three kubelets.
type cluster struct {
	*testing.T
	begin     time.Time
	network   *topology.Network
	plane     *kube.ControlPlane
	client    kubernetes.Interface
	procs     *procs.Supervisor
	off       []func()           // by node
	workloads *kubelet.Workloads // nil for stand-ins

	mu     sync.Mutex
	events []record.Event
}

func (c *cluster) Event(e record.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, e)
}

func (c *cluster) Attempt(record.Attempt) {}

func (c *cluster) now() time.Duration { return time.Since(c.begin) }

func startCluster(t *testing.T) *cluster {
	t.Helper()
	return startClusterWith(t, false)
}

// startClusterWith starts a cluster whose pods run the programs of their images, or stand-ins.
func startClusterWith(t *testing.T, images bool) *cluster {
	t.Helper()
	programs := kubetest.Binaries(t)
	c := &cluster{T: t, begin: time.Now()}
	var err error
	if c.network, err = topology.New(3); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.network.Close(); clearFabric(t) })
	supervisor, err := procs.New(filepath.Join(t.TempDir(), "logs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { supervisor.StopAll(time.Second) })
	config := kube.Config{Binaries: programs, Dir: t.TempDir(), Procs: supervisor, Workloads: images}
	for _, n := range c.network.Nodes {
		config.Nodes = append(config.Nodes, kube.NodeOf(n))
	}
	if c.plane, err = kube.Up(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.plane.Down(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("control plane up after %s: %v", c.now().Round(time.Millisecond), c.plane.Timings)
	if c.client, err = c.plane.Client(""); err != nil {
		t.Fatal(err)
	}
	c.procs = supervisor
	if images {
		c.workloads = &kubelet.Workloads{DNS: "10.96.0.10"}
		c.workloads.Server.Certificate, c.workloads.Server.Key, c.workloads.Server.ClientCA = c.plane.KubeletFiles()
	}
	for _, n := range c.network.Nodes {
		c.Cleanup(c.startNode(n))
	}
	return c
}

// clearFabric removes the bridge and its links, so that the next test can create its own.
func clearFabric(t *testing.T) {
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if name := link.Attrs().Name; name == "fabric" || strings.HasPrefix(name, "fab-") {
			if err := netlink.LinkDel(link); err != nil {
				t.Log(err) // a wire goes by itself when its other end does
			}
		}
	}
}

// startNode runs the kubelet of a node; off stops it.
func (c *cluster) startNode(n *topology.Node) (off func()) {
	c.Helper()
	self, err := os.Executable()
	if err != nil {
		c.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	config := kubelet.Config{Node: n, Client: c.client, Procs: c.procs, Recorder: c, Now: c.now, Workloads: c.workloads,
		Backend: kubelet.Program{Path: self, Args: []string{"backend"}}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := kubelet.Run(ctx, config); err != nil {
			c.Error(err)
		}
	}()
	c.off = append(c.off, func() { cancel(); <-ended })
	return c.off[len(c.off)-1]
}

// waitFor waits until ask returns true and returns the time that took.
func (c *cluster) waitFor(limit time.Duration, what string, ask func() (bool, string)) time.Duration {
	c.Helper()
	begin := time.Now()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		ok, seen := ask()
		if ok {
			return time.Since(begin).Round(time.Millisecond)
		}
		if time.Since(begin) > limit {
			c.Fatalf("%s: not within %s; last seen: %s", what, limit, seen)
		}
		<-ticker.C
	}
}

const manifest = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
  template:
    metadata: {labels: {app: web}, annotations: {rollout: "1"}}
    spec:
      terminationGracePeriodSeconds: 30
      affinity:
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - weight: 100
            podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: web}}}
      containers:
      - name: web
        image: registry.k8s.io/e2e-test-images/agnhost:2.47
        args: [netexec, --http-port=8080, --delay-shutdown=4]
        ports: [{name: http, containerPort: 8080}]
        readinessProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 1, failureThreshold: 1}
        livenessProbe: {tcpSocket: {port: http}, periodSeconds: 5}
`

// servesOn is --delay-shutdown of the manifest.
const servesOn = 4 * time.Second

const service = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  type: LoadBalancer
  externalTrafficPolicy: Local
  selector: {app: web}
  ports: [{port: 80, targetPort: http}]
`

func (c *cluster) apply() {
	c.Helper()
	var d appsv1.Deployment
	var s corev1.Service
	if err := yaml.Unmarshal([]byte(manifest), &d); err != nil {
		c.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(service), &s); err != nil {
		c.Fatal(err)
	}
	if _, err := c.client.CoreV1().Services("default").Create(c.Context(), &s, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	if _, err := c.client.AppsV1().Deployments("default").Create(c.Context(), &d, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) deployment() *appsv1.Deployment {
	c.Helper()
	d, err := c.client.AppsV1().Deployments("default").Get(c.Context(), "web", metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return d
}

// rolledOut reports whether the newest generation is available and no older pod is left.
func (c *cluster) rolledOut() (bool, string) {
	d := c.deployment()
	s := d.Status
	ok := s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == 3 && s.AvailableReplicas == 3 && s.Replicas == 3
	return ok, fmt.Sprintf("%+v", s)
}

// endpoints returns the Service's endpoints by address, as "ready serving terminating".
func (c *cluster) endpoints() map[string]string {
	c.Helper()
	list, err := c.client.DiscoveryV1().EndpointSlices("default").List(c.Context(),
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=web"})
	if err != nil {
		c.Fatal(err)
	}
	seen := map[string]string{}
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			var words []string
			for word, set := range map[string]*bool{"ready": e.Conditions.Ready, "serving": e.Conditions.Serving,
				"terminating": e.Conditions.Terminating} {
				if set != nil && *set {
					words = append(words, word)
				}
			}
			slices.Sort(words)
			seen[e.Addresses[0]] = strings.Join(words, " ")
		}
	}
	return seen
}

// ask requests a pod's name from node-1, as a proxy there would.
func (c *cluster) ask(addr string) (http.Header, error) {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: c.network.Nodes[0].DialContext}}
	resp, err := client.Get("http://" + net.JoinHostPort(addr, "8080") + "/hostname")
	if err != nil {
		return nil, err
	}
	return resp.Header, resp.Body.Close()
}

func TestDeploymentOnTheRealControlPlane(t *testing.T) {
	c := startCluster(t)
	c.apply()
	t.Logf("3 replicas available after %s", c.waitFor(60*time.Second, "the Deployment is available", c.rolledOut))
	pods, err := c.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil || len(pods.Items) != 3 {
		t.Fatalf("%d pods, %v", len(pods.Items), err)
	}
	c.waitFor(10*time.Second, "three ready endpoints", func() (bool, string) {
		return allReady(c.endpoints(), 3), fmt.Sprint(c.endpoints())
	})
	for _, p := range pods.Items {
		h, err := c.ask(p.Status.PodIP)
		if err != nil {
			t.Fatalf("asking %s: %v", p.Name, err)
		}
		if h.Get(backend.HeaderPod) != p.Name || h.Get(backend.HeaderNode) != p.Spec.NodeName ||
			h.Get(backend.HeaderGeneration) != p.Labels["pod-template-hash"] {
			t.Errorf("%s on %s says it is %v", p.Name, p.Spec.NodeName, h)
		}
	}
	c.setUnready(&pods.Items[1])
	c.deleteOne(&pods.Items[0])
	c.rollOut()
	c.deleteAll()
}

func allReady(endpoints map[string]string, n int) bool {
	for _, conditions := range endpoints {
		if conditions != "ready serving" {
			return false
		}
	}
	return len(endpoints) == n
}

// setUnready marks a ready pod unready, as the node lifecycle controller does, and expects the kubelet to correct it.
func (c *cluster) setUnready(pod *corev1.Pod) {
	c.Helper()
	patch := `{"status":{"conditions":[{"type":"Ready","status":"False","reason":"NodeNotReady"}]}}`
	changed, err := c.client.CoreV1().Pods("default").Patch(c.Context(), pod.Name, types.StrategicMergePatchType,
		[]byte(patch), metav1.PatchOptions{}, "status")
	if err != nil {
		c.Fatal(err)
	}
	c.waitFor(10*time.Second, "the kubelet reports the pod ready again", func() (bool, string) {
		p, err := c.client.CoreV1().Pods("default").Get(c.Context(), pod.Name, metav1.GetOptions{})
		if err != nil {
			c.Fatal(err)
		}
		return p.ResourceVersion != changed.ResourceVersion && podReady(p), fmt.Sprintf("%+v", p.Status.Conditions)
	})
}

func podReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && c.Reason == ""
	})
}

// deleteOne deletes a pod that serves for 4 s after SIGTERM. Its endpoint is serving and terminating until then, and
// gone afterwards.
func (c *cluster) deleteOne(pod *corev1.Pod) {
	c.Helper()
	begin := time.Now()
	if err := c.client.CoreV1().Pods("default").Delete(c.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
	addr := pod.Status.PodIP
	took := c.waitFor(5*time.Second, "the endpoint is serving and terminating", func() (bool, string) {
		return c.endpoints()[addr] == "serving terminating", fmt.Sprint(c.endpoints())
	})
	c.Logf("endpoint serving and terminating after %s", took)
	c.waitFor(5*time.Second, "the pod says that it is terminating", func() (bool, string) {
		h, err := c.ask(addr)
		return err == nil && h.Get(backend.HeaderTerminating) != "", fmt.Sprint(h, err)
	})
	took = c.waitFor(10*time.Second, "the endpoint is gone", func() (bool, string) {
		conditions, there := c.endpoints()[addr]
		if conditions != "serving terminating" && time.Since(begin) < servesOn {
			c.Errorf("the endpoint became %q while the pod served", conditions)
		}
		return !there, conditions
	})
	c.Logf("endpoint gone after another %s", took)
	if _, err := c.ask(addr); err == nil {
		c.Error("the removed pod still answers")
	}
	c.waitFor(30*time.Second, "the Deployment has its replicas again", c.rolledOut)
	c.wantStates(pod.Name, "created", "started", "ready", "terminating", "sigterm", "exited", "removed")
}

// wantStates compares the recorded states of a pod. The time of "unready" near its end is not fixed.
func (c *cluster) wantStates(pod string, want ...string) {
	c.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var got, lines []string
	for _, e := range c.events {
		if body, is := e.Body.(record.Pod); is && e.Object == pod {
			got = append(got, string(body.State))
			lines = append(lines, fmt.Sprintf("%8.3f %s", e.At.Seconds(), e.Text))
		}
	}
	c.Log("\n" + strings.Join(lines, "\n"))
	unready := slices.Index(got, "unready")
	if unready < slices.Index(got, "sigterm") || !slices.Equal(slices.Delete(got, unready, unready+1), want) {
		c.Errorf("the life of %s: %v, want %v", pod, got, want)
	}
}

// rollOut changes an annotation of the template; no endpoint is removed before its successor is ready.
func (c *cluster) rollOut() {
	c.Helper()
	d := c.deployment()
	d.Spec.Template.Annotations["rollout"] = "2"
	if _, err := c.client.AppsV1().Deployments("default").Update(c.Context(), d, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
	took := c.waitFor(60*time.Second, "the rollout is complete", func() (bool, string) {
		ready := 0
		for _, conditions := range c.endpoints() {
			if conditions == "ready serving" {
				ready++
			}
		}
		if ready < 3 {
			c.Errorf("%d ready endpoints during the rollout: %v", ready, c.endpoints())
		}
		return c.rolledOut()
	})
	c.Logf("rollout complete after %s", took)
	c.waitFor(30*time.Second, "only ready endpoints are left", func() (bool, string) {
		return allReady(c.endpoints(), 3), fmt.Sprint(c.endpoints())
	})
}

// deleteAll deletes the Deployment; the garbage collector and the kubelets remove its pods.
func (c *cluster) deleteAll() {
	c.Helper()
	if err := c.client.AppsV1().Deployments("default").Delete(c.Context(), "web", metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
	took := c.waitFor(60*time.Second, "all pods are gone", func() (bool, string) {
		pods, err := c.client.CoreV1().Pods("default").List(c.Context(), metav1.ListOptions{})
		if err != nil {
			c.Fatal(err)
		}
		return len(pods.Items) == 0, fmt.Sprintf("%d pods", len(pods.Items))
	})
	c.Logf("pods of the deleted Deployment gone after %s", took)
}

// Without lease renewals the real controllers remove the endpoint of a node, and add it again when the node is back. It
// takes a minute, the grace period of the lifecycle controller.
func TestNodeLosesPowerAndComesBack(t *testing.T) {
	c := startCluster(t)
	c.apply()
	c.waitFor(60*time.Second, "three ready endpoints", func() (bool, string) {
		return allReady(c.endpoints(), 3), fmt.Sprint(c.endpoints())
	})
	c.off[2]()
	took := c.waitFor(100*time.Second, "two endpoints are ready", func() (bool, string) {
		ready := 0
		for _, conditions := range c.endpoints() {
			if conditions == "ready serving" {
				ready++
			}
		}
		return ready == 2, fmt.Sprint(c.endpoints())
	})
	t.Logf("endpoint of the lost node out after %s; nodes %v", took, c.nodes())
	if diff := cmp.Diff(map[string]string{"node-1": "True", "node-2": "True", "node-3": "Unknown"}, c.nodes()); diff != "" {
		t.Errorf("nodes' Ready condition (-want +got):\n%s", diff)
	}
	t.Cleanup(c.startNode(c.network.Nodes[2]))
	took = c.waitFor(30*time.Second, "node and endpoint are back", func() (bool, string) {
		return c.nodes()["node-3"] == "True" && allReady(c.endpoints(), 3), fmt.Sprint(c.nodes(), c.endpoints())
	})
	t.Logf("node and endpoint back after %s", took)
}

// nodes are the Ready conditions by node.
func (c *cluster) nodes() map[string]string {
	c.Helper()
	list, err := c.client.CoreV1().Nodes().List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	ready := map[string]string{}
	for _, n := range list.Items {
		for _, condition := range n.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				ready[n.Name] = string(condition.Status)
			}
		}
	}
	return ready
}
