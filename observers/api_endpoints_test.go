package observers

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/record"
)

func endpointOf(address string, ready, serving, terminating bool) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{address},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating}}
}

// ofPod gives an endpoint its pod.
func ofPod(pod string, e discoveryv1.Endpoint) discoveryv1.Endpoint {
	e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: pod}
	return e
}

func sliceOf(name string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}, Endpoints: endpoints}
}

// endpointSteps returns the events of one update after the other: address, pod if it has one, and state. An update replaces the slice of its
// name; one without endpoints deletes it.
func endpointSteps(updates ...*discoveryv1.EndpointSlice) (all []string) {
	table, now := newEndpointTable(), map[string]*discoveryv1.EndpointSlice{}
	for _, next := range updates {
		name, was := next.Name, now[next.Name]
		if len(next.Endpoints) == 0 {
			next = nil
		}
		now[name] = next
		for _, e := range table.changes(was, next) {
			endpoint := e.Body.(record.Endpoint)
			all = append(all, strings.Join(strings.Fields(endpoint.Address+" "+endpoint.Pod+" "+string(endpoint.State)), " "))
		}
		all = append(all, "-")
	}
	return all
}

func TestEndpointChanges(t *testing.T) {
	before := sliceOf("web-1", endpointOf("10.0.0.1", true, true, false), endpointOf("10.0.0.2", true, true, false), endpointOf("10.0.0.3", false, true, true))
	after := sliceOf("web-1", endpointOf("10.0.0.2", true, true, false), endpointOf("10.0.0.3", false, false, true), endpointOf("10.0.0.4", false, false, false))
	want := []string{"10.0.0.1 ready", "10.0.0.2 ready", "10.0.0.3 serving-terminating", "-", "10.0.0.1 removed", "10.0.0.3 terminating", "10.0.0.4 unready", "-", "-"}
	if diff := cmp.Diff(want, endpointSteps(before, after, after)); diff != "" {
		t.Error(diff)
	}
}

// An address that moves between two slices of its Service serves all the time. Its state is that of the slice that changed last.
func TestEndpointMovesBetweenSlices(t *testing.T) {
	ready, unready := endpointOf("10.0.0.1", true, true, false), endpointOf("10.0.0.1", false, false, false)
	for name, c := range map[string]struct {
		updates []*discoveryv1.EndpointSlice
		want    []string
	}{
		"in both for a while": {[]*discoveryv1.EndpointSlice{sliceOf("a", ready), sliceOf("b", ready), sliceOf("a")}, []string{"10.0.0.1 ready", "-", "-", "-"}},
		"then removed": {[]*discoveryv1.EndpointSlice{sliceOf("a", ready), sliceOf("b", ready), sliceOf("a"), sliceOf("b")},
			[]string{"10.0.0.1 ready", "-", "-", "-", "10.0.0.1 removed", "-"}},
		"in none for a moment": {[]*discoveryv1.EndpointSlice{sliceOf("a", ready), sliceOf("a"), sliceOf("b", ready)},
			[]string{"10.0.0.1 ready", "-", "10.0.0.1 removed", "-", "10.0.0.1 ready", "-"}},
		"and changes": {[]*discoveryv1.EndpointSlice{sliceOf("a", ready), sliceOf("b", unready), sliceOf("a")}, []string{"10.0.0.1 ready", "-", "10.0.0.1 unready", "-", "-"}},
		"and back": {[]*discoveryv1.EndpointSlice{sliceOf("a", ready), sliceOf("b", unready), sliceOf("b")},
			[]string{"10.0.0.1 ready", "-", "10.0.0.1 unready", "-", "10.0.0.1 ready", "-"}},
	} {
		if diff := cmp.Diff(c.want, endpointSteps(c.updates...)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// An address that another pod has after one update was removed, and belongs to the new pod.
func TestEndpointOfAnotherPod(t *testing.T) {
	at := endpointOf("10.0.0.1", true, true, false)
	want := []string{"10.0.0.1 web-1 ready", "-", "10.0.0.1 web-1 removed", "10.0.0.1 web-2 ready", "-"}
	if diff := cmp.Diff(want, endpointSteps(sliceOf("a", ofPod("web-1", at)), sliceOf("a", ofPod("web-2", at)))); diff != "" {
		t.Error(diff)
	}
}
