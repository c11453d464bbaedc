package vm

import "fmt"

// snapshotError reports that a snapshot could not be restored. The guest has executed nothing, so it can be booted
// instead.
type snapshotError struct{ error }

func (e *snapshotError) Unwrap() error { return e.error }

// resume starts the guest, runs it to its pause and resumes it with the plan. The channel gets an error if the guest
// must be ended, and is closed once the guest is resumed, at once without a monitor.
func (b Boot) resume(m *monitor, from *snapshot, region []byte, line func(string)) <-chan error {
	failed := make(chan error, 1)
	if m == nil {
		close(failed)
		return failed
	}
	go func() {
		defer close(failed)
		paused, err := b.runToPause(m, from, line)
		if paused && err == nil {
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

// runToPause boots or restores the guest up to its pause. paused is false without an error if QEMU ended first; its
// console and exit status then hold the reason.
func (b Boot) runToPause(m *monitor, from *snapshot, line func(string)) (paused bool, err error) {
	if err := m.handshake(); err != nil {
		return false, nil // QEMU has ended; its exit status has the reason
	}
	if from != nil {
		err := m.restore(from.File)
		if damaged := from.verify(); damaged != nil { // more precise than QEMU's error
			err = damaged
		}
		if err != nil {
			return false, &snapshotError{err}
		}
		line("hitless: restored from a snapshot")
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
			line("hitless: no snapshot saved: " + err.Error()) // snapshots only save time
		}
	}
	return true, nil
}
