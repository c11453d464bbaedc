//go:build linux

package host

import (
	"slices"
	"testing"
)

// Output arrives in pieces of any size; only whole lines are passed on.
func TestConsolePassesWholeLines(t *testing.T) {
	var lines []string
	c := &console{line: func(line string) { lines = append(lines, line) }}
	for _, piece := range []string{"on", "e\ntwo\r\nthr", "ee\nno end"} {
		if n, err := c.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatalf("writing %q gave %d, %v", piece, n, err)
		}
	}
	if want := []string{"one", "two", "three"}; !slices.Equal(lines, want) {
		t.Errorf("lines %q, want %q", lines, want)
	}
	if tail, want := c.close(), []string{"one", "two", "three", "no end"}; !slices.Equal(tail, want) {
		t.Errorf("last lines %q, want %q", tail, want)
	}
}
