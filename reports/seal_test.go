package reports

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// failing is the folder of a sealed run that failed, and the attempts of the same run without its loss.
func failing(t *testing.T) (dir string, attempts []byte) {
	t.Helper()
	o := recordtest.Clean()
	clean, lossy := o.Start(o.Lab()).Write(t), o.Lab()
	lossy.Faults = append(lossy.Faults, recordtest.Fault{Lane: 0, From: recordtest.ScenarioAt + 100*time.Millisecond,
		To: recordtest.ScenarioAt + 400*time.Millisecond, Class: record.Refused})
	dir = filepath.Dir(o.Start(lossy).Write(t).Dir())
	if r, _, err := Seal(dir, nil); err != nil || r.Verdict != analysis.Fail {
		t.Fatalf("%+v, %v", r, err)
	}
	return dir, testfiles.Read(t, clean.Dir(), record.AttemptsFile)[0]
}

// A change that turns a failure into a pass is invalid, and the reports stay. The red twin: without the seal's check it passes.
func TestAForgedPassIsInvalid(t *testing.T) {
	dir, attempts := failing(t)
	if _, err := OpenRun(dir, nil); err != nil {
		t.Fatal(err)
	}
	report := string(testfiles.Read(t, dir, ReportFile)[0])
	testfiles.Write(t, filepath.Join(dir, record.HistoryDir), record.AttemptsFile, attempts)
	if _, err := OpenRun(dir, nil); !record.IsDamaged(err) || !strings.Contains(err.Error(), "attempts.bin was changed in the bytes") {
		t.Errorf("a forged record: %v", err)
	}
	unchecked, err := record.OpenUnsealed(dir)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := analysis.Build(unchecked); err != nil || r.Verdict != analysis.Pass {
		t.Errorf("without the check it is %+v, %v: the change proves nothing", r, err)
	}
	if err := os.Remove(filepath.Join(dir, record.SealFile)); err != nil {
		t.Fatal(err)
	}
	h, err := record.OpenHistory(dir)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := analysis.Build(h); err != nil || r.Verdict != analysis.Invalid {
		t.Errorf("without the seal it is %+v, %v", r, err)
	}
	if _, err := WriteAll(dir, h); !record.IsDamaged(err) {
		t.Errorf("a record without a seal replaced the report: %v", err)
	}
	if now := string(testfiles.Read(t, dir, ReportFile)[0]); now != report {
		t.Error("the report was changed")
	}
}

// Another verdict over an intact record is told, and is no damage.
func TestAnotherVerdictThanTheSealsIsTold(t *testing.T) {
	dir, _ := failing(t)
	h, err := record.OpenHistory(dir)
	if err != nil {
		t.Fatal(err)
	}
	const word = "its seal has another outcome: fail"
	for dropped, told := range map[int]bool{1000: true, 0: false} {
		budget := record.Budget{Dropped: dropped}
		r, err := analysis.Judge(h, &budget)
		if err != nil || strings.Contains(strings.Join(r.Reasons, "\n"), word) != told || (r.Verdict == analysis.Pass) != told {
			t.Errorf("budget %+v: %s %q, %v", budget, r.Verdict, r.Reasons, err)
		}
	}
}

// A run that ended early stays invalid, whatever its record looks like.
func TestARunThatEndedEarlyStaysInvalid(t *testing.T) {
	o := recordtest.Clean()
	dir := filepath.Dir(o.Start(o.Lab()).Write(t).Dir())
	if _, _, err := SealEarly(dir, "the deadline is over", nil); err != nil {
		t.Fatal(err)
	}
	f, err := OpenRun(dir, nil)
	if err != nil || f.Report.Verdict != analysis.Invalid || !strings.Contains(f.Report.Reasons[0], "the deadline is over") {
		t.Errorf("%+v, %v", f, err)
	}
}
