//go:build lab

package run_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/analysis"
)

// The scenarios work with the real controllers: a DaemonSet is restarted and gets another image, a node is drained, and everything is
// restored. The lab's proxies are programs without a DaemonSet, so the test creates one, whose pods do not change the traffic.
func TestRestartUpgradeAndDrainWithRealControllers(t *testing.T) {
	kubeconfig := labUp(t, "kube-proxy@v1.37.1/nftables")
	client := clientOf(t, kubeconfig)
	labels := map[string]string{"k8s-app": "kube-proxy"}
	_, err := client.AppsV1().DaemonSets("kube-system").Create(t.Context(), &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "kube-proxy"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "kube-proxy", Image: "registry.example/agnhost:1", Args: []string{"pause"}}}}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"restart --set proxy=" + proxySet,
		"upgrade --set proxy=" + proxySet + " --set image=registry.example/agnhost:2 --set back=on",
		"drain --set node=node-1 --set off=10s --set replicas=2"} {
		out := filepath.Join(t.TempDir(), "out")
		args := append([]string{"lab", "shell", "--kubeconfig", kubeconfig, "--", program, "run"}, strings.Fields(words)...)
		run := exec.Command(program, append(args, "--kubeconfig", kubeconfig, "--allow-disruption", "--rate", "10",
			"--set", "baseline=15s", "--set", "settle=5s", "--set", "shutdownDelay=10s", "--set", "gracePeriod=20s", "--out", out)...)
		said, _ := run.CombinedOutput() // the report has the result
		r, err := analysis.Read(filepath.Join(out, "report.json"))
		if err != nil {
			t.Fatalf("%s: %v:\n%s", words, err, said)
		}
		if busy := strings.Join(r.Reasons, "; "); r.Verdict == analysis.Invalid && strings.Contains(busy, "fell behind") {
			t.Skip("this machine is too busy for the real clock: " + busy)
		}
		if r.Verdict != analysis.Pass {
			t.Errorf("%s: %s:\n%s", words, r.Verdict, said)
		}
	}
	d, err := client.AppsV1().DaemonSets("kube-system").Get(t.Context(), "kube-proxy", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if d.Generation != 4 || d.Spec.Template.Spec.Containers[0].Image != "registry.example/agnhost:1" || d.Annotations["hitless/put-back"] != "" {
		t.Errorf("the DaemonSet is of generation %d with the image %s and the annotations %v; want one that was changed three times and restored",
			d.Generation, d.Spec.Template.Spec.Containers[0].Image, d.Annotations)
	}
	n, err := client.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
	if err != nil || n.Spec.Unschedulable || n.Annotations["hitless/put-back"] != "" {
		t.Errorf("node-1: %+v, %v, %v; want one that takes pods", n.Spec, n.Annotations, err)
	}
	left, err := exec.Command(program, "clean", "--kubeconfig", kubeconfig, "--dry-run").CombinedOutput()
	if err != nil || !strings.Contains(string(left), "nothing is left") {
		t.Errorf("the runs left %s (%v)", left, err)
	}
}
