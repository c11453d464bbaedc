// Package evidence watches what the Kubernetes API tells while a run lasts, and records it as events. The lab and live clusters
// share it, so that a report names the same causes in both. It changes nothing in a cluster.
package evidence

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/hitless/hitless/reports"
)

// Endpoints records each change of an endpoint's state in the EndpointSlices of a namespace (all of them when it is empty), as
// the API tells it, until ctx ends.
func Endpoints(ctx context.Context, client kubernetes.Interface, namespace string, record reports.Recorder, now func() time.Duration) error {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	informer := factory.Discovery().V1().EndpointSlices().Informer()
	change := func(before, after *discoveryv1.EndpointSlice) {
		for _, e := range endpointChanges(before, after) {
			e.At = now()
			record.Event(e)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { change(nil, slice(o)) },
		UpdateFunc: func(o, n any) { change(slice(o), slice(n)) },
		DeleteFunc: func(o any) { change(slice(o), nil) },
	})
	if err != nil {
		return fmt.Errorf("watching endpoint slices: %w", err)
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}

func slice(o any) *discoveryv1.EndpointSlice {
	if gone, is := o.(cache.DeletedFinalStateUnknown); is {
		o = gone.Obj
	}
	s, _ := o.(*discoveryv1.EndpointSlice)
	return s
}

// endpointChanges are the events that lead from one state of a slice to another; nil is no slice.
func endpointChanges(before, after *discoveryv1.EndpointSlice) []reports.Event {
	old, current := endpointStates(before), endpointStates(after)
	var events []reports.Event
	for address, e := range current {
		if was, had := old[address]; !had || was.state != e.state {
			events = append(events, endpointEvent(after, address, e, e.state))
		}
	}
	for address, e := range old {
		if _, has := current[address]; !has {
			events = append(events, endpointEvent(before, address, e, "removed"))
		}
	}
	slices.SortFunc(events, func(a, b reports.Event) int { return strings.Compare(a.Attrs["address"], b.Attrs["address"]) })
	return events
}

type endpointState struct{ state, node, pod string }

func endpointStates(s *discoveryv1.EndpointSlice) map[string]endpointState {
	states := map[string]endpointState{}
	if s == nil {
		return states
	}
	for _, e := range s.Endpoints {
		is := func(condition *bool, otherwise bool) bool {
			if condition == nil {
				return otherwise
			}
			return *condition
		}
		ready := is(e.Conditions.Ready, true)
		serving, terminating := is(e.Conditions.Serving, ready), is(e.Conditions.Terminating, false)
		state := endpointState{state: "unready"}
		switch {
		case ready:
			state.state = "ready"
		case terminating && serving:
			state.state = "serving-terminating"
		case terminating:
			state.state = "terminating"
		}
		if e.NodeName != nil {
			state.node = *e.NodeName
		}
		if e.TargetRef != nil {
			state.pod = e.TargetRef.Name
		}
		for _, address := range e.Addresses {
			states[address] = state
		}
	}
	return states
}

func endpointEvent(s *discoveryv1.EndpointSlice, address string, e endpointState, state string) reports.Event {
	service := s.Labels[discoveryv1.LabelServiceName]
	return reports.Event{Kind: reports.EventEndpoint, Node: e.node, Object: e.pod,
		Text:  fmt.Sprintf("endpoint %s (%s) of %s is %s", address, e.pod, service, state),
		Attrs: map[string]string{"service": service, "address": address, "pod": e.pod, "state": state}}
}
