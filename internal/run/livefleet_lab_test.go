//go:build lab && nightly

package run_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/record"
)

// A fleet in the pods of a lab with real controllers and a real API server. Of twenty workers one process is killed and restarted, one pod
// is deleted and replaced, and one is partitioned during the rollout. No attempt is in the record twice, and only the first two workers
// have missing records. In the red twin eleven workers are partitioned until the end, and the run is invalid.
func TestNightlyLiveFleetInPods(t *testing.T) {
	kubeconfig := labUp(t, "kube-proxy@v1.26.0/iptables")
	client := clientOf(t, kubeconfig)
	const workers = 20

	t.Run("two lost and one cut off for a while", func(t *testing.T) {
		var f *fleetOfLab
		var lost []string
		r := runFleet(t, kubeconfig, workers, map[string]func(){
			"phase scenario": func() {
				f = findFleet(t, client)
				pods := slices.Sorted(maps.Keys(f.processes))
				if len(pods) != workers {
					t.Fatalf("%d processes of workers, want %d: %v", len(pods), workers, pods)
				}
				f.kill(pods[3])
				f.remove(pods[11])
				f.cut(pods[7], true)
				lost = []string{pods[3], pods[11]}
			},
			"rollout 1 done": func() { f.healAll() },
		})
		r.whole(t, workers, lost)
		told := strings.Join(r.report.Reasons, "\n")
		for _, pod := range lost {
			if !strings.Contains(told, "a gap in the record of worker "+pod) {
				t.Errorf("the output does not name %s:\n%s", pod, told)
			}
		}
		if r.joined < 2 {
			t.Errorf("%d workers joined, want replacements of the lost ones:\n%s", r.joined, r.said)
		}
		if r.report.Verdict != analysis.Pass {
			t.Errorf("%s, want pass:\n%s", r.report.Verdict, r.said)
		}
	})
	t.Run("most cut off for good", func(t *testing.T) {
		var lost []string
		r := runFleet(t, kubeconfig, workers, map[string]func(){
			"phase scenario": func() {
				f := findFleet(t, client)
				lost = slices.Sorted(maps.Keys(f.processes))[:11]
				for _, pod := range lost {
					f.cut(pod, true)
				}
			},
		})
		r.whole(t, workers, lost)
		if told := strings.Join(r.report.Reasons, "\n"); r.report.Verdict != analysis.Invalid || !strings.Contains(told, "of the time of 20 workers is not in the record") ||
			!strings.Contains(told, "only 9 of 20 workers have a record") {
			t.Errorf("%s, want invalid, because nine workers are less than half of the fleet:\n%s", r.report.Verdict, r.said)
		}
	})
}

// fleetOfLab has the fleet's pods of a running run, and their processes on this machine's kernel.
type fleetOfLab struct {
	t         *testing.T
	client    kubernetes.Interface
	namespace string
	processes map[string]int // pids, by pod
	away      []string       // pods that are cut off
}

// findFleet finds the processes of the run's workers by their environment.
func findFleet(t *testing.T, client kubernetes.Interface) *fleetOfLab {
	t.Helper()
	pods, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{LabelSelector: "app=fleet"})
	if err != nil {
		t.Fatal(err)
	}
	f := &fleetOfLab{t: t, client: client, processes: map[string]int{}}
	for i := range pods.Items {
		f.namespace = pods.Items[i].Namespace
		f.processes[pods.Items[i].Name] = 0
	}
	environments, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range environments {
		data, _ := os.ReadFile(file) // empty for other users' processes and ended ones
		for _, variable := range bytes.Split(data, []byte{0}) {
			pod, is := strings.CutPrefix(string(variable), "HITLESS_POD=")
			if _, ours := f.processes[pod]; is && ours {
				f.processes[pod], _ = strconv.Atoi(strings.Split(file, "/")[2])
			}
		}
	}
	for pod, pid := range f.processes {
		if pid == 0 {
			t.Fatalf("no process of %s in /proc", pod)
		}
	}
	return f
}

// kill ends a pod's process, which its kubelet restarts.
func (f *fleetOfLab) kill(pod string) {
	if err := syscall.Kill(f.processes[pod], syscall.SIGKILL); err != nil {
		f.t.Error(err)
	}
}

// remove deletes a pod without a grace period, like the loss of its node.
func (f *fleetOfLab) remove(pod string) {
	if err := f.client.CoreV1().Pods(f.namespace).Delete(f.t.Context(), pod, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		f.t.Error(err)
	}
}

// cut drops a pod's answers to the API server, or stops that. Its probes continue.
func (f *fleetOfLab) cut(pod string, away bool) {
	verb := "del"
	if away {
		verb = "add"
		f.away = append(f.away, pod)
	}
	pid := strconv.Itoa(f.processes[pod])
	words := []string{"--target", pid, "--net"}
	own, _ := os.Readlink("/proc/self/ns/user")
	if theirs, _ := os.Readlink("/proc/" + pid + "/ns/user"); theirs != own {
		words = append(words, "--user", "--preserve-credentials")
	}
	out, err := exec.Command("nsenter", append(words, "--", "ip", "route", verb, "blackhole", topology.ControlAddr.String())...).CombinedOutput()
	if err != nil {
		f.t.Errorf("cutting %s off: %v: %s", pod, err, out)
	}
}

func (f *fleetOfLab) healAll() {
	for _, pod := range f.away {
		f.cut(pod, false)
	}
}

// fleetRun is a run with a fleet, and its workers' attempts in the record.
type fleetRun struct {
	report *analysis.Report
	said   string
	joined int

	worker map[uint16]string
	gap    map[uint16]uint64 // the first number that may be missing
	come   map[uint16]map[uint64]int
}

// runFleet runs a rollout with a fleet from the lab's client. It calls the function of a line when the run prints the line.
func runFleet(t *testing.T, kubeconfig string, workers int, when map[string]func()) *fleetRun {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	out := filepath.Join(t.TempDir(), "out")
	cmd := exec.CommandContext(ctx, program, "lab", "shell", "--kubeconfig", kubeconfig, "--", program, "run", "rollout", "--kubeconfig", kubeconfig, "--rate", "10",
		"--fleet", strconv.Itoa(workers), "--fleet-rate", "2", "--fleet-image", "registry.example/hitless:1",
		"--set", "rollouts=1", "--set", "baseline=15s", "--set", "settle=10s", "--out", out)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) } // the run deletes its namespace
	cmd.WaitDelay = time.Minute
	r := &fleetRun{worker: map[uint16]string{}, gap: map[uint16]uint64{}, come: map[uint16]map[uint64]int{}}
	if err := r.follow(cmd, when); err != nil {
		t.Fatalf("%v:\n%s", err, r.said)
	}
	var err error
	if r.report, err = analysis.Read(filepath.Join(out, "report.json")); err != nil {
		t.Fatalf("%v:\n%s", err, r.said)
	}
	if err := r.read(out); err != nil {
		t.Fatal(err)
	}
	return r
}

// follow runs a command, stores its output, and calls the function of each line once. The report has the result.
func (r *fleetRun) follow(cmd *exec.Cmd, when map[string]func()) error {
	says, in := io.Pipe()
	defer says.Close() // after a failure nobody reads, and writers must not wait
	cmd.Stdout, cmd.Stderr = in, in
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		ended <- errors.Join(err, in.Close())
	}()
	for each := bufio.NewScanner(says); each.Scan(); {
		r.said += each.Text() + "\n"
		for said, do := range when {
			if strings.Contains(each.Text(), said) {
				delete(when, said)
				do()
			}
		}
	}
	if err := <-ended; err != nil && !errors.As(err, new(*exec.ExitError)) {
		return err
	}
	if len(when) > 0 {
		return fmt.Errorf("the run ended without printing %q", slices.Collect(maps.Keys(when)))
	}
	return nil
}

// read reads the workers' attempts and missing records from the history.
func (r *fleetRun) read(out string) error {
	h, err := record.OpenHistory(out)
	if err != nil {
		return err
	}
	for e, failed := range h.Events() {
		if failed != nil {
			return failed
		}
		switch b := e.Body.(type) {
		case record.Lane:
			if b.Worker == "" {
				break
			}
			r.worker[b.ID], r.come[b.ID] = b.Worker, map[uint64]int{}
			if b.Joined {
				r.joined++
			}
		case record.MissingRecord:
			r.gap[b.Lane] = b.Seq
		}
	}
	for a, failed := range h.Attempts() {
		if err = errors.Join(err, failed); err != nil {
			return err
		}
		if come := r.come[a.Lane]; come != nil {
			come[a.Seq]++
		}
	}
	return err
}

// whole checks the record of at least so many workers: each has each number from 0 on once, up to the last or to its missing record, which
// only lost workers have.
func (r *fleetRun) whole(t *testing.T, workers int, lost []string) {
	t.Helper()
	gaps := map[string]bool{}
	for id, worker := range r.worker {
		first, gap := r.gap[id]
		gaps[worker] = gaps[worker] || gap
		for seq, times := range r.come[id] {
			if times != 1 {
				t.Errorf("attempt %d of %s is %d times in the record", seq, worker, times)
			}
		}
		if !gap {
			first = uint64(len(r.come[id]))
		}
		for seq := range first {
			if r.come[id][seq] == 0 {
				t.Errorf("attempt %d of %s (lane %d) is neither in the record nor in a missing record", seq, worker, id)
			}
		}
		if first == 0 && !gap {
			t.Errorf("the record has no attempts and no missing record of %s", worker)
		}
	}
	if len(gaps) < workers {
		t.Errorf("%d workers are in the record, want at least %d", len(gaps), workers)
	}
	for _, worker := range lost {
		if _, has := gaps[worker]; !has {
			t.Errorf("%s, which was lost, is not in the record", worker)
		}
	}
	for worker, gap := range gaps {
		if gap != slices.Contains(lost, worker) {
			t.Errorf("%s has a missing record: %v; lost were %v\n%s", worker, gap, lost, r.said)
		}
	}
}
