package capture

import (
	"testing"

	"golang.org/x/sys/unix"
)

// A new namespace whose interface does not exist yet is tried again later. Any other error is one of the capture, which lacks packets.
func TestASocketThatCannotBeOpenedIsAnError(t *testing.T) {
	for entry, failed := range map[error]bool{nil: false, unix.EPERM: true} {
		place := Place{Name: "node", Link: "missing0", Generation: func() int { return 1 }, Do: func(f func() error) error {
			if entry != nil {
				return entry
			}
			return f()
		}}
		s := &source{place: place}
		if err := s.drain(nil); (err != nil) != failed || s.opened {
			t.Errorf("entering the namespace: %v; %v, opened %v", entry, err, s.opened)
		}
	}
}
