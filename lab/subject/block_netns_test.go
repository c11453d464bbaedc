//go:build netns

package subject

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hitless/hitless/lab/topology"
)

// finder is a proxy that tells which iptables it finds, as its ready and cleanup commands do.
const finder = `#!/bin/sh
echo "${2:-proxy} finds $(command -v iptables)" >> $1
[ "$2" ] && exit
while :; do sleep 0.1; done
`

// blockFleet is a fleet of finders, and what they found.
func blockFleet(t *testing.T) (f *Fleet, node *topology.Node, found func() string) {
	t.Helper()
	dir := t.TempDir()
	log, program := filepath.Join(dir, "found"), filepath.Join(dir, "finder")
	if err := os.WriteFile(program, []byte(finder), 0o755); err != nil {
		t.Fatal(err)
	}
	f, _ = fleetOf(t, func(e *Exec) {
		e.Program, e.Args, e.Mode = program, []string{log}, "iptables"
		e.Ready, e.Cleanup = Ready{Command: []string{"{program}", log, "ready"}}, []string{"{program}", log, "cleanup"}
	})
	return f, f.cfg.Net.Nodes[0], func() string {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

// makesChain calls iptables on a node as its proxy does.
func makesChain(t *testing.T, node *topology.Node) error {
	t.Helper()
	return node.Inside(func() error {
		return exec.Command(filepath.Join(programs.path(), "iptables"), "-t", "nat", "-N", "LAB-BLOCK").Run()
	})
}

// A blocked proxy's programs fail on its node, and those of its ready and cleanup commands never do.
func TestBlockAndUnblock(t *testing.T) {
	f, node, found := blockFleet(t)
	if err := f.Block(node.Name); err == nil || !strings.Contains(err.Error(), "no proxy runs") {
		t.Errorf("without a proxy: %v", err)
	}
	if err := f.StartAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.Block(node.Name); err != nil {
		t.Fatal(err)
	}
	if err := makesChain(t, node); err == nil {
		t.Error("a blocked proxy makes a chain")
	}
	if n, err := f.FailedCalls(node.Name); n != 1 || err != nil {
		t.Errorf("%d failed calls while it is blocked, %v", n, err)
	}
	if err := f.Unblock(node.Name); err != nil {
		t.Error(err)
	}
	if n, err := f.FailedCalls(node.Name); n != 1 || err != nil {
		t.Errorf("%d failed calls after the block, %v", n, err)
	}
	if err := makesChain(t, node); err != nil {
		t.Errorf("an unblocked proxy makes no chain: %v", err)
	}
	if _, err := runIn(t.Context(), node, "", "iptables", "-t", "nat", "-X", "LAB-BLOCK"); err != nil {
		t.Error(err)
	}
	if err := f.Retire(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"proxy", "ready", "cleanup"} {
		first := strings.Contains(found(), who+" finds "+programs.path()+"/iptables\n")
		if first != (who == "proxy") || !strings.Contains(found(), who+" finds ") {
			t.Errorf("%s finds the programs that can fail: %t; of\n%s", who, first, found())
		}
	}
}

// A block explains the failed syncs that a log has of it. After the next start the proxy answers for new ones.
func TestFailedSyncsOfABlockAreTheRuns(t *testing.T) {
	f, node, _ := blockFleet(t)
	f.cfg.Programs[0].Spec = Spec{Name: "kube-proxy", Version: "v1.37.1", Mode: "iptables"} // whose log messages are known
	log := func(line string) {
		file, err := os.OpenFile(f.cfg.Procs.LogFile(logName(node.Name)), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := file.WriteString(line + "\n"); err != nil {
			t.Fatal(err)
		}
	}
	f.runs[node.Name] = f.cfg.Programs[0]
	f.blocked[node.Name] = true
	log(`E1129 proxier.go:1 "Sync failed" of the block`)
	if err := f.SyncError(); err != nil {
		t.Errorf("blocked: %v", err)
	}
	f.passBlock(node.Name)
	if err := f.SyncError(); err != nil {
		t.Errorf("started again: %v", err)
	}
	log(`E1129 proxier.go:1 "Sync failed" later`)
	if err := f.SyncError(); err == nil || !strings.Contains(err.Error(), "later") {
		t.Errorf("a failed sync after the start: %v", err)
	}
}
