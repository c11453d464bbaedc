//go:build linux

package guest

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// wakeups counts wake-ups and CPU time by program. In virtual time they determine the wall time of a run, since idle time costs
// nothing. With the virtual clock a nanosecond of CPU time is one instruction.
type wakeups map[string]usage

type usage struct {
	wakeups uint64 // times
	cpu     uint64 // ns
}

// Names of rows that are not running programs.
const (
	// interrupts are those of the machine, which are cheaper than wake-ups.
	interrupts = "(interrupts)"
	// ended are child programs that have ended, such as replaced proxies and pods, with their totals.
	ended = "(programs that have ended)"
)

// countWakeups reads the voluntary context switches and the running time of all living threads (proc(5),
// /proc/PID/task/TID/status and schedstat), and of the programs that have ended (getrusage(2), RUSAGE_CHILDREN).
func countWakeups() wakeups {
	w := wakeups{interrupts: usage{wakeups: countInterrupts()}, ended: countEnded()}
	files, _ := filepath.Glob("/proc/[0-9]*/task/[0-9]*/status")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		n, _ := strconv.ParseUint(statusField(data, "voluntary_ctxt_switches:"), 10, 64)
		name := programOf(file, data)
		w[name] = usage{w[name].wakeups + n, w[name].cpu + runningTime(filepath.Dir(file))}
	}
	return w
}

// runningTime is the first number of a thread's schedstat in ns; 0 in a kernel without it.
func runningTime(task string) uint64 {
	data, err := os.ReadFile(filepath.Join(task, "schedstat"))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(data), " ")
	n, _ := strconv.ParseUint(first, 10, 64)
	return n
}

func countEnded() usage {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &u); err != nil {
		return usage{} // not seen so far
	}
	return usage{wakeups: uint64(u.Nvcsw), cpu: uint64(u.Utime.Nano() + u.Stime.Nano())}
}

// countInterrupts returns the first number of the line intr of /proc/stat.
func countInterrupts() uint64 {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(statusField(data, "intr "), " ")
	n, _ := strconv.ParseUint(first, 10, 64)
	return n
}

func statusField(status []byte, name string) string {
	for line := range bytes.Lines(status) {
		if rest, is := bytes.CutPrefix(line, []byte(name)); is {
			return string(bytes.TrimSpace(rest))
		}
	}
	return ""
}

// programOf names the program of a thread, for hitless with its first argument.
func programOf(file string, status []byte) string {
	pid := strings.Split(file, "/")[2]
	line, _ := os.ReadFile("/proc/" + pid + "/cmdline")
	args := strings.Split(string(line), "\x00")
	name := filepath.Base(args[0])
	switch {
	case len(line) == 0:
		return "kernel " + statusField(status, "Name:")
	case name == "hitless" && len(args) > 1 && args[1] != "":
		return "hitless " + args[1]
	}
	return name
}

// programs is the number of wake-ups of all programs.
func (w wakeups) programs() (woken float64) {
	for name, n := range w {
		if name != interrupts {
			woken += float64(n.wakeups)
		}
	}
	return woken
}

// since returns the difference to an earlier count: the wake-ups per second of all programs without interrupts, and a table, most
// first. A program that has ended since is in two rows, and in the sum once.
func (w wakeups) since(before wakeups, passed time.Duration) (perSecond float64, table string) {
	type row struct {
		name string
		usage
	}
	var rows []row
	for name, n := range w {
		was := before[name]
		if n.wakeups > was.wakeups { // a program whose threads have ended counts less than it did
			rows = append(rows, row{name, usage{n.wakeups - was.wakeups, n.cpu - min(n.cpu, was.cpu)}})
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Or(cmp.Compare(b.wakeups, a.wakeups), cmp.Compare(a.name, b.name)) })
	var b strings.Builder
	fmt.Fprintf(&b, "%12s  %12s  program\n", "wake-ups/s", "µs of CPU/s")
	for _, r := range rows {
		fmt.Fprintf(&b, "%12.3f  %12.1f  %s\n", float64(r.wakeups)/passed.Seconds(), float64(r.cpu)/1000/passed.Seconds(), r.name)
	}
	return (w.programs() - before.programs()) / passed.Seconds(), b.String()
}
