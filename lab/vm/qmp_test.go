package vm

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
)

// fakeQEMU plays QEMU's end of the socket: it sends each line of the script in turn, and expects a command that
// contains the rest of a line that begins with <.
func fakeQEMU(t *testing.T, script ...string) *monitor {
	t.Helper()
	m, qemuEnd, err := newMonitor()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.conn.Close() })
	conn, err := net.FileConn(qemuEnd)
	if err != nil {
		t.Fatal(err)
	}
	qemuEnd.Close()
	go func() {
		defer conn.Close()
		read := bufio.NewScanner(conn)
		for _, line := range script {
			if want, waits := strings.CutPrefix(line, "<"); waits {
				if !read.Scan() || !strings.Contains(read.Text(), want) {
					t.Errorf("QEMU got the command %q, want %q", read.Text(), want)
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

func TestPauseBeforeTheResponseToContIsSeen(t *testing.T) {
	m := fakeQEMU(t, greeting, "<qmp_capabilities", ok, "<cont", `{"event":"RESUME"}`, `{"event":"STOP"}`, ok)
	if err := m.handshake(); err != nil {
		t.Fatal(err)
	}
	if err := m.resume(); err != nil {
		t.Fatal(err)
	}
	if !m.awaitPause() {
		t.Error("a guest that stopped before `cont` was answered counts as ended")
	}
}

func TestGuestThatEndsIsNotPaused(t *testing.T) {
	m := fakeQEMU(t, greeting, "<qmp_capabilities", ok, "<cont", ok, `{"event":"SHUTDOWN"}`)
	if err := m.handshake(); err != nil {
		t.Fatal(err)
	}
	if err := m.resume(); err != nil {
		t.Fatal(err)
	}
	if m.awaitPause() {
		t.Error("a guest that has ended counts as paused")
	}
}

func TestFailedRestoreReportsTheReason(t *testing.T) {
	m := fakeQEMU(t, "<getfd", ok, "<migrate-incoming", ok, "<query-migrate", `{"return":{"status":"active"}}`,
		"<query-migrate", `{"return":{"status":"failed","error-desc":"not a migration stream"}}`)
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := m.restore(f); err == nil || !strings.Contains(err.Error(), "not a migration stream") {
		t.Errorf("a snapshot that QEMU rejects gave %v", err)
	}
}
