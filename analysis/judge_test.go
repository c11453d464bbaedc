package analysis

import (
	"reflect"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

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
	if !reflect.DeepEqual(h.Run.Budget, record.Budget{}) {
		t.Errorf("the budget of the history became %+v", h.Run.Budget)
	}
}
