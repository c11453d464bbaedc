package analysis

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// A budget that is taken allows no negative loss, and comes back when it is written.
func FuzzBudget(f *testing.F) {
	for _, text := range []string{"", "dropped: 3\ndelayed: 0\n", "dropped: -1", "droped: 1", "dropped: [1]", "{dropped: 1e3}", "- a", "dropped: 9999999999999999999999", "\x00", "a: &a [*a]"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := LoadBudget(t.Context(), testfiles.Write(t, t.TempDir(), "budget.yaml", data))
		if err != nil {
			return
		}
		text, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		again, err := LoadBudget(t.Context(), testfiles.Write(t, t.TempDir(), "budget.yaml", bytes.ToLower(text)))
		if err != nil || *again != *b || b.Dropped < 0 || b.Delayed < 0 {
			t.Fatalf("%q was read as %+v and comes back as %+v, %v", data, *b, again, err)
		}
	})
}

func TestJudgingAgainWithAnotherBudget(t *testing.T) {
	o := recordtest.Clean()
	s := o.Lab()
	s.Faults = append(s.Faults, recordtest.Fault{Lane: 0, From: recordtest.ScenarioAt + 100*time.Millisecond, To: recordtest.ScenarioAt + 400*time.Millisecond, Class: record.Refused})
	h := o.Start(s).Write(t)
	judge := func(b *record.Budget) Verdict {
		t.Helper()
		r, err := Judge(h, b)
		if err != nil {
			t.Fatal(err)
		}
		return r.Verdict
	}
	if judge(nil) != Fail || judge(&record.Budget{Dropped: 30}) != Pass || judge(&record.Budget{Dropped: 29}) != Fail {
		t.Error("the verdict does not follow the budget")
	}
	if h.Run.Budget != (record.Budget{}) {
		t.Errorf("the budget of the history became %+v", h.Run.Budget)
	}
}

func TestLoadBudget(t *testing.T) {
	load := func(text string) (*record.Budget, error) {
		file := filepath.Join(t.TempDir(), "budget.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return LoadBudget(t.Context(), file)
	}
	if b, err := load("dropped: 3\ndelayed: 10\n"); err != nil || *b != (record.Budget{Dropped: 3, Delayed: 10}) {
		t.Errorf("%+v, %v", b, err)
	}
	for _, bad := range []string{"droped: 3\n", "dropped: -1\n", "dropped: 1.5\n", "dropped: [", "dropped: 1\ndropped: 2\n"} {
		if b, err := load(bad); err == nil {
			t.Errorf("%q was read as %+v", bad, b)
		}
	}
	if _, err := LoadBudget(t.Context(), filepath.Join(t.TempDir(), "none.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file gave %v", err)
	}
}
