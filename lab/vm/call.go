package vm

import (
	"encoding/binary"
	"fmt"
)

// Once the guest has unpacked its files, their device carries calls of the guest to the host: the length of a request or of its answer
// (uint64, little endian), whether the host has failed (uint64), and from filesOffset on the bytes.

// MaxCall is the most bytes of a request and of an answer.
const MaxCall = 64 << 20

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
