package conformance

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hitless/hitless/internal/testfiles"
)

// The page of a suite links each run that has a report or a record, and nothing else. Costs and checks of routing have no report, and a run
// that ended before its first attempt has neither.
func TestLinksOfThePageLeadToFiles(t *testing.T) {
	dir, output, _ := suite(t, "flap:early,drain:tcp-new", "-ginkgo.label-filter=cost || flap || core && drain || routing && ipv6")
	links := testfiles.Links(t, filepath.Join(dir, PageFile))
	for _, want := range []string{"runs/cost/history/events.ndjson", "runs/routing-ipv6/history/events.ndjson", "runs/drain/report.html"} {
		if !slices.Contains(links, want) {
			t.Errorf("the page has no link to %s: %q\n%s", want, links, output)
		}
	}
	r := readReport(t, dir)
	if got := stateOfSpec(t, r, "flap new"); got.State != Invalid || slices.Contains(links, got.Run+"/report.html") {
		t.Errorf("%+v has a link to its report", got)
	}
	if err := os.RemoveAll(filepath.Join(dir, RunsDir)); err != nil {
		t.Fatal(err)
	}
	if err := Write(dir, r, nil, nil); err != nil {
		t.Fatal(err)
	}
	if links := testfiles.Links(t, filepath.Join(dir, PageFile)); len(links) > 0 {
		t.Errorf("a page without runs has links: %q", links)
	}
}

// The pages of a matrix are in a folder without runs: `hitless report conformance out/shard-* --out out/whole`.
func TestLinksOfTheMatrixLeadToFiles(t *testing.T) {
	filter := "-ginkgo.focus=^conformance a Service proxy (quiet|drain) "
	var dirs []string
	for _, shard := range []string{"1/2", "2/2"} {
		dir, _, _ := suite(t, "none", filter, "-shard="+shard)
		dirs = append(dirs, dir)
	}
	all, err := ReadAll(t.Context(), dirs, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMatrix(all)
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	if err := WriteMatrix(out, m, all); err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{MatrixFile, PageFile} {
		testfiles.Links(t, filepath.Join(out, page))
	}
}
