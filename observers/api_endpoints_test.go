package observers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hitless/hitless/record"
	discoveryv1 "k8s.io/api/discovery/v1"
)

func endpointOf(address string, ready, serving, terminating bool) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{address},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating}}
}

func TestEndpointChanges(t *testing.T) {
	slice := func(endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{Endpoints: endpoints}
	}
	before := slice(endpointOf("10.0.0.1", true, true, false), endpointOf("10.0.0.2", true, true, false), endpointOf("10.0.0.3", false, true, true))
	after := slice(endpointOf("10.0.0.2", true, true, false), endpointOf("10.0.0.3", false, false, true), endpointOf("10.0.0.4", false, false, false))
	var got []string
	for _, e := range endpointChanges(before, after) {
		endpoint := e.Body.(record.Endpoint)
		got = append(got, endpoint.Address+" "+endpoint.State)
	}
	want := []string{"10.0.0.1 removed", "10.0.0.3 terminating", "10.0.0.4 unready"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if changes := endpointChanges(after, after); len(changes) != 0 {
		t.Errorf("no change gave the events %v", changes)
	}
}
