// Package recording writes a timeline of the Services, EndpointSlices, Nodes and Pods of a live cluster and of their changes, so that
// a replay in the lab makes the same changes for any proxy.
//
// A recording keeps what proxies use and nothing else. fields.go names each field that is kept, so no annotation, environment,
// command, image or secret enters a recording, whatever later versions of Kubernetes add.
package recording

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Options are the options of a recording.
type Options struct {
	File      string        // of the timeline; it must not exist. Its name is FILE.part until it is complete
	For       time.Duration // counted from the first complete list; 0 for until the context ends
	Anonymous bool          // replaces names, addresses and node ports
	Started   func()        // is called after the first complete list; may be nil
	// Asking is called before the first request, with the server and Patience; may be nil.
	Asking func(server string, patience time.Duration)
	// Patience is how long the API server may take to answer the first requests; 0 for 15 s.
	Patience time.Duration
	// Now is a clock with any origin; nil for the machine's clock.
	Now func() time.Duration
	// Pause is the delay before a failed watch is restarted, which grows with each failure; 0 for 800 ms.
	Pause time.Duration
}

// maxAttempts limits the attempts of a replay on a lane, by the rate of the recording: a quarter of what the record of a run can store.
const maxAttempts = 1_000_000

// unknownRate is the rate of a recording of unknown length, in attempts per second; four days fit into a record.
const unknownRate = 10

// rateFor is the rate in attempts per second for a recording of this length; 0 is an unknown length.
func rateFor(length time.Duration) float64 {
	if length == 0 {
		return unknownRate
	}
	rate := 100.0
	for _, lower := range []float64{50, 20, 10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01} {
		if rate*length.Seconds() > maxAttempts {
			rate = lower
		}
	}
	return rate
}

// listTimeout limits the first lists.
const listTimeout = 5 * time.Minute

// Record records a cluster for Options.For or until ctx ends, and then completes the timeline. After an error it completes the
// timeline up to the error, but an error of writing leaves an incomplete FILE.part.
func Record(ctx context.Context, client kubernetes.Interface, o Options) (Summary, error) {
	if err := checkLists(ctx, client, cmp.Or(o.Patience, DefaultPatience)); err != nil {
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
	s := newTimelineWriter(file, o.Now, o.Anonymous)
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

// DefaultPatience is how long the API server may take to answer the first requests.
const DefaultPatience = 15 * time.Second

// checkLists checks that all kinds can be listed, before it creates a file.
func checkLists(ctx context.Context, client kubernetes.Interface, patience time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, from := range sources(client) {
		_, err := from.list(limited, metav1.ListOptions{Limit: 1})
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("listing %ss: %w", from.kind, context.Cause(ctx))
		case err != nil && limited.Err() != nil:
			return fmt.Errorf("listing %ss: no answer within %s: %w", from.kind, patience, err)
		case err != nil:
			return fmt.Errorf("listing %ss: %w", from.kind, err)
		}
	}
	return nil
}

// wait waits for the end of the recording. The end of ctx is no error after the first complete list.
func (s *timelineWriter) wait(ctx context.Context, o Options) error {
	lists := time.NewTimer(listTimeout)
	defer lists.Stop()
	select {
	case <-s.begun:
	case <-s.failed:
		return nil // end returns the error
	case <-s.stop:
		return s.refusal()
	case <-ctx.Done():
		return ctx.Err()
	case <-lists.C:
		return fmt.Errorf("the API server did not list all Services, EndpointSlices, Nodes and Pods within %s", listTimeout)
	}
	if o.Started != nil {
		o.Started()
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
		return s.refusal()
	}
	return nil
}

// refusal is the error that ended the watches.
func (s *timelineWriter) refusal() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}
