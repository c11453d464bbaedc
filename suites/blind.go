package suites

import (
	"fmt"
	"path/filepath"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
)

// Blinded is the report of a run as it would be if its detector had not seen some losses: in a copy of the record below dir, the attempts for
// which unseen is true were answered. It is the red twin of what a proof finds. Records with buckets are an error.
func Blinded(history *record.History, dir string, unseen func(l record.Lane, a record.Attempt) bool) (*analysis.Report, error) {
	run := history.Run
	run.Record = ""
	w, err := record.NewHistoryWriter(filepath.Join(dir, "history"), run)
	if err != nil {
		return nil, err
	}
	lanes := map[uint16]record.Lane{}
	for e, err := range history.Events() {
		if err != nil {
			return nil, fmt.Errorf("copying the events: %w", err)
		}
		if l, is := e.Body.(record.Lane); is {
			lanes[l.ID] = l
		}
		w.Event(e)
	}
	for a, err := range history.Attempts() {
		if err != nil {
			return nil, fmt.Errorf("copying the attempts: %w", err)
		}
		if a.Class != record.OK && unseen(lanes[a.Lane], a) {
			a.Class, a.Detail = record.OK, ""
		}
		w.Attempt(a)
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	blind, err := record.OpenUnsealed(dir)
	if err != nil {
		return nil, err
	}
	return analysis.Build(blind)
}
