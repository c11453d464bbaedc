package conformance

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// Specs that say nothing are not among the failed ones. Wide tables scroll with the keys too, and each cell has heads.
func TestThePageSeparatesFailedFromInvalid(t *testing.T) {
	r := reportOf("new", "v1.26.0", map[string]State{"drain new": Failed, "quiet new": Invalid})
	r.conclude()
	m, err := NewMatrix([]*Report{r})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := errors.Join(Write(dir, r, nil, nil), WriteMatrix(dir, m, []*Report{r})); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{PageFile, MatrixFile} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		page := string(data)
		if strings.Contains(page, `class="scroll"><`) || strings.Contains(page, "<th>") || !strings.Contains(page, `<th scope="row">`) {
			t.Errorf("%s has a table without heads, or one that keys do not scroll:\n%s", name, page)
		}
		_, red, _ := strings.Cut(page, "<h2>Failed</h2>")
		failed, invalid, split := strings.Cut(red, "<h2>Invalid")
		if name == PageFile && (!split || !strings.Contains(failed, "drain new") || strings.Contains(failed, "quiet new") || !strings.Contains(invalid, "quiet new")) {
			t.Errorf("failed and invalid specs are one list:\n%s", page)
		}
	}
	r.Specs = r.Specs[:1]
	if text := r.Summary(); !strings.HasSuffix(text, " of 1 spec") {
		t.Errorf("%q", text)
	}
}

// The pages of shards link their runs. Those of a matrix are in a folder without runs, as after `hitless report conformance out/shard-* --out
// out/whole`, and link none.
func TestThePagesOfAMatrixLinkNoRun(t *testing.T) {
	filter := "-ginkgo.focus=^conformance a Service proxy (quiet|drain) "
	var dirs, links []string
	for _, shard := range []string{"1/2", "2/2"} {
		dir, _, _ := suite(t, "none", filter, "-shard="+shard)
		dirs = append(dirs, dir)
		links = append(links, testfiles.Links(t, filepath.Join(dir, PageFile))...)
	}
	slices.Sort(links)
	if want := []string{"runs/drain/report.html", "runs/quiet/report.html"}; !slices.Equal(slices.Compact(links), want) {
		t.Errorf("the pages of the shards link %q, want %q", links, want)
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
		if links := testfiles.Links(t, filepath.Join(out, page)); len(links) > 0 {
			t.Errorf("%s links %q", page, links)
		}
	}
}
