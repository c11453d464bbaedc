//go:build linux

package vm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

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
