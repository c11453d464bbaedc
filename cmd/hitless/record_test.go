//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/lab/replay"
	"github.com/hitless/hitless/lab/replay/replaytest"
)

// liveCluster is the kubeconfig of a cluster with one Service.
func liveCluster(t *testing.T) string {
	t.Helper()
	plane := replay.New()
	if _, err := plane.Apply(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "pay", Namespace: "shop"}, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.10"}}); err != nil {
		t.Fatal(err)
	}
	return replaytest.Serve(t, plane.Handler())
}

// executed is what a command line does, within this process.
func executed(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = execute(args, &out, &errs)
	return code, out.String(), errs.String()
}

// A recording that is cut off anywhere is a usage error with its line, before anything is started. A complete one reaches the next check,
// which fails here because the cache cannot be created.
func TestRecordAndReplay(t *testing.T) {
	t.Setenv("HITLESS_CACHE", "/dev/null/cache")
	dir := t.TempDir()
	file := filepath.Join(dir, "a.timeline")
	if code, out, errs := executed("record", "--kubeconfig", liveCluster(t), "--for", "1ms", "--anonymous", "--out", file); code != exitPass || !strings.HasPrefix(out, file+": 1 Services, 0 EndpointSlices, 0 Nodes and 0 Pods at the beginning, 0 changes in ") {
		t.Fatalf("exit code %d\n%s%s", code, out, errs)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(dir, "cut.timeline")
	replays := func(part []byte) (int, string) {
		t.Helper()
		if err := os.WriteFile(cut, part, 0o600); err != nil {
			t.Fatal(err)
		}
		code, _, errs := executed("replay", cut, "--controlplane", "replay", "--out", filepath.Join(dir, "out"))
		return code, errs
	}
	whole := strings.TrimRight(string(text), "\n") // what lacks its last newline only is whole
	for n := range len(whole) {
		line := max(1, strings.Count(strings.TrimRight(whole[:n], "\n"), "\n")+1)
		if code, errs := replays(text[:n]); code != exitUsage || !strings.HasPrefix(errs, fmt.Sprintf("hitless: %s:%d: ", cut, line)) {
			t.Fatalf("cut off after %d bytes: exit code %d, want %d and line %d\n%s\n%s", n, code, exitUsage, line, errs, text[:n])
		}
	}
	if code, errs := replays(text); code != exitUsage || !strings.Contains(errs, "HITLESS_CACHE") {
		t.Errorf("the whole recording: exit code %d\n%s", code, errs)
	}
}

func TestRecordIsUsageWithoutACluster(t *testing.T) {
	for _, args := range [][]string{{"record"}, {"record", "--kubeconfig", "/none", "--out", filepath.Join(t.TempDir(), "f")}, {"record", "--kubeconfig", "/none"}} {
		if code, _, errs := executed(args...); code != exitUsage || !strings.Contains(errs, "--") {
			t.Errorf("%v: exit code %d\n%s", args, code, errs)
		}
	}
}

// Ctrl-C completes a recording. Before the end of its duration the exit code is that of an interrupt.
func TestCtrlCEndsARecording(t *testing.T) {
	cluster := liveCluster(t)
	for _, c := range []struct {
		args []string
		code int
	}{{nil, exitPass}, {[]string{"--for", "1h"}, exitInterrupted}} {
		file := filepath.Join(t.TempDir(), "a.timeline")
		cmd := program(append([]string{"record", "--kubeconfig", cluster, "--out", file}, c.args...)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
			if text, err := os.ReadFile(file + ".part"); err == nil && bytes.Contains(text, []byte("given ")) {
				break
			}
			if time.Now().After(end) {
				_ = cmd.Process.Kill() // the test fails in any case
				t.Fatal("nothing was recorded")
			}
		}
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // the exit code tells
		text, err := os.ReadFile(file)
		if err != nil || !strings.HasSuffix(string(text), " end\n") || cmd.ProcessState.ExitCode() != c.code {
			t.Errorf("%v: exit code %d, want %d; left is %q, %v", c.args, cmd.ProcessState.ExitCode(), c.code, text, err)
		}
	}
}

// A file that cannot be written is an error before the API server is asked, and a server that does not answer is one after a bounded time.
func TestRecordChecksItsFileFirst(t *testing.T) {
	left := emptyFolder(t)
	silent := replaytest.Kubeconfig(t, "http://127.0.0.1:1")
	there := filepath.Join(t.TempDir(), "there.timeline")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for out, want := range map[string]string{there: "it exists already", "/dev/null/x.timeline": "--out", "/proc/none/x.timeline": "--out"} {
		code, _, errs := executed("record", "--kubeconfig", silent, "--out", out, "--for", "5s")
		if code != exitUsage || !strings.Contains(errs, want) || strings.Contains(errs, "asking") {
			t.Errorf("--out %s: exit %d, want 2 and %q: %s", out, code, want, errs)
		}
	}
	if names := left(); len(names) > 0 {
		t.Errorf("wrong calls left %q", names)
	}
}
