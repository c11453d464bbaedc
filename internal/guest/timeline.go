package guest

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"

	"github.com/hitless/hitless/scenarios/timeline"
)

// PackTimeline makes of a timeline what a plan carries: its text, compressed, because a plan has little room and the
// objects of a recording resemble each other. The same timeline gives the same bytes.
func PackTimeline(t *timeline.Timeline) ([]byte, error) {
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.BestCompression)
	if err == nil {
		_, err = io.WriteString(w, t.String())
	}
	if err == nil {
		err = w.Close()
	}
	return out.Bytes(), err
}

func unpackTimeline(packed []byte) (*timeline.Timeline, error) {
	text, err := io.ReadAll(flate.NewReader(bytes.NewReader(packed)))
	if err != nil {
		return nil, fmt.Errorf("unpacking the plan's timeline: %w", err)
	}
	return timeline.Parse("timeline", text)
}
