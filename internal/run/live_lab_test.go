//go:build lab

package run_test

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hitless/hitless/analysis"
)

// labUp starts a lab with these flags in a separate process until the test ends, and returns its kubeconfig.
func labUp(t *testing.T, subject string, flags ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	cmd := exec.Command(program, append([]string{"lab", "up", "--subject", subject, "--kubeconfig", file}, flags...)...)
	var said output
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		<-ended
	})
	for end := time.Now().Add(10 * time.Minute); !strings.Contains(said.String(), "the lab is up"); time.Sleep(100 * time.Millisecond) {
		select {
		case <-ended:
			if strings.Contains(said.String(), "was refused") {
				t.Skip(said.String())
			}
			t.Fatalf("the lab ended:\n%s", said.String())
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("the lab did not come up:\n%s", said.String())
		}
	}
	return file
}

// output is the output of a program so far.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// judged runs a scenario with short phases, with the words before its command if there are any, and returns its report and exit code.
func judged(t *testing.T, scenario string, way ...string) (*analysis.Report, int) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	words := append([]string{program}, way...)
	words = append(append(words, "run"), strings.Fields(scenario)...)
	words = append(words, "--rate", "10", "--set", "baseline=15s", "--set", "settle=5s", "--out", out)
	run := exec.Command(words[0], words[1:]...)
	said, err := run.CombinedOutput()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	r, err := analysis.Read(filepath.Join(out, "report.json"))
	if err != nil {
		t.Fatalf("%s: %v:\n%s", strings.Join(words, " "), err, said)
	}
	return r, run.ProcessState.ExitCode()
}

// A run with only the lab's kubeconfig has the verdict of a run inside: pass for a rollout, and fail for a proxy without the fallback to
// terminating endpoints, with the old pod's termination as cause. The real clock needs a CPU that nothing else uses: an invalid run fails the test.
func TestLiveVerdictsEqualLabVerdicts(t *testing.T) {
	for subject, want := range map[string]analysis.Verdict{"kube-proxy@v1.26.0/iptables": analysis.Pass, "kube-proxy@v1.25.3/iptables": analysis.Fail} {
		t.Run(subject, func(t *testing.T) {
			kubeconfig := labUp(t, subject)
			r, exit := judged(t, "rollout --set rollouts=1 --kubeconfig "+kubeconfig, "lab", "shell", "--kubeconfig", kubeconfig, "--", program)
			if r.Verdict != want || exit != want.ExitCode() {
				t.Fatalf("%s with exit code %d, want %s: %s", r.Verdict, exit, want, strings.Join(r.Reasons, "; "))
			}
			if want == analysis.Fail && (r.Unexplained.Share > 0.1 || !strings.Contains(r.Sentence(), "started terminating")) {
				t.Errorf("%.0f %% of the losses are unexplained; the report says: %s", 100*r.Unexplained.Share, r.Sentence())
			}
			left, err := exec.Command(program, "clean", "--kubeconfig", kubeconfig, "--dry-run").CombinedOutput()
			if err != nil || !strings.Contains(string(left), "nothing is left") {
				t.Errorf("the run left %s (%v)", left, err)
			}
		})
	}
}

// A killed run leaves its namespace, which `hitless clean` deletes.
func TestCleanAfterAKill(t *testing.T) {
	kubeconfig := labUp(t, "kube-proxy@v1.37.1/nftables")
	run := exec.Command(program, "run", "quiet", "--kubeconfig", kubeconfig, "--out", t.TempDir())
	var said output
	run.Stdout, run.Stderr = &said, &said
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); !strings.Contains(said.String(), "deploy web"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			_ = run.Process.Kill()
			t.Fatalf("the run did not start:\n%s", said.String())
		}
	}
	_ = run.Process.Kill()
	_ = run.Wait()
	out, err := exec.Command(program, "clean", "--kubeconfig", kubeconfig).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "deleted the namespace hitless-quiet-") {
		t.Errorf("%v: %s", err, out)
	}
	left, err := exec.Command(program, "clean", "--kubeconfig", kubeconfig).CombinedOutput()
	if err != nil || !strings.Contains(string(left), "nothing is left") {
		t.Errorf("%v: %s is left", err, left)
	}
}
