package reports

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/hitless/hitless/record/recordtest"
)

var pagesDir = flag.String("pages", "", "write the synthetic reports into this folder, to be looked at in a browser")

// TestPagesToLookAt writes nothing unless it is asked to: go test -run PagesToLookAt ./reports -args -pages=FOLDER
func TestPagesToLookAt(t *testing.T) {
	if *pagesDir == "" {
		t.Skip("runs only by hand, with -pages=FOLDER")
	}
	for name, s := range recordtest.PageLabs() {
		dir := filepath.Join(*pagesDir, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		r, err := WriteAll(dir, s.Write(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %s", name, r.Sentence())
	}
}
