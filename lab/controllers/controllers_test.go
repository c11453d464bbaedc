package controllers

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/hitless/hitless/lab/replay"
	"github.com/hitless/hitless/record"
)

var ctx = context.Background()

// within asks until the condition holds, for ten seconds at most.
func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited 10 s for %s", what)
		}
	}
}

// api is a replay control plane of the test's own.
func api(t *testing.T) kubernetes.Interface { return apiOf(t, replay.New()) }

func apiOf(t *testing.T, plane *replay.Server) kubernetes.Interface {
	t.Helper()
	server := httptest.NewServer(plane.Handler())
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func pods(t *testing.T, client kubernetes.Interface) []corev1.Pod {
	t.Helper()
	list, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func makeReady(t *testing.T, client kubernetes.Interface, pod corev1.Pod, ip string) {
	t.Helper()
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	pod.ResourceVersion = ""
	if _, err := client.CoreV1().Pods("default").UpdateStatus(ctx, &pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// setReady changes the readiness of a pod that runs.
func setReady(t *testing.T, client kubernetes.Interface, name string, status corev1.ConditionStatus) {
	t.Helper()
	pod, err := client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	if _, err := client.CoreV1().Pods("default").UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// addresses returns the ready and the other addresses of a Service in its Endpoints.
func addresses(client kubernetes.Interface, service string) string {
	got, err := client.CoreV1().Endpoints("default").Get(ctx, service, metav1.GetOptions{})
	if err != nil || len(got.Subsets) == 0 {
		return "none"
	}
	text := ""
	for _, a := range got.Subsets[0].Addresses {
		text += a.IP + " "
	}
	text += "/ "
	for _, a := range got.Subsets[0].NotReadyAddresses {
		text += a.IP + " "
	}
	return text
}

// control runs the controllers for two nodes until the test ends.
func control(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error)
	go func() { done <- Run(ctx, client, record.IPv4, []string{"node-1", "node-2"}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestRollingUpdateSurgesByOnePod(t *testing.T) {
	labels, replicas := map[string]string{"app": "web"}, int32(1)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}}}}}}
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Selector: labels,
			ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal, Ports: []corev1.ServicePort{{Port: 80}}}}
	client := api(t)
	if _, err := client.AppsV1().Deployments("default").Create(ctx, d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Services("default").Create(ctx, s, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	control(t, client)

	waitFor(t, "the first pod", func() bool { return len(pods(t, client)) == 1 })
	first := pods(t, client)[0]
	makeReady(t, client, first, "10.244.1.2")
	waitFor(t, "the Service's ports and addresses", func() bool {
		got, err := client.CoreV1().Services("default").Get(ctx, "web", metav1.GetOptions{})
		return err == nil && got.Spec.ClusterIP != "" && got.Spec.HealthCheckNodePort != 0 && got.Spec.Ports[0].NodePort != 0
	})
	waitFor(t, "its endpoint", func() bool {
		list, err := client.DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 1 && len(list.Items[0].Endpoints) == 1 && *list.Items[0].Endpoints[0].Conditions.Ready
	})
	waitFor(t, "its address in Endpoints", func() bool { return addresses(client, "web") == "10.244.1.2 / " })

	setReady(t, client, first.Name, corev1.ConditionFalse)
	waitFor(t, "the address of the unready pod apart", func() bool { return addresses(client, "web") == "/ 10.244.1.2 " })
	setReady(t, client, first.Name, corev1.ConditionTrue)
	waitFor(t, "the address back", func() bool { return addresses(client, "web") == "10.244.1.2 / " })

	waitFor(t, "the change of the template", func() bool { // the status is written meanwhile: a conflict is read again
		got, err := client.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return false
		}
		got.Spec.Template.Annotations = map[string]string{"roll": "1"}
		_, err = client.AppsV1().Deployments("default").Update(ctx, got, metav1.UpdateOptions{})
		return err == nil
	})
	waitFor(t, "the second pod", func() bool { return len(pods(t, client)) == 2 })
	for _, pod := range pods(t, client) {
		if pod.Name == first.Name {
			continue
		}
		if pod.Spec.NodeName == first.Spec.NodeName {
			t.Errorf("both pods are on %s against anti-affinity", pod.Spec.NodeName)
		}
		makeReady(t, client, pod, "10.244.2.2")
	}
	waitFor(t, "only the second address, since the first pod is being deleted", func() bool { return addresses(client, "web") == "10.244.2.2 / " })
	waitFor(t, "the first pod to go", func() bool {
		left := pods(t, client)
		for _, pod := range left {
			if pod.Name == first.Name {
				return pod.DeletionTimestamp != nil // its kubelet would remove it
			}
		}
		return true
	})
}

// A watch that lags must not make the controller create a pod twice.
func TestLaggingWatchCreatesNoExtraPod(t *testing.T) {
	server := replay.New()
	client := apiOf(t, server)
	server.Fault(replay.DelayWatches{Scope: replay.Scope{Resource: "pods"}, By: 100 * time.Millisecond})
	labels, replicas := map[string]string{"app": "web"}, int32(3)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}}}}
	if _, err := client.AppsV1().Deployments("default").Create(ctx, d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	control(t, client)
	waitFor(t, "the status to count all pods", func() bool {
		got, err := client.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
		return err == nil && got.Status.Replicas >= replicas
	})
	if n := len(pods(t, client)); n != int(replicas) {
		t.Errorf("%d pods, want %d", n, replicas)
	}
}

// Deployments of one name in two namespaces get their pods independently, also while the watch lags.
func TestDeploymentsOfOneNameInTwoNamespaces(t *testing.T) {
	server := replay.New()
	client := apiOf(t, server)
	server.Fault(replay.DelayWatches{Scope: replay.Scope{Resource: "pods"}, By: 100 * time.Millisecond})
	labels, replicas := map[string]string{"app": "web"}, int32(3)
	for _, namespace := range []string{"default", "shop"} {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: namespace},
			Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}}}}
		if _, err := client.AppsV1().Deployments(namespace).Create(ctx, d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	control(t, client)
	for _, namespace := range []string{"default", "shop"} {
		waitFor(t, "the status of "+namespace+" to count all pods", func() bool {
			got, err := client.AppsV1().Deployments(namespace).Get(ctx, "web", metav1.GetOptions{})
			return err == nil && got.Status.Replicas >= replicas
		})
	}
	for _, namespace := range []string{"default", "shop"} {
		list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != int(replicas) {
			t.Errorf("%s has %d pods, want %d: %v", namespace, len(list.Items), replicas, err)
		}
	}
}

// A watch that lags must not make the controller delete the endpoints of a new Service.
func TestEndpointsOfANewServiceAreKept(t *testing.T) {
	server := replay.New()
	client := apiOf(t, server)
	control(t, client)
	waitFor(t, "the controller to watch", func() bool { return len(server.Watchers(replay.Scope{Resource: "services"})) > 0 })
	server.Fault(replay.DelayWatches{Scope: replay.Scope{Resource: "services"}, By: time.Hour})
	if _, err := client.CoreV1().Services("default").Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, service := range []string{"new", "orphan"} { // in the order in which they are collected
		s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: service + "-1", Labels: map[string]string{
			discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "hitless"}}, AddressType: discoveryv1.AddressTypeIPv4}
		if _, err := client.DiscoveryV1().EndpointSlices("default").Create(ctx, s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "the slice without a Service to be gone", func() bool {
		_, err := client.DiscoveryV1().EndpointSlices("default").Get(ctx, "orphan-1", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if _, err := client.DiscoveryV1().EndpointSlices("default").Get(ctx, "new-1", metav1.GetOptions{}); err != nil {
		t.Errorf("the slice of the new Service: %v", err)
	}
}
