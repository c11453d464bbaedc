package reports

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// The seeds of these run with the unit tests. To look for more: go test ./reports -run '^$' -fuzz '^FuzzHistory$' -fuzztime 5m

var reportFiles = []string{ReportFile, PageFile, JUnitFile, SummaryFile}

// Whatever is in the files of a history, there is an error and no file, or all files and a report that keeps to its schema.
func FuzzHistory(f *testing.F) {
	whole := testfiles.Read(f, recordtest.SmallRun().Write(f).Dir(), record.RunFile, record.EventsFile, record.AttemptsFile)
	f.Add(whole[0], whole[1], whole[2])
	f.Add(whole[0], whole[1][:len(whole[1])/2], whole[2])
	f.Add(whole[0], whole[1], whole[2][:len(whole[2])/2])
	thin := testfiles.Read(f, recordtest.Calm().Thinned(f, 0).Dir(), record.RunFile, record.EventsFile, record.AttemptsFile)
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
		testfiles.Write(t, dir, record.RunFile, run)
		testfiles.Write(t, dir, record.EventsFile, events)
		testfiles.Write(t, dir, record.AttemptsFile, attempts)
		h, err := record.OpenUnsealed(dir)
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
		if r.Verdict == analysis.Pass {
			if err := analysis.CheckAgreement(h, r); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A folder that cannot take all files takes none, and keeps those of before.
func TestReportsAreWrittenTogetherOrNotAtAll(t *testing.T) {
	h := recordtest.SmallRun().Write(t)
	dir := t.TempDir()
	testfiles.Write(t, dir, ReportFile, []byte("of before"))
	if err := cache.WriteFiles(dir, []cache.File{{Name: ReportFile, Data: []byte("new")}, {Name: filepath.Join("missing", "x")}}); err == nil {
		t.Fatal("a file in a missing folder was written")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := testfiles.Read(t, dir, ReportFile)[0]; len(entries) != 1 || string(got) != "of before" {
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
