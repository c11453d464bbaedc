package analysis

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// A flow moves where another pod begins to answer. Answers without a pod move nothing, and a pod that was unready in the scenario may be left.
func TestMovesOfAFlow(t *testing.T) {
	const first, second, third = recordtest.ScenarioAt - 5*time.Second, recordtest.ScenarioAt + 10*time.Second, recordtest.ScenarioAt + 20*time.Second
	lab := recordtest.Rollout{Seed: 1, Fallback: true, Rollouts: 1}.Lab()
	lab.Event(third-time.Second, record.KindPod, "node-2", "c", "unready", "state", "unready", "pod", "c", "node", "node-2")
	lab.Probe(recordtest.Lane{ID: 10, Name: "flow", Target: recordtest.WebAddress, Rate: 1, From: recordtest.BaselineAt, To: recordtest.ScenarioAt + 40*time.Second,
		Protocol: record.ProtocolSticky})
	for i := range lab.Attempts {
		a := &lab.Attempts[i]
		switch at := a.Intended; {
		case at > second-3*time.Second && at < second:
			a.Backend = ""
		case at < first:
			a.Backend = "a"
		case at < second:
			a.Backend = "b"
		case at < third:
			a.Backend = "c"
		default:
			a.Backend = "d"
		}
	}
	a, err := New(lab.Write(t))
	if err != nil {
		t.Fatal(err)
	}
	got := a.Moves(a.Measured()[0])
	for i := range got {
		got[i].At = got[i].At.Truncate(time.Second)
	}
	want := []Move{{first, "a", "b", true}, {second, "b", "c", true}, {third, "c", "d", false}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("moves (-want +got):\n%s", diff)
	}
}
