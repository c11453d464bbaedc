package run_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
)

// drains is the argument with which this program drains worker-1 of a kubeconfig's cluster, in a process that can be killed.
const drains = "drain-for-a-test"

func init() {
	if len(os.Args) != 4 || os.Args[1] != drains {
		return
	}
	clock := &skipping{}
	clock.rest()
	o := run.Options{Scenario: "drain", Out: os.Args[3], Program: os.Args[0], Rate: 10,
		Set:  map[string]string{"node": "worker-1", "trafficPolicy": "Cluster"},
		Live: &site.LiveOptions{Kubeconfig: os.Args[2], Target: "nodePort", AllowDisruption: true, Clock: clock},
		Progress: progress.Lines(func(text string) {
			fmt.Println(text)
			switch {
			case strings.Contains(text, "phase baseline"):
				clock.shortest.Store(int64(900 * time.Millisecond))
			case strings.Contains(text, cordoned):
				select {} // until it is killed
			}
		})}
	_, err := run.Run(context.Background(), o)
	fmt.Println(err)
	os.Exit(1)
}

// cordoned is a message in the middle of a drain.
const cordoned = "cordon worker-1 done"

// A run that is killed in the middle of a drain restores nothing. The node has its annotation, and `hitless clean` restores the node and
// deletes the run's namespace.
func TestCleanRestoresChangesOfKilledRun(t *testing.T) {
	t.Parallel()
	s := standing(t, nil)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, drains, s.kubeconfig, t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said = append(said, lines.Text())
		if strings.Contains(lines.Text(), cordoned) {
			break
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	left := s.left(t)
	n, err := s.direct.CoreV1().Nodes().Get(t.Context(), "worker-1", metav1.GetOptions{})
	if err != nil || len(left) != 1 || !n.Spec.Unschedulable || !strings.Contains(n.Annotations["hitless/put-back"], left[0]) {
		t.Fatalf("the run left %v and a node with %v (%v); it printed\n%s", left, n.Annotations, err, strings.Join(said, "\n"))
	}
	if err := site.Clean(t.Context(), site.LiveOptions{Kubeconfig: s.kubeconfig}, time.Minute, func(string) {}); err != nil {
		t.Error(err)
	}
	s.wantNode(t, "worker-1")
	if left := s.left(t); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
}
