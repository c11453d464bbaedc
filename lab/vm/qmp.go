package vm

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// monitor is QEMU's control socket (QMP). While the guest runs nothing is said on it, so that nothing reaches the guest at a moment
// that the host chooses.
type monitor struct {
	conn   *net.UnixConn
	read   *json.Decoder
	paused bool // the guest was stopped since the last `cont`
}

// message is a line of QMP: the greeting, an answer or an event.
type message struct {
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Desc string `json:"desc"`
	} `json:"error"`
	Event string `json:"event"`
}

// newMonitor makes the socket, and its other end for QEMU, as its first file beside standard input, output and errors.
func newMonitor() (*monitor, *os.File, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making QEMU's control socket: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(ends[0]), "monitor"), os.NewFile(uintptr(ends[1]), "QEMU's monitor")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("making QEMU's control socket: %w", err)
	}
	return &monitor{conn: conn.(*net.UnixConn), read: json.NewDecoder(conn)}, theirs, nil
}

// monitorArgs have QEMU be led by its end of the socket, and wait for that.
var monitorArgs = []string{"-chardev", "socket,id=host,fd=3", "-mon", "chardev=host,mode=control", "-S"}

func (m *monitor) hello() error {
	var greeting struct {
		QMP json.RawMessage
	}
	if err := m.read.Decode(&greeting); err != nil || greeting.QMP == nil {
		return fmt.Errorf("reading QEMU's greeting: %w", errors.Join(err, errors.New("it is not QMP")))
	}
	_, err := m.execute("qmp_capabilities", nil)
	return err
}

// execute gives a command, with a file's descriptor where it wants one, and returns QEMU's answer.
func (m *monitor) execute(command string, arguments map[string]any, files ...*os.File) (json.RawMessage, error) {
	line, err := json.Marshal(map[string]any{"execute": command, "arguments": arguments})
	if arguments == nil {
		line, err = json.Marshal(map[string]any{"execute": command})
	}
	if err != nil {
		return nil, err
	}
	var rights []byte
	for _, f := range files {
		rights = unix.UnixRights(int(f.Fd()))
	}
	if _, _, err := m.conn.WriteMsgUnix(append(line, '\n'), rights, nil); err != nil {
		return nil, fmt.Errorf("telling QEMU to %s: %w", command, err)
	}
	for {
		got, err := m.next()
		switch {
		case err != nil:
			return nil, fmt.Errorf("telling QEMU to %s: %w", command, err)
		case got.Error != nil:
			return nil, fmt.Errorf("telling QEMU to %s: %s", command, got.Error.Desc)
		case got.Event == "":
			return got.Return, nil
		}
	}
}

func (m *monitor) next() (message, error) {
	var got message
	err := m.read.Decode(&got)
	m.paused = m.paused || got.Event == "STOP"
	return got, err
}

// resume lets the guest run.
func (m *monitor) resume() error {
	m.paused = false
	_, err := m.execute("cont", nil)
	return err
}

// awaitPause says that the guest has stopped itself, or that it has ended without.
func (m *monitor) awaitPause() bool {
	for !m.paused {
		if _, err := m.next(); err != nil {
			return false
		}
	}
	return true
}

// awaitMigration returns when what the stopped guest is saved to, or comes from, is complete.
func (m *monitor) awaitMigration() error {
	for {
		answer, err := m.execute("query-migrate", nil)
		if err != nil {
			return err
		}
		var state struct {
			Status string `json:"status"`
			Reason string `json:"error-desc"`
		}
		if err := json.Unmarshal(answer, &state); err != nil {
			return fmt.Errorf("reading QEMU's state: %w", err)
		}
		switch state.Status {
		case "completed":
			return nil
		case "failed", "cancelled":
			return fmt.Errorf("QEMU's copy of the guest %s: %s", state.Status, state.Reason)
		}
		time.Sleep(2 * time.Millisecond) // the guest stands still: asking disturbs nobody
	}
}
