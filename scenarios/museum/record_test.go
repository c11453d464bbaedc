package museum

import (
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// Answers tell which address of the client a pod saw, and from when on.
func TestAnswersHaveTheClientThatThePodSaw(t *testing.T) {
	run := newRun(k8s92019())
	run.masquerade = 30 * time.Second
	seen := map[string]int{}
	for _, a := range run.record(t).Answers {
		if a.Protocol != record.ProtocolNew {
			continue
		}
		seen[a.Client] += a.Count
		if a.Client == record.ClientUnchanged && a.Last >= run.masquerade || a.Client == "10.0.0.2" && a.First < run.masquerade {
			t.Errorf("%+v, although nodes masquerade from %s on", a, run.masquerade)
		}
	}
	if len(seen) != 2 || seen[record.ClientUnchanged] == 0 || seen["10.0.0.2"] == 0 {
		t.Errorf("answers by the client that the pod saw: %v", seen)
	}
}
