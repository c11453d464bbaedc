package site

import (
	"cmp"
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/guest"
)

// A machine that lacks what a run needs is a usage error before the run, which names the remedy.
func TestAMachineThatLacksSomething(t *testing.T) {
	out, dir := t.TempDir(), t.TempDir()
	if free, err := cache.FreeBytes(out); err != nil || free>>20 < diskMB {
		t.Skip("this machine itself lacks the disk space of a run")
	}
	for name, c := range map[string]struct {
		temp, path, out, cache string
		want                   string
	}{
		"QEMU":                {path: t.TempDir(), want: "apt-get install qemu-system-x86"},
		"a place for files":   {temp: "/proc", want: "TMPDIR"},
		"a place for results": {out: "/proc", want: "--out"},
		"a cache":             {cache: "/dev/null/cache", want: "HITLESS_CACHE"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.temp != "" {
				t.Setenv("TMPDIR", c.temp)
			}
			var err error
			if c.path != "" {
				t.Setenv("PATH", c.path)
				err = (&lab{plan: guest.Plan{}}).checkMachine()
			} else {
				err = checkDisk(cmp.Or(c.out, out), cmp.Or(c.cache, dir))
			}
			if !isUsage(err) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want a usage error with %q", err, c.want)
			}
		})
	}
}
