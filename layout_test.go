// Package hitless_test holds the rules of the house.
package hitless_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/hitless/hitless/"

// rooms says what each room may import of the project, and why not more.
var rooms = []struct {
	room string
	may  []string
	why  string
}{
	{"record", nil, "any program reads a record, long after the run"},
	{"reports", []string{"record", "internal/cache"}, "a history is judged long after the run, by any program"},
	{"internal/cache", nil, "every package may write files and take locks by it"},
	{"probes", []string{"record", "reports", "probes", "internal/cache", "internal/clock"}, "the detector must not know what it measures"},
	{"proxier", []string{"proxier"}, "the bundled proxier is a program that stands alone"},
	{"observers", []string{"record"}, "the lab and live clusters share them"},
	{"lab", []string{"lab", "record", "observers", "internal/cache"}, "the lab neither disturbs nor measures"},
	{"cluster", []string{"record", "observers", "internal/clock"}, "a live cluster is no lab, and its driver neither disturbs nor measures"},
	{"scenarios", []string{"record", "reports"}, "the same steps drive the lab and a live cluster"},
}

func TestImports(t *testing.T) {
	for _, r := range rooms {
		err := filepath.WalkDir(r.room, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			for _, spec := range f.Imports {
				name, _ := strconv.Unquote(spec.Path.Value)
				if inner, ours := strings.CutPrefix(name, module); ours && !allowed(r.room, r.may, inner) {
					t.Errorf("%s imports %s: %s", path, inner, r.why)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func allowed(room string, may []string, inner string) bool {
	if inner == room || strings.HasPrefix(inner, room+"/") {
		return true
	}
	for _, m := range may {
		if inner == m || strings.HasPrefix(inner, m+"/") {
			return true
		}
	}
	return false
}
