package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// group is a control group (version 2) with the resource usage of a program and its children.
type group struct{ dir string }

// mountGroups mounts the hierarchy.
var mountGroups = sync.OnceValue(func() error {
	const at = "/sys/fs/cgroup"
	if err := unix.Mount("cgroup2", at, "cgroup2", 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("mounting control groups: %w", err)
	}
	return os.WriteFile(filepath.Join(at, "cgroup.subtree_control"), []byte("+memory"), 0)
})

func newGroup(name string) (*group, error) {
	if err := mountGroups(); err != nil {
		return nil, err
	}
	g := &group{filepath.Join("/sys/fs/cgroup", name)}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return nil, fmt.Errorf("making a control group: %w", err)
	}
	return g, nil
}

// add adds a process; its future children join it.
func (g *group) add(pid int) error {
	return os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
}

// cpu returns the CPU time so far, in microseconds.
func (g *group) cpu() (time.Duration, error) {
	n, err := numberAfter(filepath.Join(g.dir, "cpu.stat"), "usage_usec")
	return time.Duration(n) * time.Microsecond, err
}

// peak returns the largest charged memory so far, in MB.
func (g *group) peak() (float64, error) {
	n, err := numberAfter(filepath.Join(g.dir, "memory.peak"), "")
	return megabytes(n), err
}

// peakRSS returns the largest resident set of a process so far (proc(5), VmHWM), in MB.
func peakRSS(pid int) (float64, error) {
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
