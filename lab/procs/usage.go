//go:build linux

package procs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// CPU returns the CPU time so far, with a resolution of 1 µs.
func (g *Group) CPU() (time.Duration, error) {
	n, err := numberAfter(filepath.Join(g.dir, "cpu.stat"), "usage_usec")
	return time.Duration(n) * time.Microsecond, err
}

// AwaitIdle waits until the group is idle, and returns its CPU time since its start. It is idle when it used less than a hundredth of
// the CPU for 2 s. now is the clock of sleep, and most the longest wait.
func (g *Group) AwaitIdle(now func() time.Duration, sleep func(time.Duration) error, most time.Duration) (time.Duration, error) {
	const window, share = 2 * time.Second, 100
	before, err := g.CPU()
	for end := now() + most; err == nil; {
		if now() > end {
			return 0, fmt.Errorf("it was not idle for %s within %s", window, most)
		}
		if err := sleep(window); err != nil {
			return 0, err
		}
		var used time.Duration
		used, err = g.CPU()
		if used-before < window/share {
			return used, err
		}
		before = used
	}
	return 0, err
}

// PeakMB returns the largest charged memory so far, in MB, after AccountMemory.
func (g *Group) PeakMB() (float64, error) {
	n, err := numberAfter(filepath.Join(g.dir, "memory.peak"), "")
	return megabytes(n), err
}

// PeakRSS returns the largest resident set of a process so far (proc(5), VmHWM), in MB.
func PeakRSS(pid int) (float64, error) {
	n, err := numberAfter(fmt.Sprintf("/proc/%d/status", pid), "VmHWM:")
	return megabytes(n << 10), err
}

func megabytes(n int) float64 { return float64(n*10>>20) / 10 }

// numberAfter returns the number after a word at the start of a line.
func numberAfter(file, word string) (int, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("reading resource usage: %w", err)
	}
	for line := range bytes.Lines(data) {
		if rest, is := strings.CutPrefix(string(line), word); is {
			fields := strings.Fields(rest)
			if len(fields) > 0 {
				return strconv.Atoi(fields[0])
			}
		}
	}
	return 0, fmt.Errorf("reading resource usage: %s has no %q", file, word)
}

// WithoutGC runs f without garbage collections of this program, which may share the CPU with those that it has started.
func WithoutGC(f func() error) error {
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	return f()
}
