//go:build linux

package probes

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// realTimeVariable makes the test binary call RealTime and print the scheduling policy of each of its threads.
const realTimeVariable = "HITLESS_TEST_REAL_TIME"

func init() { helpers[realTimeVariable] = printPolicies }

func printPolicies() {
	hold := make(chan struct{})
	var threads sync.WaitGroup
	thread := func() {
		threads.Add(1)
		go func() {
			runtime.LockOSThread()
			threads.Done()
			<-hold
		}()
	}
	thread() // one before, one after
	threads.Wait()
	if err := RealTime(); err != nil {
		fmt.Println(err)
		return
	}
	thread()
	threads.Wait()
	entries, _ := os.ReadDir("/proc/self/task")
	for _, e := range entries {
		tid, _ := strconv.Atoi(e.Name())
		if attr, err := unix.SchedGetAttr(tid, 0); err == nil {
			fmt.Println("policy", attr.Policy, "priority", attr.Priority)
		}
	}
}

func TestRealTimeReachesEveryThread(t *testing.T) {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), realTimeVariable+"=1")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if strings.Contains(string(out), "CAP_SYS_NICE") {
		t.Skipf("not allowed here: %s", out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) < 3 {
		t.Fatalf("only %d threads: %s", len(lines), out)
	}
	for _, l := range lines {
		if l != fmt.Sprintf("policy %d priority 1", unix.SCHED_FIFO) {
			t.Errorf("a thread has %s", l)
		}
	}
}

// A prompt process keeps its pages in memory where RLIMIT_MEMLOCK allows it, and goes on where it does not.
func TestPromptKeepsThePagesInMemory(t *testing.T) {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &before); err != nil {
		t.Fatal(err)
	}
	if unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}) == nil { // root may
		defer func() { _ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &before) }()
	}
	denied := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_ONFAULT)
	_ = unix.Munlockall()
	if err := Prompt(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munlockall() }()
	if denied != nil {
		t.Skipf("this user may not lock its pages, the limit is %d bytes: %v", before.Cur, denied)
	}
	sizes := map[string]uint64{} // in kB
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.HasPrefix(name, "Vm") {
			sizes[name], _ = strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		}
	}
	if sizes["VmLck"] == 0 {
		t.Errorf("no page is locked of %d kB", sizes["VmSize"])
	}
}
