package compare

import (
	"testing"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record/recordtest"
)

func reportOf(t testing.TB, s *recordtest.Lab) *analysis.Report {
	t.Helper()
	r, err := analysis.Build(s.Write(t))
	if err != nil {
		t.Fatal(err)
	}
	return r
}
