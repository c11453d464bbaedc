package record

import (
	"os"
	"strings"
	"testing"
)

// Each declared kind has a body, and each body its own kind.
func TestEachKindHasOneBody(t *testing.T) {
	source, err := os.ReadFile("bodies.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := strings.Count(string(source), ` Kind = "`)
	seen := map[Kind]bool{}
	for _, k := range Kinds() {
		seen[k] = true
	}
	if declared == 0 || declared != len(Kinds()) || len(seen) != declared {
		t.Errorf("%d kinds are declared, %d bodies have %d kinds", declared, len(Kinds()), len(seen))
	}
}
