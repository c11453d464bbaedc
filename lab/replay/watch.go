package replay

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

// watch is an open watch. An idle one blocks on channels with at most one timer, its timeout. It sends no periodic
// bookmarks (the real server sends one a minute), only one at its timeout, so that the client can resume.
type watch struct {
	*request
	server    *Server
	client    client
	sel       selection
	bookmarks bool
	initial   bool   // send the stored objects first
	endMark   bool   // and then a bookmark
	sent      uint64 // events up to this version have been sent or do not match

	wake chan struct{} // capacity 1; events may be pending
	cut  chan struct{} // closed by a fault that cuts the watch

	w       http.ResponseWriter
	timeout <-chan time.Time
}

// ending is the reason of a clean end of a watch.
type ending int

const (
	running ending = iota
	cutOff         // closed by the client, a fault or the end of the server
	timedOut
)

// notify makes the watch check for events. It does not block.
func (w *watch) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// serveWatch serves a watch until it ends. As in the real server's watch cache, errors about the resource version are
// an ERROR event in a stream with status 200.
func (s *Server) serveWatch(rw http.ResponseWriter, q *request, opts metav1.ListOptions, sel selection) error {
	if err := checkWatch(opts); err != nil {
		return err
	}
	from, err := parseVersion(opts.ResourceVersion)
	if err != nil {
		return err
	}
	asked := opts.SendInitialEvents
	w := &watch{
		request: q, server: s, client: clientOf(q.Request), sel: sel, bookmarks: opts.AllowWatchBookmarks,
		initial: asked != nil && *asked || asked == nil && from == 0,
		endMark: asked != nil && *asked && opts.AllowWatchBookmarks,
		wake:    make(chan struct{}, 1), cut: make(chan struct{}), w: rw,
	}
	if opts.TimeoutSeconds != nil && *opts.TimeoutSeconds > 0 {
		timer := time.NewTimer(time.Duration(*opts.TimeoutSeconds) * time.Second)
		defer timer.Stop()
		w.timeout = timer.C
	}
	present, err := s.subscribe(w, from)
	defer s.unsubscribe(w)
	w.begin()
	if err == nil {
		err = w.run(present)
	}
	if err != nil {
		w.fail(err)
	}
	return nil
}

// subscribe adds the watch and returns its initial objects. From then on it is notified of every change.
func (s *Server) subscribe(w *watch, from uint64) ([]*object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.expires(w) {
		return nil, apierrors.NewResourceExpired("the watch was expired by a fault of the replay control plane")
	}
	if from > s.version {
		return nil, tooLarge(from, s.version)
	}
	w.store.watches = append(w.store.watches, w)
	if s.isAway(w.client) { // since the request came in
		w.end()
	}
	w.sent = from
	if w.initial || from == 0 {
		w.sent = s.version
	}
	if w.initial {
		return w.store.sorted(), nil
	}
	return nil, nil
}

func (s *Server) unsubscribe(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.store.watches = slices.DeleteFunc(w.store.watches, func(other *watch) bool { return other == w })
}

// pending returns the unsent events and the version up to which they are complete.
func (s *Server) pending(w *watch) ([]event, uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := w.store
	if w.sent < st.dropped {
		return nil, 0, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", w.sent, st.dropped))
	}
	first, _ := slices.BinarySearchFunc(st.events, w.sent+1, func(e event, v uint64) int {
		return cmp.Compare(e.version, v)
	})
	return slices.Clone(st.events[first:]), s.version, nil
}

func (w *watch) begin() {
	media := w.media
	if media == protobufType {
		media += ";stream=watch"
	}
	w.w.Header().Set("Content-Type", media)
	w.w.Header().Set("Cache-Control", "no-cache, private")
	w.w.WriteHeader(http.StatusOK)
	w.flush()
}

// run sends the initial objects and then events until the watch ends. It returns an error for the client.
func (w *watch) run(present []*object) error {
	for _, o := range present {
		if w.sel.matches(o) {
			w.sendObject(apiwatch.Added, o)
		}
	}
	if w.endMark {
		w.bookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	for {
		events, upTo, err := w.server.pending(w)
		if err != nil {
			return err
		}
		end := w.deliver(events)
		if end == running {
			w.sent = upTo
			w.flush()
			if len(events) > 0 {
				continue // other events may have come during a delay, which consumes their wake-up
			}
			end = w.wait(nil)
		}
		switch end {
		case timedOut:
			if w.bookmarks {
				w.bookmark(nil)
			}
			return nil
		case cutOff:
			return nil
		}
	}
}

// deliver sends events in order, each after its delay.
func (w *watch) deliver(events []event) ending {
	for _, e := range events {
		for {
			left := time.Until(e.at.Add(w.server.delay(w)))
			if left <= 0 {
				break
			}
			w.flush()
			timer := time.NewTimer(left)
			end := w.wait(timer.C)
			timer.Stop()
			if end != running {
				return end
			}
		}
		w.show(e)
		w.sent = e.version
	}
	return running
}

// wait blocks until events may be pending, the timer fires or the watch ends.
func (w *watch) wait(timer <-chan time.Time) ending {
	select {
	case <-w.cut:
		return cutOff
	case <-w.Context().Done():
		return cutOff
	default:
	}
	select {
	case <-w.wake:
	case <-timer:
	case <-w.cut:
		return cutOff
	case <-w.Context().Done():
		return cutOff
	case <-w.timeout:
		return timedOut
	}
	return running
}

// show sends an event as seen through the selection: an object that starts to match is ADDED, one that stops to match
// is DELETED (with its last matching state, at the version of the change).
func (w *watch) show(e event) {
	var kind apiwatch.EventType
	o := e.new
	switch before, after := w.sel.matches(e.old), w.sel.matches(e.new); {
	case after && before:
		kind = apiwatch.Modified
	case after:
		kind = apiwatch.Added
	case before:
		kind, o = apiwatch.Deleted, e.old.at(w.store.resource, e.version)
	default:
		return
	}
	ref := Ref{Kind: w.store.kind, Namespace: o.key.namespace, Name: o.key.name}
	if !w.server.loses(w, e.version, func() string { return string(kind) + " " + ref.String() }) {
		w.sendObject(kind, o)
	}
}

// bookmark sends the version up to which the client has all events.
func (w *watch) bookmark(annotations map[string]string) {
	metadata := map[string]any{"resourceVersion": fmt.Sprint(w.sent)}
	if annotations != nil {
		metadata["annotations"] = annotations
	}
	gvk := w.shownAs()
	data, err := json.Marshal(map[string]any{
		"kind": gvk.Kind, "apiVersion": gvk.GroupVersion().String(), "metadata": metadata,
	})
	if err != nil { // cannot happen: strings only
		return
	}
	w.send(apiwatch.Bookmark, data)
	w.flush()
}

// fail ends the stream with an ERROR event.
func (w *watch) fail(err error) {
	data, err := json.Marshal(statusOf(err))
	if err != nil { // cannot happen: a Status holds only strings and numbers
		return
	}
	w.send(apiwatch.Error, data)
	w.flush()
}

func (w *watch) sendObject(kind apiwatch.EventType, o *object) {
	if w.partial {
		w.write(kind, o.partialJSON(), nil)
		return
	}
	data, err := o.encoded(w.store.resource, w.version, w.media)
	w.write(kind, data, err)
}

// send writes an event with an object in JSON.
func (w *watch) send(kind apiwatch.EventType, object []byte) {
	data, err := encode(w.media, object)
	w.write(kind, data, err)
}

// write writes an event with an object in the media type, or the error of its encoding. Write errors are ignored: they
// end the request's context.
func (w *watch) write(kind apiwatch.EventType, object []byte, err error) {
	var data []byte
	if err == nil {
		data, err = frame(w.media, string(kind), object)
	}
	switch {
	case err == nil:
		_, _ = w.w.Write(data)
	case kind != apiwatch.Error: // a field that today's types cannot carry in protobuf: the client cannot go on
		w.fail(err)
		w.server.mu.Lock()
		w.end()
		w.server.mu.Unlock()
	}
}

func (w *watch) flush() { _ = http.NewResponseController(w.w).Flush() }
