package vm

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
)

// qemu plays the other end: it says each line of the script in turn; what begins with < it waits for.
func qemu(t *testing.T, script ...string) *monitor {
	t.Helper()
	m, theirs, err := newMonitor()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.conn.Close() })
	conn, err := net.FileConn(theirs)
	if err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	go func() {
		defer conn.Close()
		read := bufio.NewScanner(conn)
		for _, line := range script {
			if want, waits := strings.CutPrefix(line, "<"); waits {
				if !read.Scan() || !strings.Contains(read.Text(), want) {
					t.Errorf("QEMU was told %q, want %q", read.Text(), want)
					return
				}
				continue
			}
			fmt.Fprintln(conn, line)
		}
	}()
	return m
}

const greeting, ok = `{"QMP":{"version":{}}}`, `{"return":{}}`

func TestPauseIsHeardWheneverItComes(t *testing.T) {
	m := qemu(t, greeting, "<qmp_capabilities", ok, "<cont", `{"event":"RESUME"}`, `{"event":"STOP"}`, ok)
	if err := m.hello(); err != nil {
		t.Fatal(err)
	}
	if err := m.resume(); err != nil {
		t.Fatal(err)
	}
	if !m.awaitPause() {
		t.Error("a guest that stopped before `cont` was answered is taken for one that has ended")
	}
}

func TestGuestThatEndsHasNotPaused(t *testing.T) {
	m := qemu(t, greeting, "<qmp_capabilities", ok, "<cont", ok, `{"event":"SHUTDOWN"}`)
	if err := m.hello(); err != nil {
		t.Fatal(err)
	}
	if err := m.resume(); err != nil {
		t.Fatal(err)
	}
	if m.awaitPause() {
		t.Error("a guest that has ended is taken for one that paused")
	}
}

func TestRefusedSnapshotSaysWhy(t *testing.T) {
	m := qemu(t, "<getfd", ok, "<migrate-incoming", ok, "<query-migrate", `{"return":{"status":"active"}}`,
		"<query-migrate", `{"return":{"status":"failed","error-desc":"not a migration stream"}}`)
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := m.restore(f); err == nil || !strings.Contains(err.Error(), "not a migration stream") {
		t.Errorf("a snapshot that QEMU refuses gave %v", err)
	}
}
