//go:build lab

package run_test

import (
	"errors"
	"os"
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
	file, _ := startLab(t, subject, flags...)
	return file
}

// startLab is labUp, which also returns the process.
func startLab(t *testing.T, subject string, flags ...string) (string, *os.Process) {
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
	return file, cmd.Process
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

// cleanAfterAKill kills a run. It leaves its namespace, which `hitless clean` deletes.
func cleanAfterAKill(t *testing.T, kubeconfig string) {
	t.Helper()
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
	wantNothingLeft(t, kubeconfig)
}

// wantNothingLeft fails the test unless `hitless clean` finds nothing.
func wantNothingLeft(t *testing.T, kubeconfig string) {
	t.Helper()
	left, err := exec.Command(program, "clean", "--kubeconfig", kubeconfig, "--dry-run").CombinedOutput()
	if err != nil || !strings.Contains(string(left), "nothing is left") {
		t.Errorf("%v: %s is left", err, left)
	}
}
