package reports

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var pagesDir = flag.String("pages", "", "write the synthetic reports into this folder, to be looked at in a browser")

// TestPagesToLookAt writes nothing unless it is asked to: go test -run PagesToLookAt ./reports -args -pages=FOLDER
func TestPagesToLookAt(t *testing.T) {
	if *pagesDir == "" {
		t.Skip("no folder was named with -pages")
	}
	for name, s := range pageLabs() {
		dir := filepath.Join(*pagesDir, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		r, err := WriteAll(dir, s.write(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %s", name, r.Sentence())
	}
}

// pageLabs are the runs that the golden files show.
func pageLabs() map[string]*lab {
	good := rolling{seed: 1, fallback: true, rollouts: 3}
	bad := rolling{seed: 1, fallback: false, rollouts: 2}
	return map[string]*lab{"pass": good.start(good.lab()), "fail": bad.start(bad.lab())}
}
