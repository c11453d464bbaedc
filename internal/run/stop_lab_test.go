//go:build lab

package run_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
)

// The history of a stopped run is a prefix of that of the whole run, and each stop gives the same files.
func TestStopKeepsHistoryPrefix(t *testing.T) {
	t.Parallel()
	text := "hitless timeline 1\nnodes 2\nrate 20\nset baseline=10s\nset settle=1s\n+0s endpoints create busy addresses=192.0.2.1,192.0.2.2\n+1s workload rollout web\n+1s expect rolled-out web within=2m\n+20s end\n"
	file := filepath.Join(t.TempDir(), "some.timeline")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	done := func(stopAt time.Duration) (*run.Result, []byte) {
		t.Helper()
		line, err := run.ReadTimeline(t.Context(), file)
		if err != nil {
			t.Fatal(err)
		}
		result, err := run.Run(t.Context(), run.Options{Timeline: line, LabOptions: site.LabOptions{ControlPlane: "replay", Kernel: "vm", StopAt: stopAt}, Out: t.TempDir(), Program: program})
		if err != nil {
			t.Fatal(err)
		}
		events, err := os.ReadFile(filepath.Join(result.Dir, "history", "events.ndjson"))
		if err != nil {
			t.Fatal(err)
		}
		return result, events
	}
	whole, all := done(0)
	if whole.Report == nil || whole.Stopped != "" {
		t.Fatal("a run without a stop time stopped")
	}
	const at = 20 * time.Second
	first, begins := done(at)
	if len(begins) == 0 || len(begins) == len(all) || !bytes.HasPrefix(all, begins) {
		t.Errorf("the history until %s has %d bytes of events, and is not a prefix of the whole one of %d", at, len(begins), len(all))
	}
	table, err := os.ReadFile(filepath.Join(first.Stopped, "node-1", "ipvs.txt"))
	if err != nil || !bytes.Contains(table, []byte("TCP  CB00710A:0050")) { // 203.0.113.10:80
		t.Errorf("the table of node-1: %v\n%s", err, table)
	}
	for _, name := range []string{"conntrack.txt", "sockets.txt", "nftables.txt"} {
		if _, err := os.Stat(filepath.Join(first.Stopped, "node-1", name)); err != nil {
			t.Error(err)
		}
	}
	second, again := done(at)
	other, err := os.ReadFile(filepath.Join(second.Stopped, "node-1", "ipvs.txt"))
	if err != nil || !bytes.Equal(other, table) || !bytes.Equal(again, begins) {
		t.Errorf("the same stop gave another table: %v\n%s\nand\n%s", err, table, other)
	}
}
