package chart

import (
	"slices"
	"testing"

	"github.com/hitless/hitless/record"
)

// An event is visible without an entry for its kind: only the kinds in kindsWithoutRow lack a row, and no kind has two.
func TestEachKindOfEventHasOneRow(t *testing.T) {
	for _, named := range [][]eventRow{namedRows, namedRows[:3], nil} {
		count := map[record.Kind]int{}
		for _, row := range eventRows(named) {
			for _, kind := range row.kinds {
				count[kind]++
			}
		}
		for _, kind := range record.Kinds() {
			want := 1
			if slices.Contains(kindsWithoutRow, kind) {
				want = 0
			}
			if count[kind] != want {
				t.Errorf("with %d named rows, events of kind %s are in %d rows, want %d", len(named), kind, count[kind], want)
			}
		}
	}
}
