package analysis

import (
	"testing"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// built is the history, what is computed of it, and where it came from.
func built(t testing.TB, s *recordtest.Lab) (*record.History, *Report, record.Origin) {
	t.Helper()
	h := s.Write(t)
	r, err := Build(h)
	if err != nil {
		t.Fatal(err)
	}
	origin, err := h.Origin()
	if err != nil {
		t.Fatal(err)
	}
	return h, r, origin
}

func reportOf(t testing.TB, s *recordtest.Lab) *Report {
	t.Helper()
	r, err := Build(s.Write(t))
	if err != nil {
		t.Fatal(err)
	}
	return r
}
