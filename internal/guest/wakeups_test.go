package guest

import (
	"strings"
	"testing"
	"time"
)

// The count tells which program cost what; interrupts stand in the table and not in the sum of the programs.
func TestWakeupsSince(t *testing.T) {
	before := wakeups{"a": {100, 5000}, "ended": {50, 1}, interrupts: {10, 0}}
	after := wakeups{"a": {300, 25_000}, "new": {20, 1000}, "ended": {40, 1}, interrupts: {1010, 0}}
	rate, table := after.since(before, 10*time.Second)
	if rate != 22 {
		t.Errorf("%g wake-ups a second, want 22: 200 of a and 20 of new in 10 s", rate)
	}
	want := []string{"wake-ups/s µs of CPU/s program", "100.000 0.0 (interrupts)", "20.000 2.0 a", "2.000 0.1 new"}
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

// A thread that sleeps in a loop is seen: the count reads what the kernel of this machine tells.
func TestCountWakeupsSeesSleeps(t *testing.T) {
	before := countWakeups()
	for range 50 {
		time.Sleep(time.Millisecond)
	}
	rate, table := countWakeups().since(before, time.Second)
	if rate < 10 {
		t.Errorf("%g wake-ups of all programs while this one slept 50 times:\n%s", rate, table)
	}
}
