package site

import (
	"context"

	"github.com/hitless/hitless/probes/session"
)

// Machine is this machine alone: its probes measure an address, and it makes no cluster and runs no scenario.
type Machine struct {
	session.Options
	result *session.Result
}

// Prepare does nothing: a session checks its options and its folder before it measures.
func (m *Machine) Prepare(context.Context) error { return nil }

// World measures until the duration is over or ctx ends.
func (m *Machine) World(ctx context.Context) (err error) {
	m.result, err = session.Run(ctx, m.Options)
	return err
}

// Collect returns the report that the session has written and sealed.
func (m *Machine) Collect(runErr error) (*Result, error) {
	if runErr != nil {
		return nil, runErr
	}
	r := m.result
	return &Result{Dir: r.Dir, Report: r.Report, HistorySha256: r.Origin.HistorySha256, Command: r.Origin.Command}, nil
}

// Close does nothing.
func (m *Machine) Close(context.Context) {}
