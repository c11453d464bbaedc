package record

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Options say what is recorded, and where to.
type Options struct {
	File      string        // of the timeline; it must not be there. FILE.part is its name while it is written
	For       time.Duration // from when all is listed; 0 for until the context ends
	Anonymous bool          // names, addresses and node ports are replaced by others
	Begun     func()        // is called when all is listed; may be nil
	// Now is the time since any; nil for the machine's clock.
	Now func() time.Duration
	// Pause is what a watch that fails is begun again after, growing with each time; 0 for 800 ms.
	Pause time.Duration
}

// mostAttempts is how many attempts a replay of a recording makes on a lane, as far as its rate decides: a quarter of those that the record
// of a run has room for.
const mostAttempts = 1_000_000

// unknownRate is for a recording whose length nobody knows when it begins: it has room for four days.
const unknownRate = 10

// rateFor is the rate, in attempts a second, that suits a recording of this length; 0 is an unknown one.
func rateFor(length time.Duration) float64 {
	if length == 0 {
		return unknownRate
	}
	rate := 100.0
	for _, lower := range []float64{50, 20, 10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01} {
		if rate*length.Seconds() > mostAttempts {
			rate = lower
		}
	}
	return rate
}

// listWithin is how long the first lists may take.
const listWithin = 5 * time.Minute

// Record follows a cluster until the time is over or ctx ends, and then ends the timeline. It returns what is in it. With an
// error after the recording has begun there is a whole timeline all the same, until then: but for errors of writing it,
// which leave FILE.part cut off.
func Record(ctx context.Context, client kubernetes.Interface, o Options) (Summary, error) {
	if err := ask(ctx, client); err != nil {
		return Summary{}, err
	}
	file, err := create(o.File)
	if err != nil {
		return Summary{}, err
	}
	if o.Now == nil {
		begin := time.Now()
		o.Now = func() time.Duration { return time.Since(begin) }
	}
	if o.Pause == 0 {
		o.Pause = 800 * time.Millisecond
	}
	s := newScribe(file, o.Now, o.Anonymous)
	s.rate = rateFor(o.For)
	inner, stop := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() { defer close(over); follow(inner, client, s, o.Pause) }()
	err = s.wait(ctx, o)
	stop()
	<-over
	if !s.hasBegun() {
		return Summary{}, errors.Join(err, file.discard())
	}
	summary, writing := s.end()
	if writing != nil {
		return summary, errors.Join(writing, file.abandon())
	}
	return summary, errors.Join(err, file.finish())
}

// ask sees that everything can be listed, before anything is made.
func ask(ctx context.Context, client kubernetes.Interface) error {
	for _, from := range sources(client) {
		if _, err := from.list(ctx, metav1.ListOptions{Limit: 1}); err != nil {
			return fmt.Errorf("listing %ss: %w", from.kind, err)
		}
	}
	return nil
}

// wait waits for the end of the recording. The end of ctx is a good one once it has begun.
func (s *scribe) wait(ctx context.Context, o Options) error {
	lists := time.NewTimer(listWithin)
	defer lists.Stop()
	select {
	case <-s.begun:
	case <-s.failed:
		return nil // end tells
	case <-s.stop:
		return s.why()
	case <-ctx.Done():
		return ctx.Err()
	case <-lists.C:
		return fmt.Errorf("the API server did not list all Services, EndpointSlices, Nodes and Pods within %s", listWithin)
	}
	if o.Begun != nil {
		o.Begun()
	}
	var length <-chan time.Time
	if o.For > 0 {
		timer := time.NewTimer(o.For)
		defer timer.Stop()
		length = timer.C
	}
	select {
	case <-length:
	case <-ctx.Done():
	case <-s.failed:
	case <-s.stop:
		return s.why()
	}
	return nil
}

func (s *scribe) hasBegun() bool { return !s.given() }

// why is why the recording cannot go on.
func (s *scribe) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}
