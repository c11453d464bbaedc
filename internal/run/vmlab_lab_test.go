//go:build lab

package run_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/analysis"
)

// A lab in a VM is a cluster for programs of this machine, which are its client in `hitless lab shell`. Nothing of it outlives its process.
func TestLabInAVM(t *testing.T) {
	kubeconfig, lab := startLab(t, "bundled", "--kernel", "vm", "--controlplane", "replay", "--nodes", "2")
	wantNothingLeft(t, kubeconfig) // asks the API over this machine's loopback
	inside := []string{"lab", "shell", "--kubeconfig", kubeconfig, "--", program}
	r, _ := judged(t, "quiet --kubeconfig "+kubeconfig, inside...)
	// A run with late attempts is invalid, and its pods answer all the same.
	if answered := r.Totals.OK + r.Totals.Delayed; r.Verdict == analysis.Fail || answered == 0 || answered*10 < r.Totals.Attempts*9 {
		t.Errorf("%s: %d of %d attempts were answered in the VM: %s", r.Verdict, answered, r.Totals.Attempts, r.Sentence())
	}
	children := childrenOf(t, lab.Pid)
	if len(children) != 2 {
		t.Errorf("the lab has the processes %v, want QEMU and that of the client's network", children)
	}
	if err := lab.Kill(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		left := running(children)
		if len(left) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%v outlived the lab", left)
		}
	}
	if out, err := exec.Command(program, inside...).CombinedOutput(); err == nil || !strings.Contains(string(out), "is gone") {
		t.Errorf("the shell of a lab that was killed: %v: %s", err, out)
	}
}

// childrenOf are the processes that a process has started (proc_pid_task(5), children).
func childrenOf(t *testing.T, pid int) (all []string) {
	t.Helper()
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, thread.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, strings.Fields(string(text))...)
	}
	return all
}

// running returns the process IDs that still have a command line. A zombie process has none: it has ended, and its parent has not waited.
func running(pids []string) (all []string) {
	for _, pid := range pids {
		if line, err := os.ReadFile("/proc/" + pid + "/cmdline"); err == nil && len(line) > 0 {
			all = append(all, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return all
}
