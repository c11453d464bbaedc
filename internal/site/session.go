package site

import (
	"context"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/probes/session"
)

// Machine is this machine alone: its probes measure an address, and it makes no cluster and runs no scenario.
type Machine struct {
	session.Options
	report *analysis.Report
}

// Prepare does nothing: a session checks its options and its folder before it measures.
func (m *Machine) Prepare(context.Context) error { return nil }

// World measures until the duration is over or ctx ends.
func (m *Machine) World(ctx context.Context) (err error) {
	m.report, err = session.Run(ctx, m.Options)
	return err
}

// Collect returns the report that the session has written.
func (m *Machine) Collect(runErr error) (*Result, error) {
	if runErr != nil {
		return nil, runErr
	}
	return &Result{Dir: m.Out, Report: m.report}, nil
}

// Close does nothing.
func (m *Machine) Close(context.Context) {}
