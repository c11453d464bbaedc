package compare

import (
	"bytes"
	"io"
	"testing"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
	"github.com/hitless/hitless/reports"
)

// Every report.json or compare.json that is accepted can be rendered in every format.
func FuzzReports(f *testing.F) {
	var report, comparison bytes.Buffer
	if err := analysis.WriteJSON(&report, reportOf(f, recordtest.SmallRun())); err != nil {
		f.Fatal(err)
	}
	c, err := New("rollout", []Subject{subject("a", 0, 0, 0, 1), subject("b", 5, 60, 7, 8)}, Options{})
	if err != nil {
		f.Fatal(err)
	}
	if err := WriteJSON(&comparison, c); err != nil {
		f.Fatal(err)
	}
	f.Add(report.Bytes())
	f.Add(comparison.Bytes())
	f.Add(report.Bytes()[:report.Len()/2])
	f.Add([]byte(`{"schemaVersion":1,"verdict":"fail","lanes":[{"droppedPerSecond":[4611686018427387904,3074457345618258603]}]}`))
	f.Add([]byte(`{"schemaVersion":1,"verdict":"fail","lanes":[{"droppedPerSecond":[-4,3],"outages":[{}]}]}`))
	f.Add([]byte(`{"schemaVersion":1,"subjects":[{"subject":"a"},{}]}`))
	f.Add([]byte(`{"schemaVersion":2,"reference":"a","mixed":true,"subjects":[{"subject":"a","runs":[{"verdict":"pass","dropped":9}]},{"subject":"b","runs":[{"verdict":"fail","kernel":{}}]}]}`))
	f.Add([]byte(`{"schemaVersion":1,"subjects":[{"subject":"a","runs":[{"seed":1},{"seed":1}]}]}{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		file := testfiles.Write(t, t.TempDir(), "some.json", data)
		r, err := analysis.Read(file)
		if (r == nil) == (err == nil) {
			t.Fatalf("a report %v with the error %v", r, err)
		}
		if err == nil {
			show(t, func(w io.Writer) error { return reports.WriteTerminal(w, r, record.Origin{}) },
				func(w io.Writer) error { return reports.WriteMarkdown(w, r, record.Origin{}) },
				func(w io.Writer) error { return reports.WriteJUnit(w, r, record.Origin{}) })
		}
		c, err := Read(t.Context(), file)
		if (c == nil) == (err == nil) {
			t.Fatalf("a comparison %v with the error %v", c, err)
		}
		if err == nil {
			show(t, func(w io.Writer) error { return WriteTerminal(w, c) },
				func(w io.Writer) error { return WriteMarkdown(w, c) },
				func(w io.Writer) error { return WriteResults(w, []*Comparison{c}) })
		}
	})
}

func show(t *testing.T, forms ...func(io.Writer) error) {
	t.Helper()
	for _, write := range forms {
		if err := write(io.Discard); err != nil {
			t.Fatal(err)
		}
	}
}
