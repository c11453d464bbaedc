package observers

import (
	"cmp"
	"context"
	"fmt"
	"maps"
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
	return changesOf("endpoint slices", informer, newEndpointTable().changes)(ctx, client, namespace, recorder, now)
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

// endpointTable has the endpoints of all slices. An address that moves from one slice of its Service to another is in both for a while.
type endpointTable struct {
	slices map[endpointKey]map[string]endpointState // by the slices that have it
	told   map[endpointKey]endpointState            // as the record has it
}

type endpointKey struct{ namespace, service, address string }

type endpointState struct {
	state     record.EndpointState
	node, pod string
}

func newEndpointTable() *endpointTable {
	return &endpointTable{slices: map[endpointKey]map[string]endpointState{}, told: map[endpointKey]endpointState{}}
}

// changes returns the events between two versions of a slice; nil stands for a slice that does not exist.
func (t *endpointTable) changes(before, after *discoveryv1.EndpointSlice) (events []record.Event) {
	name := cmp.Or(after, before).Name
	old, current := endpointStates(before), endpointStates(after)
	all := maps.Clone(old)
	maps.Copy(all, current)
	for _, k := range slices.SortedFunc(maps.Keys(all), func(a, b endpointKey) int { return strings.Compare(a.address, b.address) }) {
		was, had := old[k]
		is, has := current[k]
		if had == has && was == is {
			continue
		}
		if has {
			t.put(k, name, is)
		} else {
			delete(t.slices[k], name)
			is, has = t.elsewhere(k)
		}
		events = append(events, t.tell(k, is, has)...)
	}
	return events
}

func (t *endpointTable) put(k endpointKey, slice string, e endpointState) {
	if t.slices[k] == nil {
		t.slices[k] = map[string]endpointState{}
	}
	t.slices[k][slice] = e
}

// elsewhere returns an endpoint by the first of the slices that have it.
func (t *endpointTable) elsewhere(k endpointKey) (endpointState, bool) {
	if len(t.slices[k]) == 0 {
		delete(t.slices, k)
		return endpointState{}, false
	}
	return t.slices[k][slices.Min(slices.Collect(maps.Keys(t.slices[k])))], true
}

// tell returns the events from what the record has of an endpoint to what it is now. An address that another pod has now was removed before.
func (t *endpointTable) tell(k endpointKey, now endpointState, exists bool) (events []record.Event) {
	told, known := t.told[k]
	if known && (!exists || told.pod != now.pod) {
		events = append(events, endpointEvent(k, told, record.EndpointRemoved))
	}
	if !exists {
		delete(t.told, k)
		return events
	}
	t.told[k] = now
	if !known || told.pod != now.pod || told.state != now.state {
		events = append(events, endpointEvent(k, now, now.state))
	}
	return events
}

func endpointStates(s *discoveryv1.EndpointSlice) map[endpointKey]endpointState {
	states := map[endpointKey]endpointState{}
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
			states[endpointKey{s.Namespace, s.Labels[discoveryv1.LabelServiceName], address}] = state
		}
	}
	return states
}

// conditionState applies the API's defaults: an absent ready means true, and an absent serving equals ready.
func conditionState(c discoveryv1.EndpointConditions) record.EndpointState {
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
		return record.EndpointReady
	case terminating && serving:
		return record.EndpointServingTerminating
	case terminating:
		return record.EndpointTerminating
	}
	return record.EndpointUnready
}

func endpointEvent(k endpointKey, e endpointState, state record.EndpointState) record.Event {
	return record.Event{Node: e.node, Object: e.pod,
		Text: fmt.Sprintf("endpoint %s (%s) of %s is %s", k.address, e.pod, k.service, state),
		Body: record.Endpoint{Service: k.service, Address: k.address, Pod: e.pod, State: state}}
}
