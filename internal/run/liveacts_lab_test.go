//go:build lab

package run_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
)

// Images of the lab's DaemonSet. Only the newer proxy falls back to terminating endpoints; the lab does not have the last version.
const (
	newerProxy   = "registry.k8s.io/kube-proxy:v1.37.1"
	olderProxy   = "registry.k8s.io/kube-proxy:v1.25.3"
	unknownProxy = "registry.k8s.io/kube-proxy:v1.99.0"
)

// Runs with only the lab's kubeconfig work with the real controllers and a real kube-proxy: its DaemonSet is restarted and gets another
// image, a node is drained, and everything is restored. The older version, which does not fall back to terminating endpoints, is the red twin:
// a rollout fails, with the old pod's termination as cause. The real clock needs a CPU that nothing else uses: an invalid run fails the test.
func TestLiveRunsWithRealControllers(t *testing.T) {
	const checks = "--set checkInterval=2s" // of the load balancer, which then removes a node within shutdownDelay
	kubeconfig := labUp(t, "kube-proxy@v1.37.1/iptables", strings.Fields("--proxy-daemonset --proxy-image kube-proxy@v1.25.3 "+checks)...)
	client := clientOf(t, kubeconfig)
	shell := []string{"lab", "shell", "--kubeconfig", kubeconfig, "--", program}
	site := " --kubeconfig " + kubeconfig + " " + checks + " --set shutdownDelay=10s --set gracePeriod=20s"
	const allowed = " --allow-disruption"
	const upgrade = "upgrade --set proxy=" + proxySet + " --set image=" + olderProxy + " --set roll=on" + allowed
	cleanAfterAKill(t, kubeconfig)
	for _, s := range []struct {
		words   string
		verdict analysis.Verdict
		image   string // of the DaemonSet afterwards
		rolls   bool   // it replaces proxies
	}{
		{"rollout --set rollouts=1", analysis.Pass, newerProxy, false},
		{"restart --set proxy=" + proxySet + allowed, analysis.Pass, newerProxy, true},
		{upgrade + " --set back=on", analysis.Pass, newerProxy, true},
		{"drain --set node=node-1 --set off=10s --set replicas=2" + allowed, analysis.Pass, newerProxy, false},
		{upgrade, analysis.Fail, olderProxy, true},
		{"rollout --set rollouts=1", analysis.Fail, olderProxy, false},
	} {
		r, exit := judged(t, s.words+site, shell...)
		said := fmt.Sprintf("%s: %s with exit code %d: %s", s.words, r.Verdict, exit, strings.Join(r.Reasons, "; "))
		if r.Verdict != s.verdict || exit != s.verdict.ExitCode() {
			t.Errorf("%s; want %s", said, s.verdict)
		}
		if s.verdict == analysis.Fail && (r.Unexplained.Share > 0.1 || !strings.Contains(r.Sentence(), "started terminating")) {
			t.Errorf("%s: %.0f %% of the losses are unexplained; the report says: %s", s.words, 100*r.Unexplained.Share, r.Sentence())
		}
		if s.rolls {
			wantReplacedProxies(t, s.words, r)
		}
		wantProxySet(t, client, s.image)
	}
	n, err := client.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
	if err != nil || n.Spec.Unschedulable || n.Annotations["hitless/put-back"] != "" {
		t.Errorf("node-1: %+v, %v, %v; want one that takes pods", n.Spec, n.Annotations, err)
	}
	interruptedUpgradeIsPutBack(t, client, append(shell, strings.Fields("run upgrade --set proxy="+proxySet+" --set image="+unknownProxy+allowed+site)...))
	wantNothingLeft(t, kubeconfig)
}

// wantReplacedProxies fails the test unless the report has a step, and on each node the end of a proxy and a new one.
func wantReplacedProxies(t *testing.T, words string, r *analysis.Report) {
	t.Helper()
	steps, proxies := 0, map[string]string{}
	for _, e := range r.Events {
		switch e.Kind {
		case record.KindStep:
			steps++
		case record.KindProxy:
			proxies[e.Node] += e.Text + "\n"
		}
	}
	if steps == 0 {
		t.Errorf("%s: the report has no step", words)
	}
	for _, node := range []string{"node-1", "node-2", "node-3"} {
		for _, state := range []string{"terminating", "removed", "bound", "ready"} {
			if !strings.Contains(proxies[node], " is "+state) {
				t.Errorf("%s: no proxy on %s is %s:\n%s", words, node, state, proxies[node])
			}
		}
	}
}

// wantProxySet fails the test unless the DaemonSet has the image, nothing to restore, and soon a ready pod of it on each node.
func wantProxySet(t *testing.T, client kubernetes.Interface, image string) {
	t.Helper()
	d, err := client.AppsV1().DaemonSets("kube-system").Get(t.Context(), "kube-proxy", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := d.Spec.Template.Spec.Containers[0].Image; got != image || d.Annotations["hitless/put-back"] != "" {
		t.Errorf("the DaemonSet has the image %s and the annotations %v; want %s and nothing to restore", got, d.Annotations, image)
	}
	awaitProxyPods(t, client, "three ready pods of "+image, func(pods []corev1.Pod) bool {
		return len(pods) == 3 && !slices.ContainsFunc(pods, func(p corev1.Pod) bool {
			return p.Spec.Containers[0].Image != image || len(p.Status.ContainerStatuses) == 0 || !p.Status.ContainerStatuses[0].Ready
		})
	})
}

// proxyPodsWithin is more than the setup and the baseline of a run take.
const proxyPodsWithin = 3 * time.Minute

// awaitProxyPods waits until the pods of the DaemonSet are as wanted.
func awaitProxyPods(t *testing.T, client kubernetes.Interface, what string, wanted func(pods []corev1.Pod) bool) {
	t.Helper()
	for end := time.Now().Add(proxyPodsWithin); ; time.Sleep(100 * time.Millisecond) {
		list, err := client.CoreV1().Pods("kube-system").List(t.Context(), metav1.ListOptions{LabelSelector: "k8s-app=kube-proxy"})
		if err != nil {
			t.Fatal(err)
		}
		if wanted(list.Items) {
			return
		}
		if time.Now().After(end) {
			var seen []string
			for _, p := range list.Items {
				seen = append(seen, fmt.Sprintf("%s on %s: %+v", p.Name, p.Spec.NodeName, p.Status.ContainerStatuses))
			}
			t.Fatalf("not within %s: %s; last seen:\n%s", proxyPodsWithin, what, strings.Join(seen, "\n"))
		}
	}
}

// interruptedUpgradeIsPutBack starts an upgrade to a version that the lab does not have. The new pod says which versions the lab has. The
// run is interrupted, and the DaemonSet gets its old image and proxies again.
func interruptedUpgradeIsPutBack(t *testing.T, client kubernetes.Interface, words []string) {
	t.Helper()
	run := exec.Command(program, append(words, "--rate", "10", "--set", "baseline=15s", "--out", filepath.Join(t.TempDir(), "out"))...)
	var said output
	run.Stdout, run.Stderr = &said, &said
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = run.Wait(); close(ended) }()
	t.Cleanup(func() { _ = run.Process.Kill(); <-ended })
	var message string
	awaitProxyPods(t, client, "a pod of "+unknownProxy+" that waits", func(pods []corev1.Pod) bool {
		for _, p := range pods {
			for _, c := range p.Status.ContainerStatuses {
				if w := c.State.Waiting; w != nil && w.Reason == "ErrImagePull" {
					message = w.Message
					return true
				}
			}
		}
		return false
	})
	if !strings.Contains(message, "v1.25.3, v1.37.1") || !strings.Contains(message, "--proxy-image") {
		t.Errorf("the pod says %q; want the versions of the lab and how to add one", message)
	}
	_ = run.Process.Signal(syscall.SIGINT)
	select {
	case <-ended:
	case <-time.After(3 * time.Minute):
		t.Fatalf("the run did not end after Ctrl-C:\n%s", said.String())
	}
	if code := run.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d after Ctrl-C, want 130:\n%s", code, said.String())
	}
	wantProxySet(t, client, olderProxy)
}
