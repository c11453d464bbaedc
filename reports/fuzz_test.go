package reports

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/record"
)

// The seeds of these run with the unit tests. To look for more: go test ./reports -run '^$' -fuzz '^FuzzHistory$' -fuzztime 5m

// smallRun is a whole run of a few seconds, so that the fuzzing is fast.
func smallRun() *lab {
	s := newLab(3)
	s.services[webAddress] = &service{name: "default/web", seed: 7, local: true}
	s.balance(webAddress, 20*time.Millisecond, "node-1", "node-2")
	s.phase("baseline", 50*time.Millisecond)
	s.phase("scenario", 500*time.Millisecond)
	s.step("break node-2", 600*time.Millisecond, 700*time.Millisecond)
	s.phase("end", 1500*time.Millisecond)
	for _, node := range []string{"node-1", "node-2"} {
		s.pod(simPod{name: "web-" + node, node: node, address: "10.244.1.9", service: "default/web", ready: 30 * time.Millisecond})
	}
	s.inject("f", fault{node: "node-2", anyLane: true, from: 600 * time.Millisecond, to: 700 * time.Millisecond, class: record.Refused}, "", false)
	s.probe(simLane{name: "web", target: webAddress, rate: 40, from: 50 * time.Millisecond, to: 1500 * time.Millisecond})
	for i := range s.events {
		s.events[i].At = max(0, s.events[i].At)
	}
	return s
}

func contents(t testing.TB, dir string, names ...string) [][]byte {
	t.Helper()
	var all [][]byte
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, data)
	}
	return all
}

func put(t testing.TB, dir, name string, data []byte) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

var reportFiles = []string{ReportFile, PageFile, JUnitFile, SummaryFile}

// Whatever is in the files of a history, there is an error and no file, or all files and a report that keeps to its schema.
func FuzzHistory(f *testing.F) {
	whole := contents(f, smallRun().write(f).Dir(), record.RunFile, record.EventsFile, record.AttemptsFile)
	f.Add(whole[0], whole[1], whole[2])
	f.Add(whole[0], whole[1][:len(whole[1])/2], whole[2])
	f.Add(whole[0], whole[1], whole[2][:len(whole[2])/2])
	thin := contents(f, calm().thinned(f, 0).Dir(), record.RunFile, record.EventsFile, record.AttemptsFile)
	f.Add(thin[0], thin[1], thin[2])
	f.Add(thin[0], thin[1], thin[2][:len(thin[2])/2])
	f.Add(whole[0], []byte{}, []byte(record.AttemptsMagic))
	f.Add([]byte(`{"schemaVersion":1}`), whole[1], whole[2])
	f.Add([]byte("{}"), whole[1], whole[2])
	f.Add(whole[0], append([]byte("{\"atNs\":-5,\"kind\":\"lane\"}\n{\"kind\":\"else\"}\n"), whole[1]...), whole[2])
	f.Add(whole[0], bytes.ReplaceAll(whole[1], []byte(`"40"`), []byte(`"NaN"`)), whole[2])
	f.Add(whole[0], bytes.ReplaceAll(whole[1], []byte(`"sticky"`), []byte(`"roundrobin"`)), whole[2])
	f.Fuzz(func(t *testing.T, run, events, attempts []byte) {
		dir := t.TempDir()
		put(t, dir, record.RunFile, run)
		put(t, dir, record.EventsFile, events)
		put(t, dir, record.AttemptsFile, attempts)
		h, err := record.OpenHistory(dir)
		if err != nil {
			return
		}
		r, err := WriteAll(dir, h)
		for _, name := range reportFiles {
			if _, statErr := os.Stat(filepath.Join(dir, name)); (statErr == nil) != (err == nil) {
				t.Fatalf("WriteAll gave %v, and %s: %v", err, name, statErr)
			}
		}
		if err != nil {
			return
		}
		checkSchema(t, r)
		if r.Verdict == Pass {
			if err := CheckAgreement(h, r); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A report.json or compare.json that is taken can be shown in every form.
func FuzzReports(f *testing.F) {
	var report, comparison bytes.Buffer
	if err := WriteJSON(&report, smallRun().report(f)); err != nil {
		f.Fatal(err)
	}
	c, err := Compare("rollout", []ComparedSubject{subject("a", 0, 0, 0, 1), subject("b", 5, 60, 7, 8)})
	if err != nil {
		f.Fatal(err)
	}
	if err := WriteComparisonJSON(&comparison, c); err != nil {
		f.Fatal(err)
	}
	f.Add(report.Bytes())
	f.Add(comparison.Bytes())
	f.Add(report.Bytes()[:report.Len()/2])
	f.Add([]byte(`{"schemaVersion":1,"verdict":"fail","lanes":[{"droppedPerSecond":[4611686018427387904,3074457345618258603]}]}`))
	f.Add([]byte(`{"schemaVersion":1,"verdict":"fail","lanes":[{"droppedPerSecond":[-4,3],"outages":[{}]}]}`))
	f.Add([]byte(`{"schemaVersion":1,"subjects":[{"subject":"a"},{}]}`))
	f.Add([]byte(`{"schemaVersion":1,"subjects":[{"subject":"a","runs":[{"seed":1},{"seed":1}]}]}{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		file := put(t, t.TempDir(), "some.json", data)
		r, err := ReadReport(file)
		if (r == nil) == (err == nil) {
			t.Fatalf("a report %v with the error %v", r, err)
		}
		if err == nil {
			show(t, func(w io.Writer) error { return WriteTerminal(w, r, record.Origin{}) },
				func(w io.Writer) error { return WriteMarkdown(w, r, record.Origin{}) },
				func(w io.Writer) error { return WriteJUnit(w, r, record.Origin{}) })
		}
		c, err := ReadComparison(file)
		if (c == nil) == (err == nil) {
			t.Fatalf("a comparison %v with the error %v", c, err)
		}
		if err == nil {
			show(t, func(w io.Writer) error { return WriteComparisonTerminal(w, c) },
				func(w io.Writer) error { return WriteComparisonMarkdown(w, c) },
				func(w io.Writer) error { return WriteResults(w, []*Comparison{c}) })
		}
	})
}

func show(t *testing.T, forms ...func(io.Writer) error) {
	t.Helper()
	for _, write := range forms {
		if err := write(io.Discard); err != nil {
			t.Fatal(err)
		}
	}
}

// A budget that is taken allows no negative loss, and comes back when it is written.
func FuzzBudget(f *testing.F) {
	for _, text := range []string{"", "dropped: 3\ndelayed: 0\n", "dropped: -1", "droped: 1", "dropped: [1]", "{dropped: 1e3}", "- a", "dropped: 9999999999999999999999", "\x00", "a: &a [*a]"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := LoadBudget(put(t, t.TempDir(), "budget.yaml", data))
		if err != nil {
			return
		}
		text, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		again, err := LoadBudget(put(t, t.TempDir(), "budget.yaml", bytes.ToLower(text)))
		if err != nil || *again != *b || b.Dropped < 0 || b.Delayed < 0 {
			t.Fatalf("%q was read as %+v and comes back as %+v, %v", data, *b, again, err)
		}
	})
}

// A folder that cannot take all files takes none, and keeps those of before.
func TestReportsAreWrittenTogetherOrNotAtAll(t *testing.T) {
	h := smallRun().write(t)
	dir := t.TempDir()
	put(t, dir, ReportFile, []byte("of before"))
	if err := cache.WriteFiles(dir, []cache.File{{Name: ReportFile, Data: []byte("new")}, {Name: filepath.Join("missing", "x")}}); err == nil {
		t.Fatal("a file in a missing folder was written")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := contents(t, dir, ReportFile)[0]; len(entries) != 1 || string(got) != "of before" {
		t.Errorf("%d files are left, and %s is %q", len(entries), ReportFile, got)
	}
	if _, err := WriteAll(filepath.Join(dir, "missing"), h); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("writing into a missing folder gave %v", err)
	}
	if _, err := WriteAll(dir, h); err != nil {
		t.Fatal(err)
	}
	if entries, _ = os.ReadDir(dir); len(entries) != len(reportFiles) {
		t.Errorf("the folder holds %d files, want %d", len(entries), len(reportFiles))
	}
}
