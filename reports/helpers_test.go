package reports

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// built is the history, what is computed of it, and where it came from.
func built(t testing.TB, s *recordtest.Lab) (*record.History, *analysis.Report, record.Origin) {
	t.Helper()
	h := s.Write(t)
	r, err := analysis.Build(h)
	if err != nil {
		t.Fatal(err)
	}
	origin, err := h.Origin()
	if err != nil {
		t.Fatal(err)
	}
	return h, r, origin
}

func reportOf(t testing.TB, s *recordtest.Lab) *analysis.Report {
	t.Helper()
	r, err := analysis.Build(s.Write(t))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// checkSchema validates a report against schema.json, and decodes it strictly into its type and back.
func checkSchema(t testing.TB, r *analysis.Report) {
	t.Helper()
	var b bytes.Buffer
	if err := analysis.WriteJSON(&b, r); err != nil {
		t.Fatal(err)
	}
	if err := testfiles.ValidateJSON(t, analysis.Schema, b.Bytes()); err != nil {
		t.Errorf("the report breaks its schema: %v", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(b.Bytes()))
	decoder.DisallowUnknownFields()
	var back analysis.Report
	if err := decoder.Decode(&back); err != nil {
		t.Errorf("the report does not decode into its type: %v", err)
	}
	var again bytes.Buffer
	if err := analysis.WriteJSON(&again, &back); err != nil || again.String() != b.String() {
		t.Errorf("the report changes when it is written and read (%v)", err)
	}
}

func onlyOutage(t testing.TB, s *recordtest.Lab) analysis.OutageReport {
	t.Helper()
	r := reportOf(t, s)
	if len(r.Lanes[0].Outages) != 1 {
		t.Fatalf("%d outages, want one: %+v", len(r.Lanes[0].Outages), r.Lanes[0].Outages)
	}
	return r.Lanes[0].Outages[0]
}

// kept counts the attempts of a record that stand in it one by one, and those in buckets.
func kept(t testing.TB, h *record.History) (single, bucketed int) {
	t.Helper()
	for e, err := range h.Entries() {
		switch {
		case err != nil:
			t.Fatal(err)
		case e.Bucket != nil:
			bucketed += e.Bucket.Attempts()
		default:
			single++
		}
	}
	return single, bucketed
}
