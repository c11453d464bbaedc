//go:build linux

package observers

import (
	"context"
	"time"

	"github.com/hitless/hitless/record"
)

// poller reads a table of a node whose changes the kernel does not announce: after each notification of another kind, with growing pauses.
type poller struct {
	*tableRecorder
	failed chan struct{} // an attempt failed
	end    func()        // closes what read uses
}

func newPoller(node string, table record.Table, watched func() []ServiceAddress, read func([]ServiceAddress) (backendTable, error), recorder record.Recorder,
	now func() time.Duration) *poller {
	return &poller{newTableRecorder(node, table, watched, read, recorder, now), make(chan struct{}, 1), func() {}}
}

func (p *poller) run(ctx context.Context) {
	defer p.end()
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	step, next, earliest := len(pauses), time.Time{}, time.Time{}
	restart := func(at int) {
		if at >= step {
			return // the running series of reads is denser
		}
		due := time.Now().Add(pauses[at])
		if due.Before(earliest) {
			due = earliest
		}
		if step == len(pauses) || due.Before(next) {
			next = due
		}
		step = at
		timer.Reset(time.Until(next))
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.changed:
			restart(0)
		case <-p.failed:
			restart(firstPauseAfterFailure)
		case <-timer.C:
			began := time.Now()
			if err := p.readAndRecord(); err != nil {
				p.recordEnd(err)
				return
			}
			ended := time.Now()
			earliest = ended.Add(max(minReadInterval, idleFactor*ended.Sub(began)))
			if step++; step < len(pauses) {
				if next = ended.Add(pauses[step]); next.Before(earliest) {
					next = earliest
				}
				timer.Reset(time.Until(next))
			}
		}
	}
}

func (p *poller) readAndRecord() error {
	began := p.now()
	found, err := p.look()
	if err == nil {
		p.take(found, p.lastAt, p.now(), began, "")
	}
	return err
}
