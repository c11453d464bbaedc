package museum

import (
	"strings"
	"testing"

	"github.com/hitless/hitless/analysis"
)

// Each known bug of package analysis names the same fix as its museum entry.
func TestReportsNameTheFixesOfEntries(t *testing.T) {
	all := analysis.KnownBugs()
	if len(all) == 0 {
		t.Error("no bug is known")
	}
	for _, b := range all {
		e, err := Find(b.ID)
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.TrimSuffix(b.Fixed, ".0") + " (" + b.Change + ")"; e.Fixed != want || !strings.Contains(e.Affected, b.Subject) {
			t.Errorf("%s is fixed in %q and affects %q; reports say %q of %s", b.ID, e.Fixed, e.Affected, want, b.Subject)
		}
	}
}
