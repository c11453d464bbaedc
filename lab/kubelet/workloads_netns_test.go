//go:build netns

package kubelet_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	utilexec "k8s.io/client-go/util/exec"
	"sigs.k8s.io/yaml"

	"github.com/hitless/hitless/lab/images"
)

// agnhost is what the test program is in pods. Upstream's takes four minutes of CPU time to build.
func agnhost(words []string) int {
	fail := func(err error) int {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 3
		}
		return 0
	}
	name, _ := os.Hostname()
	switch words[0] {
	case "serve": // pages: /healthz, and /hostname
		http.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
			if _, err := os.Stat("/tmp/sick"); err == nil {
				w.WriteHeader(http.StatusInternalServerError)
			}
		})
		http.HandleFunc("/hostname", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) })
		fmt.Println("serving as", name)
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM)
		go func() {
			<-end
			os.Exit(0)
		}()
		return fail(http.ListenAndServe(":8080", nil))
	case "write":
		return fail(os.WriteFile(words[1], []byte(words[2]), 0o644))
	case "read":
		text, err := os.ReadFile(words[1])
		fmt.Printf("%s", text)
		return fail(err)
	case "remove":
		return fail(os.Remove(words[1]))
	case "echo":
		_, err := io.Copy(os.Stdout, os.Stdin)
		fmt.Fprint(os.Stderr, "to stderr")
		return fail(err)
	}
	return 7
}

const workload = `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  hostname: shop
  terminationGracePeriodSeconds: 2
  initContainers:
  - {name: prepare, image: agnhost, args: [write, /data/text, from the init container], volumeMounts: [{name: data, mountPath: /data}]}
  containers:
  - name: web
    image: registry.k8s.io/e2e-test-images/agnhost:2.66.1
    args: [serve]
    volumeMounts: [{name: data, mountPath: /data, readOnly: true}]
    readinessProbe: {exec: {command: [/agnhost, read, /data/text]}, periodSeconds: 1}
    livenessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1, failureThreshold: 1}
    lifecycle: {postStart: {exec: {command: [/agnhost, write, /tmp/started, "yes"]}}}
  volumes:
  - {name: data, emptyDir: {}}
`

// A pod runs the program of its image in a root of its own, and the API server reaches it for exec, logs and port-forward.
func TestPodRunsItsImage(t *testing.T) {
	putImages(t)
	c := startClusterWith(t, true)
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(workload), pod); err != nil {
		t.Fatal(err)
	}
	// The pod is bound to a node, so that its volume with a token has its service account's.
	pod.Spec.NodeName = c.network.Nodes[0].Name
	if _, err := c.client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.waitFor(30*time.Second, "the pod is ready", func() (bool, string) {
		p, err := c.client.CoreV1().Pods("default").Get(t.Context(), "web", metav1.GetOptions{})
		return err == nil && podReady(p), fmt.Sprintf("%+v, %+v, %v", p.Status.InitContainerStatuses, p.Status.ContainerStatuses, err)
	})
	for file, want := range map[string]string{"/data/text": "from the init container", "/tmp/started": "yes", "/etc/hostname": "shop\n",
		"/etc/resolv.conf": "nameserver 10.96.0.10", "/var/run/secrets/kubernetes.io/serviceaccount/namespace": "default",
		"/var/run/secrets/kubernetes.io/serviceaccount/ca.crt": "BEGIN CERTIFICATE"} {
		if out, _, err := c.exec("", "/agnhost", "read", file); err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %q, %v; want %q", file, out, err, want)
		}
	}
	if out, errOut, err := c.exec("said to it", "/agnhost", "echo"); out != "said to it" || errOut != "to stderr" || err != nil {
		t.Errorf("exec with input: %q, %q, %v", out, errOut, err)
	}
	var exit utilexec.CodeExitError
	if _, _, err := c.exec("", "/agnhost", "unknown"); !errors.As(err, &exit) || exit.Code != 7 {
		t.Errorf("a command that fails with 7: %v", err)
	}
	if _, _, err := c.exec("", "/agnhost", "write", "/data/text", "x"); err == nil {
		t.Error("a read-only mount was written")
	}
	if _, _, err := c.exec("", "/agnhost", "write", "/tmp/x", "x"); err != nil {
		t.Errorf("the root cannot be written: %v", err)
	}
	if _, err := os.Stat("/tmp/x"); err == nil {
		t.Error("the pod wrote a file of this machine")
	}
	logs, err := c.client.CoreV1().Pods("default").GetLogs("web", &corev1.PodLogOptions{Container: "web"}).DoRaw(t.Context())
	if string(logs) != "serving as shop\n" {
		t.Errorf("logs: %q, %v", logs, err)
	}
	if text, err := c.forwarded("/hostname"); text != "shop" {
		t.Errorf("port-forward: %q, %v", text, err)
	}
	// The red twin of the probes: a pod that is sick is restarted, with an empty root and the same volume.
	if _, _, err := c.exec("", "/agnhost", "write", "/tmp/sick", ""); err != nil {
		t.Fatal(err)
	}
	c.waitFor(30*time.Second, "the container is restarted", func() (bool, string) {
		p, err := c.client.CoreV1().Pods("default").Get(t.Context(), "web", metav1.GetOptions{})
		return err == nil && podReady(p) && p.Status.ContainerStatuses[0].RestartCount == 1, fmt.Sprintf("%+v, %v", p.Status, err)
	})
	if _, _, err := c.exec("", "/agnhost", "read", "/tmp/sick"); err == nil {
		t.Error("a file of the root outlived the container")
	}
	before, err := c.client.CoreV1().Pods("default").GetLogs("web", &corev1.PodLogOptions{Container: "web", Previous: true}).DoRaw(t.Context())
	if string(before) != "serving as shop\n" {
		t.Errorf("logs of the previous container: %q, %v", before, err)
	}
}

// putImages makes the image agnhost of the test program.
func putImages(t *testing.T) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	images.Dir = t.TempDir()
	img, _ := images.Find("agnhost")
	for _, layer := range img.Layers {
		if err := os.Mkdir(layer, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(images.Dir, "agnhost", "agnhost"), program, 0o755); err != nil {
		t.Fatal(err)
	}
}

// exec runs a command in the pod, through the API server.
func (c *cluster) exec(in string, words ...string) (out, errOut string, err error) {
	config, err := c.plane.RESTConfig("")
	if err != nil {
		return "", "", err
	}
	options := &corev1.PodExecOptions{Container: "web", Command: words, Stdin: in != "", Stdout: true, Stderr: true}
	url := c.client.CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name("web").SubResource("exec").
		VersionedParams(options, scheme.ParameterCodec).URL()
	executor, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, url)
	if err != nil {
		return "", "", err
	}
	ctx, cancel := context.WithTimeout(c.Context(), 20*time.Second)
	defer cancel()
	var stdout, stderr bytes.Buffer
	streams := remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr}
	if in != "" {
		streams.Stdin = strings.NewReader(in)
	}
	err = executor.StreamWithContext(ctx, streams)
	return stdout.String(), stderr.String(), err
}

// forwarded asks for a page of the pod through a forwarded port.
func (c *cluster) forwarded(page string) (string, error) {
	config, err := c.plane.RESTConfig("")
	if err != nil {
		return "", err
	}
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return "", err
	}
	url := c.client.CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name("web").SubResource("portforward").URL()
	stop, ready := make(chan struct{}), make(chan struct{})
	defer close(stop)
	forwarder, err := portforward.New(spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url), []string{"0:8080"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return "", err
	}
	failed := make(chan error, 1)
	go func() { failed <- forwarder.ForwardPorts() }()
	select {
	case err := <-failed:
		return "", err
	case <-ready:
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return "", err
	}
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", ports[0].Local, page))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}
