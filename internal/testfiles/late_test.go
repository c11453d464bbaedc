package testfiles

import "testing"

func TestOnlyLate(t *testing.T) {
	const (
		behind = "lane canary fell behind: attempts started 15 ms late (p99), 10 ms is the limit"
		guard  = "a guard of the measurement tripped at +3.904 s: this machine, or this program, did not run when attempts were due"
		missed = "the injected drop of 20 ms on lane canary at +0.702 s was not found"
		lost   = "lane web lost records: of 100 numbers 1 are missing and 0 stand twice"
	)
	for _, c := range []struct {
		reasons []string
		want    bool
	}{
		{[]string{behind}, true},
		{[]string{guard, behind, missed}, true},
		{[]string{missed}, false}, // the lane was in time
		{[]string{behind, "the injected drop of 20 ms on lane other at +0.702 s was not found"}, false},
		{[]string{behind, lost}, false},
		{nil, false},
	} {
		if got := OnlyLate(c.reasons); got != c.want {
			t.Errorf("%v for %q", got, c.reasons)
		}
	}
}
