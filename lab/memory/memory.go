// Package memory tells how much memory this machine, or the container that this process is in, has left.
package memory

import (
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
)

// AvailableMB is the memory that this process can still get, in MB: that of the machine (MemAvailable of proc(5)), or less if a control
// group (cgroups(7)), such as that of a container, allows less. It is 1 TB where nothing tells it.
func AvailableMB() int { return availableMB(os.DirFS("/")) }

// unknownMB is AvailableMB where nothing tells it.
const unknownMB = 1 << 20

func availableMB(root fs.FS) int {
	least := unknownMB
	if kb, is := value(root, "proc/meminfo", "MemAvailable:"); is {
		least = int(kb >> 10)
	}
	own, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(own)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, _ := strings.Cut(rest, ":")
		switch {
		case controllers == "":
			least = min(least, unified.leftMB(root, group))
		case strings.Contains(","+controllers+",", ",memory,"):
			least = min(least, legacy.leftMB(root, group))
		}
	}
	return max(least, 0)
}

// hierarchy is where a version of control groups has the limits of memory.
type hierarchy struct{ mount, limit, used, unused string }

var (
	unified = hierarchy{"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"}
	legacy  = hierarchy{"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}
)

// leftMB is the least that a group and the groups above it leave, in MB. In a container the path may be one outside of it: then only the
// groups that are visible count. The kernel takes file pages that are not in use back, so they are left too.
func (h hierarchy) leftMB(root fs.FS, group string) int {
	least := unknownMB
	for dir := path.Join(h.mount, group); ; dir = path.Dir(dir) {
		limit, limited := number(root, path.Join(dir, h.limit))
		used, known := number(root, path.Join(dir, h.used))
		if limited && known {
			unused, _ := value(root, path.Join(dir, "memory.stat"), h.unused)
			least = min(least, int((limit-used+unused)>>20))
		}
		if dir == h.mount || !strings.HasPrefix(dir, h.mount) {
			return least
		}
	}
}

// number reads a file with one number. "max", and a number near the largest one, mean no limit.
func number(root fs.FS, name string) (n int64, is bool) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil && n < math.MaxInt64>>4
}

// value reads the first number behind a word that begins a line.
func value(root fs.FS, name, word string) (n int64, is bool) {
	text, _ := fs.ReadFile(root, name)
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == word {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
