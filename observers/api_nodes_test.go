package observers

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/hitless/hitless/record"
)

func nodeWith(ready corev1.ConditionStatus, cordoned bool) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{Unschedulable: cordoned},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
}

func TestNodeChanges(t *testing.T) {
	good, gone := nodeWith(corev1.ConditionTrue, false), (*corev1.Node)(nil)
	for name, c := range map[string]struct {
		before, after *corev1.Node
		want          []string
	}{
		"a good node appears": {gone, good, nil},
		"a bad node appears":  {gone, nodeWith(corev1.ConditionUnknown, true), []string{"unready", "cordoned"}},
		"nothing":             {good, good, nil},
		"heartbeats end":      {good, nodeWith(corev1.ConditionUnknown, false), []string{"unready"}},
		"all is well again":   {nodeWith(corev1.ConditionFalse, true), good, []string{"ready", "uncordoned"}},
		"it is removed":       {good, gone, []string{"removed"}},
	} {
		var got []string
		for _, e := range nodeChanges(c.before, c.after) {
			got = append(got, string(e.Body.(record.Node).State))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// Events about other objects, and those of before, are not recorded.
func TestEventsAboutTheObjectsOfAWatch(t *testing.T) {
	event := func(name, about string, at time.Time) *corev1.Event {
		return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}, LastTimestamp: metav1.NewTime(at), Type: corev1.EventTypeWarning,
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: about}, Reason: "Unhealthy", Message: "probe\nfailed"}
	}
	now := time.Now()
	client := fake.NewClientset(event("old", "web-1", now.Add(-time.Hour)), event("other", "db-1", now.Add(time.Hour)), event("new", "web-1", now.Add(time.Hour)))
	recorder := eventChannel{events: make(chan record.Event, 3)}
	about := func(r corev1.ObjectReference) bool { return r.Name == "web-1" }
	go func() {
		_ = WatchEvents(t.Context(), client, "shop", about, recorder, func() time.Duration { return time.Second })
	}()
	if e := <-recorder.events; e.Text != "pod web-1: Unhealthy: probe failed" || e.Body.(record.Log).Level != "warning" {
		t.Errorf("recorded %+v", e)
	}
	if len(recorder.events) > 0 {
		t.Errorf("recorded %+v as well", <-recorder.events)
	}
}
