package analysis

import (
	"testing"

	"github.com/hitless/hitless/record/recordtest"
)

func reportOf(t testing.TB, s *recordtest.Lab) *Report {
	t.Helper()
	r, err := Build(s.Write(t))
	if err != nil {
		t.Fatal(err)
	}
	return r
}
