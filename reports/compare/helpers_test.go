package compare

import (
	"testing"

	"github.com/hitless/hitless/analysis"
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

func first(object map[string]any, list string) map[string]any {
	return object[list].([]any)[0].(map[string]any)
}
