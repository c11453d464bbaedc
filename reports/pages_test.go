package reports

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"
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
	unproved := rolling{seed: 1, rollouts: 1, noProof: true}
	mixed := rolling{seed: 5, fallback: true, rollouts: 2}
	s := mixed.lab()
	for i, class := range faultClasses {
		from := scenarioAt + time.Duration(3*i)*time.Second
		s.faults = append(s.faults, fault{anyLane: true, node: nodeNames[i%3], from: from, to: from + 300*time.Millisecond, class: class})
	}
	return map[string]*lab{"mixed": mixed.start(s), "invalid": unproved.start(unproved.lab()), "pass": good.start(good.lab()), "fail": bad.start(bad.lab())}
}
