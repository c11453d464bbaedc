package vm

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// monitor is QEMU's control socket (QMP). It is silent while the guest runs, because input would reach QEMU at a
// moment that depends on the host.
type monitor struct {
	conn    *net.UnixConn
	decoder *json.Decoder
	paused  bool // a STOP event arrived after the last `cont`
	threads threads
}

// message is a line of QMP: the greeting, a response or an event.
type message struct {
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Desc string `json:"desc"`
	} `json:"error"`
	Event string `json:"event"`
}

// newMonitor returns the monitor and QEMU's end of its socket, which becomes descriptor 3 of QEMU.
func newMonitor() (*monitor, *os.File, error) {
	ends, err := socketPair()
	if err != nil {
		return nil, nil, fmt.Errorf("making QEMU's control socket: %w", err)
	}
	ours, qemuEnd := os.NewFile(uintptr(ends[0]), "monitor"), os.NewFile(uintptr(ends[1]), "QEMU's monitor")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		qemuEnd.Close()
		return nil, nil, fmt.Errorf("making QEMU's control socket: %w", err)
	}
	return &monitor{conn: conn.(*net.UnixConn), decoder: json.NewDecoder(conn)}, qemuEnd, nil
}

// monitorArgs connect QEMU to its end of the socket, and make it wait for `cont`.
var monitorArgs = []string{"-chardev", "socket,id=host,fd=3", "-mon", "chardev=host,mode=control", "-S"}

func (m *monitor) handshake() error {
	var greeting struct {
		QMP json.RawMessage
	}
	if err := m.decoder.Decode(&greeting); err != nil || greeting.QMP == nil {
		return fmt.Errorf("reading QEMU's greeting: %w", errors.Join(err, errors.New("it is not QMP")))
	}
	_, err := m.execute("qmp_capabilities", nil)
	return err
}

// execute sends a command, with a file descriptor if given, and returns QEMU's response.
func (m *monitor) execute(command string, arguments map[string]any, files ...*os.File) (json.RawMessage, error) {
	line, err := json.Marshal(map[string]any{"execute": command, "arguments": arguments})
	if arguments == nil {
		line, err = json.Marshal(map[string]any{"execute": command})
	}
	if err != nil {
		return nil, err
	}
	var passed []byte
	for _, f := range files {
		passed = rights(int(f.Fd()))
	}
	if _, _, err := m.conn.WriteMsgUnix(append(line, '\n'), passed, nil); err != nil {
		return nil, fmt.Errorf("QEMU command %s: %w", command, err)
	}
	for {
		got, err := m.next()
		switch {
		case err != nil:
			return nil, fmt.Errorf("QEMU command %s: %w", command, err)
		case got.Error != nil:
			return nil, fmt.Errorf("QEMU command %s: %s", command, got.Error.Desc)
		case got.Event == "":
			return got.Return, nil
		}
	}
}

func (m *monitor) next() (message, error) {
	var got message
	err := m.decoder.Decode(&got)
	m.paused = m.paused || got.Event == "STOP"
	return got, err
}

// resume starts or continues the guest.
func (m *monitor) resume() error {
	m.paused = false
	m.threads.order()
	_, err := m.execute("cont", nil)
	return err
}

// awaitPause returns true when the guest has paused itself, false when QEMU has ended.
func (m *monitor) awaitPause() bool {
	for !m.paused {
		if _, err := m.next(); err != nil {
			return false
		}
	}
	m.threads.level()
	return true
}

// awaitMigration waits until the stopped guest is saved or restored.
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
			return fmt.Errorf("reading QEMU's migration state: %w", err)
		}
		switch state.Status {
		case "completed":
			return nil
		case "failed", "cancelled":
			return fmt.Errorf("QEMU's copy of the guest %s: %s", state.Status, state.Reason)
		}
		time.Sleep(2 * time.Millisecond) // the guest is stopped: polling does not disturb it
	}
}
