package vm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Once the guest has unpacked its files, their device carries calls of the guest to the host: the length of a request or of its answer
// (uint64, little endian), whether the host has failed (uint64), and from filesOffset on the bytes.

// MaxCall is the most bytes of a request and of an answer.
const MaxCall = 64 << 20

// ErrNoHost is the error of a call with the real-time clock, with which the guest does not stop.
var ErrNoHost = errors.New("with the real clock a guest cannot call its host")

// callLock is the guest's file whose lock the caller has: one call is made at a time.
const callLock = "/tmp/hitless-call"

// Call passes a request to the host (Boot.Call) and returns its answer, inside the guest. The guest stands still meanwhile, and so does its
// clock: how long the host takes changes nothing. The error is ErrNoHost, or has the text of the host's.
func Call(request []byte) (answer []byte, err error) {
	if len(request) == 0 || len(request) > MaxCall {
		return nil, fmt.Errorf("a call of the host with %d bytes: 1 to %d are possible", len(request), MaxCall)
	}
	if dev, err := pciDevice(pauseDevice); err != nil || dev == "" {
		return nil, errors.Join(err, ErrNoHost)
	}
	lock, err := os.OpenFile(callLock, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("calling the host: %w", err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("calling the host: %w", err)
	}
	memory, err := mapCalls()
	if err != nil {
		return nil, fmt.Errorf("calling the host: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Munmap(memory)) }()
	copy(memory[filesOffset:], request)
	binary.LittleEndian.PutUint64(memory, uint64(len(request)))
	binary.LittleEndian.PutUint64(memory[8:], 0)
	if err := Pause(); err != nil {
		return nil, fmt.Errorf("calling the host: %w", err)
	}
	length, failed := binary.LittleEndian.Uint64(memory), binary.LittleEndian.Uint64(memory[8:])
	if length > MaxCall {
		return nil, fmt.Errorf("calling the host: its answer has %d bytes", length)
	}
	answer = append(answer, memory[filesOffset:filesOffset+length]...)
	if failed != 0 {
		return nil, fmt.Errorf("the host cannot answer: %s", answer)
	}
	return answer, nil
}

// mapCalls maps the device inside the guest.
func mapCalls() ([]byte, error) {
	dev, err := pciDevice(filesDevice)
	if err != nil {
		return nil, err
	}
	if dev == "" {
		return nil, errors.New("the guest has no device for files")
	}
	f, err := os.OpenFile(filepath.Join(dev, "resource2"), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return unix.Mmap(int(f.Fd()), 0, filesOffset+MaxCall, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// answer reads the request of a paused guest, and writes the answer of the handler.
func (d *deviceFile) answer(handle func(request []byte) ([]byte, error)) error {
	head := make([]byte, 16)
	if _, err := d.ReadAt(head, 0); err != nil {
		return fmt.Errorf("reading a call of the guest: %w", err)
	}
	length := binary.LittleEndian.Uint64(head)
	if length == 0 || length > MaxCall {
		return fmt.Errorf("a call of the guest has %d bytes", length)
	}
	request := make([]byte, length)
	if _, err := d.ReadAt(request, filesOffset); err != nil {
		return fmt.Errorf("reading a call of the guest: %w", err)
	}
	failed := uint64(0)
	answer, err := handle(request)
	if err == nil && len(answer) > MaxCall {
		err = fmt.Errorf("the answer has %d bytes", len(answer))
	}
	if err != nil {
		answer, failed = []byte(err.Error()), 1
	}
	binary.LittleEndian.PutUint64(head, uint64(len(answer)))
	binary.LittleEndian.PutUint64(head[8:], failed)
	_, err = d.WriteAt(answer, filesOffset)
	if err == nil {
		_, err = d.WriteAt(head, 0)
	}
	if err != nil {
		return fmt.Errorf("answering a call of the guest: %w", err)
	}
	return nil
}
