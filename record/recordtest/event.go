package recordtest

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// Event is a line of events.ndjson as it is on disk, so that tests can write damaged events too.
type Event struct {
	At     time.Duration     `json:"atNs"`
	Kind   record.Kind       `json:"kind"`
	Node   string            `json:"node,omitempty"`
	Object string            `json:"object,omitempty"`
	Text   string            `json:"text"`
	Attrs  map[string]string `json:"attrs,omitempty"`
}

// typed is the event as programs record it. An event that cannot be read ends the test.
func (e Event) typed(t testing.TB) record.Event {
	t.Helper()
	var typed record.Event
	if err := json.Unmarshal(linesOf(t, []Event{e}), &typed); err != nil {
		t.Fatal(err)
	}
	return typed
}

// linesOf is the text of events.ndjson with these events.
func linesOf(t testing.TB, events []Event) []byte {
	t.Helper()
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	for _, e := range events {
		if err := encoder.Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}
