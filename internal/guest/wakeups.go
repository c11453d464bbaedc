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
)

// wakeups counts how often each program of the guest went to sleep by itself, and so was woken: in virtual time, where
// idleness costs nothing, that is what a run's wall time is made of (about 0.3 ms each).
type wakeups map[string]uint64

// countWakeups reads the voluntary context switches of all living threads (proc(5), /proc/PID/status).
func countWakeups() wakeups {
	w := wakeups{}
	files, _ := filepath.Glob("/proc/[0-9]*/task/[0-9]*/status")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		n, _ := strconv.ParseUint(statusField(data, "voluntary_ctxt_switches:"), 10, 64)
		w[programOf(file, data)] += n
	}
	return w
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

// since is what was added to an earlier count, most first, a line each.
func (w wakeups) since(before wakeups, passed time.Duration) (perSecond float64, table string) {
	type row struct {
		name string
		n    uint64
	}
	var rows []row
	total := uint64(0)
	for name, n := range w {
		if n > before[name] { // a program whose threads have ended counts less than it did
			rows = append(rows, row{name, n - before[name]})
			total += n - before[name]
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.name, b.name)) })
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "%10.3f/s  %s\n", float64(r.n)/passed.Seconds(), r.name)
	}
	return float64(total) / passed.Seconds(), b.String()
}
