package vm

import "fmt"

// snapshotError is a guest that could not begin from its snapshot: nothing of it has run.
type snapshotError struct{ error }

func (e *snapshotError) Unwrap() error { return e.error }

// lead starts the guest and takes it over its pause. The channel gets an error after which the guest must be ended, if there is one, and
// is closed when the guest needs nobody any more. Without a monitor it never does.
func (b Boot) lead(m *monitor, from *snapshot, region []byte, line func(string)) <-chan error {
	failed := make(chan error, 1)
	if m == nil {
		close(failed)
		return failed
	}
	go func() {
		defer close(failed)
		ready, err := b.toPause(m, from, line)
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
func (b Boot) toPause(m *monitor, from *snapshot, line func(string)) (ready bool, err error) {
	if err := m.hello(); err != nil {
		return false, nil // so QEMU has ended, and its exit says why
	}
	if from != nil {
		err := m.restore(from.File)
		if damaged := from.intact(); damaged != nil { // which says more than what QEMU made of it
			err = damaged
		}
		if err != nil {
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
