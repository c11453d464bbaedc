package observers

import (
	"context"
	"errors"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/hitless/hitless/record"
)

// eventChannel is a recorder of events alone.
type eventChannel struct {
	record.Recorder
	events chan record.Event
}

func (c eventChannel) Event(e record.Event) { c.events <- e }

// WatchAPI records what exists when it starts, with the time of the run, until its context ends.
func TestWatchAPIRecordsEndpoints(t *testing.T) {
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: "run"}, Endpoints: []discoveryv1.Endpoint{endpointOf("10.0.0.1", true, true, false)}}
	recorder := eventChannel{events: make(chan record.Event, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() {
		over <- WatchAPI(ctx, fake.NewClientset(slice), "run", recorder, func() time.Duration { return 7 * time.Second })
	}()
	if e := <-recorder.events; e.Kind() != record.KindEndpoint || e.At != 7*time.Second {
		t.Errorf("recorded %+v", e)
	}
	cancel()
	if err := <-over; err != nil {
		t.Errorf("the end of the context gave %v", err)
	}
}

// A watch that cannot be set up ends the others, and its error is returned.
func TestWatchAPIReturnsTheErrorOfAnyWatch(t *testing.T) {
	watches := apiWatches
	defer func() { apiWatches = watches }()
	broken := errors.New("no such informer")
	apiWatches = append(apiWatches[:1:1], func(context.Context, kubernetes.Interface, string, record.Recorder, func() time.Duration) error {
		return broken
	})
	if err := WatchAPI(t.Context(), fake.NewClientset(), "", eventChannel{}, nil); !errors.Is(err, broken) {
		t.Errorf("the error is %v, want %v", err, broken)
	}
}
