package observers

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

	"github.com/hitless/hitless/record"
)

// WatchEndpoints records each change of an endpoint's state in the EndpointSlices of a namespace (empty for all namespaces),
// until ctx ends. It returns an error only when the watch cannot be set up.
func WatchEndpoints(ctx context.Context, client kubernetes.Interface, namespace string, recorder record.Recorder, now func() time.Duration) error {
	informer := func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
		return f.Discovery().V1().EndpointSlices().Informer()
	}
	return changesOf("endpoint slices", informer, endpointChanges)(ctx, client, namespace, recorder, now)
}

// watch calls changed with each two versions of an object until ctx ends; nil stands for an object that does not exist.
func watch[T any](ctx context.Context, factory informers.SharedInformerFactory, informer cache.SharedIndexInformer, changed func(before, after *T)) error {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { changed(nil, object[T](o)) },
		UpdateFunc: func(o, n any) { changed(object[T](o), object[T](n)) },
		DeleteFunc: func(o any) { changed(object[T](o), nil) },
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}

// object unwraps the last known version of a deleted object.
func object[T any](o any) *T {
	if gone, is := o.(cache.DeletedFinalStateUnknown); is {
		o = gone.Obj
	}
	t, _ := o.(*T)
	return t
}

// endpointChanges returns the events between two versions of a slice; nil stands for a slice that does not exist.
func endpointChanges(before, after *discoveryv1.EndpointSlice) []record.Event {
	old, current := endpointStates(before), endpointStates(after)
	var events []record.Event
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
	slices.SortFunc(events, func(a, b record.Event) int {
		return strings.Compare(a.Body.(record.Endpoint).Address, b.Body.(record.Endpoint).Address)
	})
	return events
}

type endpointState struct{ state, node, pod string }

func endpointStates(s *discoveryv1.EndpointSlice) map[string]endpointState {
	states := map[string]endpointState{}
	if s == nil {
		return states
	}
	for _, e := range s.Endpoints {
		state := endpointState{state: conditionState(e.Conditions)}
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

// conditionState applies the API's defaults: an absent ready means true, and an absent serving equals ready.
func conditionState(c discoveryv1.EndpointConditions) string {
	is := func(condition *bool, otherwise bool) bool {
		if condition == nil {
			return otherwise
		}
		return *condition
	}
	ready := is(c.Ready, true)
	serving, terminating := is(c.Serving, ready), is(c.Terminating, false)
	switch {
	case ready:
		return "ready"
	case terminating && serving:
		return "serving-terminating"
	case terminating:
		return "terminating"
	}
	return "unready"
}

func endpointEvent(s *discoveryv1.EndpointSlice, address string, e endpointState, state string) record.Event {
	service := s.Labels[discoveryv1.LabelServiceName]
	return record.Event{Node: e.node, Object: e.pod,
		Text: fmt.Sprintf("endpoint %s (%s) of %s is %s", address, e.pod, service, state),
		Body: record.Endpoint{Service: service, Address: address, Pod: e.pod, State: state}}
}
