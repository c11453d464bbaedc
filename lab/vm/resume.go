package vm

import "fmt"

// snapshotError reports that a snapshot could not be restored. The guest has executed nothing, so it can be started again without it.
type snapshotError struct{ error }

func (e *snapshotError) Unwrap() error { return e.error }

// pause is where a guest stands that does not run.
type pause int

const (
	atStart   pause = iota
	atBooted        // it has booted, and gets its files and the base of its plan
	atSettled       // its control plane is up, and it gets its plan
)

// resume starts the guest and takes it through its pauses. The channel gets an error if the guest must be ended, and is closed once the
// guest goes on after the last pause and makes no more calls, at once without a monitor.
func (b Boot) resume(m *monitor, from *snapshot, files *deviceFile, region []byte, line func(string)) <-chan error {
	failed := make(chan error, 1)
	if m == nil {
		close(failed)
		return failed
	}
	go func() {
		defer close(failed)
		if err := b.throughPauses(m, from, files, region, line); err != nil {
			failed <- fmt.Errorf("starting the guest: %w", err)
		}
	}()
	return failed
}

// throughPauses returns once the guest goes on after its last pause and makes no more calls, or without an error once QEMU has ended: its console and exit status
// then hold the reason.
func (b Boot) throughPauses(m *monitor, from *snapshot, files *deviceFile, region []byte, line func(string)) error {
	if err := m.handshake(); err != nil {
		return nil // QEMU has ended; its exit status has the reason
	}
	at := atStart
	if from != nil {
		if err := from.restore(m); err != nil {
			return err
		}
		line("hitless: restored from a snapshot")
		at = from.at
	}
	for ; ; at++ {
		if err := b.fill(at, files, region); err != nil {
			return err
		}
		if err := m.resume(); err != nil {
			return err
		}
		if at == atSettled {
			return b.answerCalls(m, files)
		}
		if !m.awaitPause() {
			return nil
		}
		if err := b.save(m, at+1, files); err != nil {
			line("hitless: no snapshot saved: " + err.Error()) // snapshots only save time
		}
	}
}

// answerCalls answers the calls of the running guest until QEMU ends.
func (b Boot) answerCalls(m *monitor, files *deviceFile) error {
	for b.Call != nil && m.awaitPause() {
		if err := files.answer(b.Call); err != nil {
			return err
		}
		if err := m.resume(); err != nil {
			return err
		}
	}
	return nil
}

// fill gives the paused guest what it goes on with.
func (b Boot) fill(at pause, files *deviceFile, region []byte) error {
	switch at {
	case atBooted:
		if err := b.putFiles(files); err != nil {
			return err
		}
		return PutPlan(region, b.Base)
	case atSettled:
		return b.putPlan(region)
	}
	return nil
}

// save saves the guest that has just paused.
func (b Boot) save(m *monitor, at pause, files *deviceFile) error {
	if at == atSettled {
		if err := files.clear(); err != nil {
			return err
		}
	}
	if b.Snapshots == "" {
		return nil
	}
	return saveSnapshot(m, b.Snapshots, at, b.keys()[at])
}

// keys are the keys of the snapshots of a guest.
func (b Boot) keys() map[pause]string {
	return map[pause]string{atBooted: b.BootKey, atSettled: b.Key}
}
