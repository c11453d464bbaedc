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

// The real controllers of DaemonSets and budgets are followed as those that the unit tests play: a DaemonSet is restarted and gets
// another image and its own again, a node is drained, and all is put back. The lab's own proxies are programs of its nodes and no
// DaemonSet's, so that this one's pods stand in: what is shown is what is done to the cluster, and that no connection is lost by it.
func TestAStrangerRestartsUpgradesAndDrains(t *testing.T) {
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
		said, _ := run.CombinedOutput() // what came of it stands in the report
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
		t.Errorf("the DaemonSet is of generation %d with the image %s and the annotations %v; want one that was changed three times and put back",
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
