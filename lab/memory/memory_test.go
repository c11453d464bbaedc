package memory

import (
	"testing"
	"testing/fstest"
)

// A container with a limit has less memory than its machine. Limits of groups above it count too.
func TestAvailableMemory(t *testing.T) {
	const meminfo = "MemTotal:       32000000 kB\nMemAvailable:   20480000 kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  int
	}{
		"a machine":                  {map[string]string{}, 20000},
		"no limit (version 2)":       {map[string]string{"proc/self/cgroup": "0::/user.slice\n", "sys/fs/cgroup/user.slice/memory.max": "max\n", "sys/fs/cgroup/user.slice/memory.current": "1\n"}, 20000},
		"a container (version 2)":    {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "2147483648\n", "sys/fs/cgroup/memory.current": "1073741824\n", "sys/fs/cgroup/memory.stat": "anon 1\ninactive_file 524288000\n"}, 1024 + 500},
		"a slice above (version 2)":  {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "1073741824\n", "sys/fs/cgroup/a/memory.current": "0\n", "sys/fs/cgroup/a/b/memory.max": "max\n"}, 1024},
		"a container (version 1)":    {map[string]string{"proc/self/cgroup": "8:pids:/\n4:cpu,memory:/docker/x\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "3221225472\n", "sys/fs/cgroup/memory/memory.usage_in_bytes": "1073741824\n"}, 2048},
		"no limit (version 1)":       {map[string]string{"proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n", "sys/fs/cgroup/memory/memory.usage_in_bytes": "1\n"}, 20000},
		"more is used than allowed":  {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1048576\n", "sys/fs/cgroup/memory.current": "9048576\n"}, 0},
		"a machine with less memory": {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "99147483648\n", "sys/fs/cgroup/memory.current": "0\n"}, 20000},
	} {
		files := fstest.MapFS{"proc/meminfo": {Data: []byte(meminfo)}}
		for file, text := range c.files {
			files[file] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := availableMB(files); got != c.want {
			t.Errorf("%s: %d MB, want %d", name, got, c.want)
		}
	}
	if got := availableMB(fstest.MapFS{}); got != unknownMB {
		t.Errorf("a system without /proc: %d MB", got)
	}
	if got := AvailableMB(); got <= 0 {
		t.Errorf("this machine: %d MB", got)
	}
}
