// Package record holds the record of a run: its events and attempts, the header that identifies the run, and the files that
// store them (history/). Scenarios, probes and observers write records; package analysis reads them.
//
// The package imports nothing else of hitless, so that any program can read a record long after the run. It judges nothing.
package record

import "time"

// Kind is the fixed word for what an event is about. There is one Body for each kind.
type Kind string

// Event is a change of the system under test, or a step that hitless took.
type Event struct {
	At     time.Duration // since the start of the run
	Node   string        // where it happened; empty when it is not about one node
	Object string        // what it is about, such as the name of a pod or of a step
	Text   string        // one sentence for people
	Body   Body          // what the kind adds; never nil in a record
}

// Kind returns the kind of the event's body; empty without a body.
func (e Event) Kind() Kind {
	if e.Body == nil {
		return ""
	}
	return e.Body.Kind()
}

// Body is the part of an event that is particular to its kind: one of the structs of this package, never a pointer.
type Body interface {
	Kind() Kind
}

// Recorder receives the record of a run. Implementations are safe for concurrent use and keep the order of calls.
type Recorder interface {
	Event(Event)
	Attempt(Attempt)
}
