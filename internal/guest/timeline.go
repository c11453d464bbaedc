package guest

import (
	"bufio"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/hitless/hitless/scenarios/timeline"
)

// PackTimeline makes of a timeline what a plan carries: its text and the lines of the file that it was read from, which the text has
// not (comments are left out, defaults put in), so that what goes wrong in the guest is told with them. It is compressed, because a
// plan has little room and the objects of a recording resemble each other. The same timeline gives the same bytes.
func PackTimeline(t *timeline.Timeline) ([]byte, error) {
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(lineSteps(t)); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(w, t.String()); err != nil {
		return nil, err
	}
	err = w.Close()
	return out.Bytes(), err
}

func unpackTimeline(packed []byte) (*timeline.Timeline, error) {
	from := bufio.NewReader(flate.NewReader(bytes.NewReader(packed)))
	lines, err := readLines(from)
	var text []byte
	if err == nil {
		text, err = io.ReadAll(from)
	}
	if err != nil {
		return nil, fmt.Errorf("unpacking the plan's timeline: %w", err)
	}
	t, err := timeline.Parse("timeline", text)
	if err != nil {
		return nil, err
	}
	places := linesOf(t)
	if len(places) != len(lines) {
		return nil, fmt.Errorf("unpacking the plan's timeline: it has the lines of %d steps and settings, and %d of these", len(lines), len(places))
	}
	for i, line := range lines {
		*places[i] = line
	}
	return t, nil
}

// linesOf are the lines of all that has one, in the order of the text.
func linesOf(t *timeline.Timeline) (all []*int) {
	for i := range t.Set {
		all = append(all, &t.Set[i].Line)
	}
	for _, steps := range [][]timeline.Step{t.Lanes, t.Given, t.Steps} {
		for i := range steps {
			all = append(all, &steps[i].Line)
		}
	}
	return all
}

// lineSteps are the lines as their number and by how much each is further down than the one before, mostly 1.
func lineSteps(t *timeline.Timeline) []byte {
	lines := linesOf(t)
	out, last := binary.AppendUvarint(nil, uint64(len(lines))), 0
	for _, line := range lines {
		out, last = binary.AppendVarint(out, int64(*line-last)), *line
	}
	return out
}

func readLines(from io.ByteReader) ([]int, error) {
	n, err := binary.ReadUvarint(from)
	if err != nil {
		return nil, err
	}
	var lines []int
	for last := 0; uint64(len(lines)) < n; lines = append(lines, last) {
		further, err := binary.ReadVarint(from)
		if err != nil {
			return nil, err
		}
		last += int(further)
	}
	return lines, nil
}
