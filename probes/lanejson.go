package probes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// laneFields has Lane's fields without its methods, so that encoding them does not recurse.
type laneFields Lane

// laneText is a lane in JSON: its plain fields, and its durations as text.
type laneText struct {
	laneFields
	Dial    string `json:"dialDeadline,omitempty"`
	Reply   string `json:"replyDeadline,omitempty"`
	Delayed string `json:"delayedAfter,omitempty"`
	Stall   string `json:"stallAfter,omitempty"`
}

// MarshalJSON writes the lane with its durations as Go duration strings.
func (l Lane) MarshalJSON() ([]byte, error) {
	text := laneText{laneFields: laneFields(l)}
	for field, d := range text.durations(&l) {
		if *d != 0 {
			*field = d.String()
		}
	}
	return json.Marshal(text)
}

// UnmarshalJSON reads what MarshalJSON writes; an unknown field is an error, since a mistyped name would silently
// become a default.
func (l *Lane) UnmarshalJSON(data []byte) error {
	var text laneText
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&text); err != nil {
		return fmt.Errorf("reading a lane: %w", err)
	}
	lane := Lane(text.laneFields)
	for field, d := range text.durations(&lane) {
		if *field == "" {
			continue
		}
		var err error
		if *d, err = time.ParseDuration(*field); err != nil {
			return fmt.Errorf("reading a duration of lane %d: %w", lane.ID, err)
		}
	}
	*l = lane
	return nil
}

// durations pairs each duration of the lane with its text.
func (t *laneText) durations(l *Lane) func(yield func(*string, *time.Duration) bool) {
	return func(yield func(*string, *time.Duration) bool) {
		_ = yield(&t.Dial, &l.DialDeadline) && yield(&t.Reply, &l.ReplyDeadline) && yield(&t.Delayed, &l.DelayedAfter) &&
			yield(&t.Stall, &l.StallAfter)
	}
}
