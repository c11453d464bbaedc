package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/scenarios/museum"
)

// museumOf writes a museum.json with these texts in its list.
func museumOf(t *testing.T, bugs ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "museum.json")
	if err := os.WriteFile(file, []byte("["+strings.Join(bugs, ",")+"]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// bugOf is an answer in a museum.json.
func bugOf(id string, answer museum.Answer) string {
	e, err := museum.Find(id)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{"id": %q, "title": "a rollout", "subject": "bundled", "seed": 1, "triggerSha256": %q, "answer": %q, "reasons": ["an outage of 5 s"]}`, id, e.TriggerSha256(), answer)
}

// allBugs are the answers of a whole search: one bug is seen, and no other applies.
func allBugs() (texts []string) {
	for _, e := range museum.All() {
		answer := museum.DoesNotApply
		if e.ID == "k8s-85643" {
			answer = museum.Seen
		}
		texts = append(texts, bugOf(e.ID, answer))
	}
	return texts
}

// The bugs of the museum stand in the report, which keeps its schema, and on the page. They turn no spec red.
func TestTheReportHasTheBugsOfTheMuseum(t *testing.T) {
	dir, output, failed := suite(t, "none", "-ginkgo.label-filter=drain", "-museum="+museumOf(t, allBugs()...))
	if failed {
		t.Fatal(output)
	}
	r := readReport(t, dir)
	seen := slices.IndexFunc(r.Bugs, func(b Bug) bool { return b.ID == "k8s-85643" })
	if len(r.Bugs) != len(museum.All()) || seen < 0 || r.Bugs[seen].Answer != "seen" || r.ExitCode() != 0 {
		t.Errorf("%+v, exit code %d", r.Bugs, r.ExitCode())
	}
	page, err := os.ReadFile(filepath.Join(dir, PageFile))
	if err != nil || !strings.Contains(string(page), fmt.Sprintf("%d historical bugs: 1 seen, 0 not seen, 0 cannot tell, %d do not apply", len(r.Bugs), len(r.Bugs)-1)) {
		t.Errorf("the page lacks the bugs (%v)", err)
	}
}

func TestOneBugIsSingular(t *testing.T) {
	for bugs, want := range map[int]string{1: "1 historical bug: ", 2: "2 historical bugs: "} {
		if text := (&Report{Bugs: make([]Bug, bugs)}).BugsText(); !strings.HasPrefix(text, want) {
			t.Errorf("%q, want %q", text, want)
		}
	}
}

// Bugs that were searched for in something else are an error before anything runs.
func TestBugsOfSomethingElseAreAnError(t *testing.T) {
	whole, seenBug := allBugs(), bugOf("k8s-85643", museum.Seen)
	with := func(text string) string { return museumOf(t, append(slices.Clone(whole[1:]), text)...) } // in place of another bug
	for name, file := range map[string]string{
		"another subject": museumOf(t, strings.Split(strings.ReplaceAll(strings.Join(whole, "\n"), "bundled", "kube-proxy@v1.37.1/ipvs"), "\n")...),
		"an unknown bug":  museumOf(t, append(slices.Clone(whole), strings.Replace(seenBug, "85643", "1", 1))...),
		"another answer":  with(strings.Replace(bugOf(museum.All()[0].ID, museum.Seen), `"seen"`, `"perhaps"`, 1)),
		"twice":           museumOf(t, append(slices.Clone(whole), seenBug)...),
		"other settings":  with(strings.Replace(bugOf(museum.All()[0].ID, museum.Seen), `"seed"`, `"set": {"replicas": "1"}, "seed"`, 1)),
		"another trigger": with(strings.Replace(bugOf(museum.All()[0].ID, museum.Seen), `"triggerSha256": "`, `"triggerSha256": "0`, 1)),
		"one of many":     museumOf(t, seenBug),
		"one is missing":  museumOf(t, whole[1:]...),
		"no bug":          museumOf(t),
		"an unknown key":  with(strings.Replace(bugOf(museum.All()[0].ID, museum.Seen), "title", "name", 1)),
		"no list":         museumOf(t, strings.Join(whole, ",")+"] []"),
		"no file":         filepath.Join(t.TempDir(), "none.json"),
	} {
		if bugs, err := ReadBugs(t.Context(), file, "bundled"); err == nil {
			t.Errorf("%s: %+v", name, bugs)
		}
	}
	if bugs, err := ReadBugs(t.Context(), museumOf(t, whole...), "bundled"); err != nil || len(bugs) != len(whole) {
		t.Errorf("%+v: %v", bugs, err)
	}
}

// The matrix has a row for each bug that a subject has, and none for the others.
func TestTheMatrixHasTheBugsThatWereSeen(t *testing.T) {
	old, new := reportOf("old", "v1.25.3", nil), reportOf("new", "v1.26.0", nil)
	old.Bugs = []Bug{{ID: "k8s-85643", Answer: "seen"}, {ID: "k8s-71515", Answer: "not seen"}}
	new.Bugs = []Bug{{ID: "k8s-85643", Answer: "not seen"}}
	m, err := NewMatrix([]*Report{old, new, reportOf("other", "v1.0.0", nil)})
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Rows) != 1 || m.Rows[0].Feature != "k8s-85643" || m.Rows[0].Cells[0].Class() != "failed" || m.Rows[0].Cells[1].Class() != "passed" || m.Rows[0].Cells[1].Text() != "not seen" || m.Rows[0].Cells[2].State != "" {
		t.Errorf("%+v", m.Rows)
	}
}

// The bugs are those of the shard that has them. Shards with different ones are an error.
func TestJoinedShardsKeepTheBugs(t *testing.T) {
	parts := func(first, second []Bug) []*Report {
		var all []*Report
		for shard, bugs := range map[string][]Bug{"1/2": first, "2/2": second} {
			r := reportOf("bundled", "", nil)
			r.Selected.Shard, r.Bugs = shard, bugs
			all = append(all, r)
		}
		return all
	}
	seen, not := []Bug{{ID: "k8s-85643", Answer: "seen"}}, []Bug{{ID: "k8s-85643", Answer: "not seen"}}
	for _, all := range [][]*Report{parts(seen, nil), parts(nil, seen), parts(seen, seen)} {
		if joined, err := Join(all); err != nil || len(joined) != 1 || len(joined[0].Bugs) != 1 {
			t.Errorf("%+v: %v", joined, err)
		}
	}
	if joined, err := Join(parts(seen, not)); err == nil {
		t.Errorf("different bugs were joined: %+v", joined)
	}
}

// The whole museum.json of a call without --set can be given to a report, also for bugs whose entries have parameters of their own.
func TestAllBugsOfACallCanBeGivenToAReport(t *testing.T) {
	for _, subject := range []string{"bundled", "kube-proxy@v1.37.1/iptables"} {
		var found []run.BugResult
		for _, e := range museum.All() {
			o := run.Options{Program: os.Args[0], Seed: 1, Rate: -1, Out: t.TempDir()} // a run with this rate is refused
			o.Subject = subject
			b, err := run.Museum(t.Context(), o, e)
			if b.ID != e.ID || err != nil && !run.IsUsage(err) {
				t.Fatalf("%s: %+v, %v", e.ID, b, err)
			}
			if err != nil {
				b.Answer, b.Reasons = museum.CannotTell, []string{err.Error()}
			}
			found = append(found, b)
		}
		dir := t.TempDir()
		if err := run.WriteBugs(dir, found); err != nil {
			t.Fatal(err)
		}
		if bugs, err := ReadBugs(t.Context(), filepath.Join(dir, run.MuseumFile), subject); err != nil || len(bugs) != len(museum.All()) {
			t.Errorf("%s: %d bugs, %v", subject, len(bugs), err)
		}
	}
}
