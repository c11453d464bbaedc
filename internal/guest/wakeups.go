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

// wakeups counts, by program, what a run's wall time is made of in virtual time, where idleness costs nothing: how often
// it went to sleep by itself, and so was woken, and for how long it ran. With the virtual clock a nanosecond of that is
// one instruction.
type wakeups map[string]effort

type effort struct {
	woken uint64 // times
	ran   uint64 // ns
}

// The names under which stand what is no living program's.
const (
	// interrupts are those of the machine: no program's wake-ups, and cheaper than one.
	interrupts = "(interrupts)"
	// ended are the programs of this one that have ended, such as the proxies and pods that a run replaces, with all that they
	// did since they began.
	ended = "(programs that have ended)"
)

// countWakeups reads the voluntary context switches and the running time of all living threads (proc(5),
// /proc/PID/task/TID/status and schedstat), and of the programs that have ended (getrusage(2), RUSAGE_CHILDREN).
func countWakeups() wakeups {
	w := wakeups{interrupts: effort{woken: countInterrupts()}, ended: countEnded()}
	files, _ := filepath.Glob("/proc/[0-9]*/task/[0-9]*/status")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		n, _ := strconv.ParseUint(statusField(data, "voluntary_ctxt_switches:"), 10, 64)
		name := programOf(file, data)
		w[name] = effort{w[name].woken + n, w[name].ran + runningTime(filepath.Dir(file))}
	}
	return w
}

// runningTime is the first number of a thread's schedstat; 0 where the kernel does not count it.
func runningTime(task string) uint64 {
	data, err := os.ReadFile(filepath.Join(task, "schedstat"))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(data), " ")
	n, _ := strconv.ParseUint(first, 10, 64)
	return n
}

func countEnded() effort {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &u); err != nil {
		return effort{} // which has not been seen
	}
	return effort{woken: uint64(u.Nvcsw), ran: uint64(u.Utime.Nano() + u.Stime.Nano())}
}

// countInterrupts is how many interrupts the machine has had: the first number of /proc/stat's line intr.
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

// programOf names the program of a thread: hitless plays many, and its first argument tells which.
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

// programs is how often all of them were woken.
func (w wakeups) programs() (woken float64) {
	for name, n := range w {
		if name != interrupts {
			woken += float64(n.woken)
		}
	}
	return woken
}

// since is what was added to an earlier count, most first, a line each. Interrupts are in the table, not in the sum. What a program
// did that lived at the earlier count and has ended stands in both lines, and is taken from the sum once.
func (w wakeups) since(before wakeups, passed time.Duration) (perSecond float64, table string) {
	type row struct {
		name string
		effort
	}
	var rows []row
	for name, n := range w {
		was := before[name]
		if n.woken > was.woken { // a program whose threads have ended counts less than it did
			rows = append(rows, row{name, effort{n.woken - was.woken, n.ran - min(n.ran, was.ran)}})
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Or(cmp.Compare(b.woken, a.woken), cmp.Compare(a.name, b.name)) })
	var b strings.Builder
	fmt.Fprintf(&b, "%12s  %12s  program\n", "wake-ups/s", "µs of CPU/s")
	for _, r := range rows {
		fmt.Fprintf(&b, "%12.3f  %12.1f  %s\n", float64(r.woken)/passed.Seconds(), float64(r.ran)/1000/passed.Seconds(), r.name)
	}
	return (w.programs() - before.programs()) / passed.Seconds(), b.String()
}
