package vm

import (
	"fmt"
	"os"
)

// snapshotError is a guest that could not begin from its snapshot: nothing of it has run.
type snapshotError struct{ error }

func (e *snapshotError) Unwrap() error { return e.error }

// lead starts the guest and takes it over its pause. The channel gets an error after which the guest must be ended, and nothing when
// all goes well. Without a monitor the guest needs nobody.
func (b Boot) lead(m *monitor, snapshot *os.File, region []byte, line func(string)) <-chan error {
	failed := make(chan error, 1)
	if m == nil {
		return failed
	}
	go func() {
		ready, err := b.toPause(m, snapshot, line)
		if ready && err == nil {
			if err = b.putPlan(region); err == nil {
				err = m.resume()
			}
		}
		if err != nil {
			failed <- fmt.Errorf("starting the guest: %w", err)
		}
	}()
	return failed
}

// toPause brings the guest to its pause. It may end before, and then its console says why.
func (b Boot) toPause(m *monitor, snapshot *os.File, line func(string)) (ready bool, err error) {
	if err := m.hello(); err != nil {
		return false, nil // so QEMU has ended, and its exit says why
	}
	if snapshot != nil {
		if err := m.restore(snapshot); err != nil {
			return false, &snapshotError{err}
		}
		line("hitless: begun from a saved guest")
		return true, nil
	}
	if err := m.resume(); err != nil {
		return false, err
	}
	if !m.awaitPause() {
		return false, nil
	}
	if b.Snapshots != "" {
		if err := saveSnapshot(m, b.Snapshots, b.Key); err != nil {
			line("hitless: going on without a saved guest: " + err.Error()) // it is a help only
		}
	}
	return true, nil
}
