//go:build linux

package guest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The count tells which program cost what; interrupts stand in the table and not in the sum of the programs. What ended meanwhile is
// in it: one of two b, all of c, and another that began and ended in between.
func TestWakeupsSince(t *testing.T) {
	before := wakeups{"a": {100, 5000}, "b": {50, 1}, "c": {30, 1}, interrupts: {10, 0}, ended: {0, 0}}
	after := wakeups{"a": {300, 25_000}, "new": {20, 1000}, "b": {40, 1}, interrupts: {1010, 0}, ended: {120, 9000}}
	rate, table := after.since(before, 10*time.Second)
	if rate != 30 {
		t.Errorf("%g wake-ups a second, want 30 in 10 s: 200 of a, 20 of new, and 80 of the 120 of those that have ended", rate)
	}
	want := []string{"wake-ups/s µs of CPU/s program", "100.000 0.0 (interrupts)", "20.000 2.0 a", "12.000 0.9 (programs that have ended)",
		"2.000 0.1 new"}
	lines := strings.Split(strings.TrimSpace(table), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), table)
	}
	for i, line := range lines {
		if got := strings.Join(strings.Fields(line), " "); got != want[i] {
			t.Errorf("line %d is %q, want %q", i, got, want[i])
		}
	}
}

// A program that has ended is seen with what it did.
func TestCountWakeupsSeesWhatHasEnded(t *testing.T) {
	before := countWakeups()
	if out, err := exec.Command("sh", "-c", "for i in 1 2 3 4 5; do sleep 0.01; done").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := countWakeups()[ended].wakeups - before[ended].wakeups; got < 5 {
		t.Errorf("a program that slept five times was woken %d times", got)
	}
}

// A thread that sleeps in a loop is seen: the count reads what the kernel of this machine tells. Of other programs nothing is said: on
// a machine that is not the run's own, some end whose count nobody has.
func TestCountWakeupsSeesSleeps(t *testing.T) {
	name := filepath.Base(os.Args[0])
	before := countWakeups()
	for range 50 {
		time.Sleep(time.Millisecond)
	}
	if got := int64(countWakeups()[name].wakeups - before[name].wakeups); got < 10 {
		t.Errorf("%d wake-ups of %s, which slept 50 times", got, name)
	}
}
