package record

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/scenarios/timeline"
)

// ref names an object in the cluster.
type ref struct{ kind, namespace, name string }

func (r ref) compare(other ref) int {
	return cmp.Or(cmp.Compare(slices.Index(kinds, r.kind), slices.Index(kinds, other.kind)), strings.Compare(r.namespace, other.namespace), strings.Compare(r.name, other.name))
}

// known is what a recording has of an object.
type known struct {
	uid     types.UID
	shown   string            // the object as timelines name it
	sum     [sha256.Size]byte // of what was written last
	status  bool              // the status was written, so that an empty one has to be as well
	leaving bool              // its deletion has begun
}

// scribe writes a timeline of what it is told of objects. Until every kind has been listed once it gathers what is there,
// which then becomes what is given. Its methods are safe for concurrent use; the first error of writing stays.
type scribe struct {
	mu     sync.Mutex
	out    io.Writer
	now    func() time.Duration // since any time
	names  *names               // nil to leave them as they are
	rate   float64              // attempts a second that the timeline says; the format's own when 0
	listed map[string]bool
	early  map[ref]any // before all kinds are listed
	known  map[ref]*known
	origin time.Duration
	last   time.Duration
	counts Summary
	err    error
	begun  chan struct{} // closed when all kinds are listed
	failed chan struct{} // closed at the first error of writing

	refused  error         // why the cluster cannot be followed any more
	stop     chan struct{} // closed when refused is set
	stopOnce sync.Once
}

func newScribe(out io.Writer, now func() time.Duration, anonymous bool) *scribe {
	s := &scribe{out: out, now: now, listed: map[string]bool{}, early: map[ref]any{}, known: map[ref]*known{},
		begun: make(chan struct{}), failed: make(chan struct{}), stop: make(chan struct{})}
	if anonymous {
		s.names = newNames()
	}
	return s
}

// list says what there is of a kind: all that is not among it is gone.
func (s *scribe) list(kind string, objects []any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	there := map[ref]any{}
	for _, o := range objects {
		there[refOf(kind, o)] = o
	}
	if !s.listed[kind] {
		maps.Copy(s.early, there)
		if s.listed[kind] = true; len(s.listed) == len(kinds) {
			s.begin()
		}
		return
	}
	for _, r := range s.missing(kind, there) {
		s.gone(r)
	}
	for _, r := range slices.SortedFunc(maps.Keys(there), ref.compare) {
		s.set(r, there[r])
	}
}

// missing are the known objects of a kind that are not there, in order.
func (s *scribe) missing(kind string, there map[ref]any) (gone []ref) {
	all := slices.Collect(maps.Keys(s.known))
	if s.early != nil {
		all = slices.Collect(maps.Keys(s.early))
	}
	for _, r := range all {
		if _, is := there[r]; r.kind == kind && !is {
			gone = append(gone, r)
		}
	}
	slices.SortFunc(gone, ref.compare)
	return gone
}

// seen says that an object is there, as it is now.
func (s *scribe) seen(kind string, object any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(refOf(kind, object), object)
}

// lost says that an object is gone.
func (s *scribe) lost(kind string, object any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone(refOf(kind, object))
}

func refOf(kind string, object any) ref {
	m, _ := object.(metav1.Object) // every object of an API is one
	return ref{kind, m.GetNamespace(), m.GetName()}
}

// begin writes what is there before the first step.
func (s *scribe) begin() {
	s.origin = s.now()
	all := slices.SortedFunc(maps.Keys(s.early), ref.compare)
	if s.names != nil {
		for _, r := range all {
			if o := kept(s.early[r]); o != nil {
				s.names.rename(o)
			}
		}
		s.names.settle()
	}
	s.head()
	early := s.early
	s.early = nil
	for _, r := range all {
		s.set(r, early[r])
	}
	for _, r := range all {
		s.leave(r, early[r])
	}
	close(s.begun)
}

// head writes what stands before the objects. Another rate than the format's own is explained.
func (s *scribe) head() {
	t := timeline.New()
	if s.rate == 0 || s.rate == t.Rate {
		s.write(t.Header())
		return
	}
	t.Rate = s.rate
	s.write(t.Header())
	s.write("# At this rate the attempts of a replay have room in its record; replay --rate R makes others.\n")
}

// given reports whether what is written is still what is there at the beginning.
func (s *scribe) given() bool {
	select {
	case <-s.begun:
		return false
	default:
		return true
	}
}

// set writes an object if it is not as it was written last.
func (s *scribe) set(r ref, object any) {
	if s.early != nil {
		s.early[r] = object
		return
	}
	o := kept(object)
	if o == nil {
		s.gone(r)
		return
	}
	m, _ := object.(metav1.Object)
	k := s.known[r]
	if k != nil && k.uid != m.GetUID() { // another one of the same name, and nobody told of the first one's end
		s.gone(r)
		k = nil
	}
	if k == nil {
		k = &known{uid: m.GetUID()}
	}
	if s.names != nil {
		s.names.rename(o)
		s.fail(s.names.err)
	}
	text, status, err := encode(o, k.status)
	if err != nil {
		s.fail(fmt.Errorf("writing %s %s/%s: %w", r.kind, r.namespace, r.name, err))
		return
	}
	k.status = k.status || status
	if sum := sha256.Sum256(text); sum != k.sum {
		k.sum = sum
		s.apply(r, k, string(text))
	}
	s.known[r] = k
	if !s.given() {
		s.leave(r, object)
	}
}

func (s *scribe) apply(r ref, k *known, text string) {
	step := timeline.Step{Verb: "object apply", JSON: text}
	k.shown, _ = step.Refers() // what was encoded here has a kind and a name
	if s.given() {
		s.counts.count(r.kind)
		s.write("given " + text + "\n")
		return
	}
	s.step(step)
}

// leave begins a pod's end, once.
func (s *scribe) leave(r ref, object any) {
	k, left := s.known[r], graceLeft(object)
	if k == nil || k.leaving || left == 0 {
		return
	}
	k.leaving = true
	s.delete(k, min(time.Duration(left)*time.Second, time.Hour)) // the longest that timelines have
}

// gone writes the end of an object, if there was any.
func (s *scribe) gone(r ref) {
	if s.early != nil {
		delete(s.early, r)
		return
	}
	k := s.known[r]
	if k == nil {
		return
	}
	delete(s.known, r)
	if r.kind != kindPod {
		s.step(timeline.Step{Verb: "object delete", Object: k.shown})
		return
	}
	s.delete(k, 0)
}

func (s *scribe) delete(k *known, grace time.Duration) {
	s.step(timeline.Step{Verb: "object delete", Object: k.shown, Args: []timeline.Arg{{Key: "grace", Value: grace.String()}}})
}

// step writes a step, at the time that it is.
func (s *scribe) step(step timeline.Step) {
	s.counts.Steps++
	step.At = s.at()
	s.write(step.String() + "\n")
}

// at is the time of the next step, to the millisecond; never before the last one's.
func (s *scribe) at() time.Duration {
	s.last = max(s.last, (s.now() - s.origin).Truncate(time.Millisecond))
	return s.last
}

// remark writes a line that does nothing.
func (s *scribe) remark(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.early == nil {
		s.write("# +" + s.at().String() + " " + text + "\n")
	}
}

// end writes the last line. Nothing is written after it.
func (s *scribe) end() (Summary, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.early != nil {
		return s.counts, errors.New("the recording has not begun")
	}
	s.counts.Length = s.at()
	s.write(timeline.Step{At: s.last, Verb: timeline.End}.String() + "\n")
	err := s.err
	s.fail(errors.New("the recording has ended"))
	return s.counts, err
}

// write writes whole lines, each at once: what is in the file then can be read.
func (s *scribe) write(lines string) {
	if s.err != nil {
		return
	}
	if _, err := io.WriteString(s.out, lines); err != nil {
		s.fail(fmt.Errorf("writing the recording: %w", err))
	}
}

func (s *scribe) fail(err error) {
	if s.err == nil && err != nil {
		s.err = err
		close(s.failed)
	}
}

// encode is an object as a timeline has it, and whether it has a status. One that has none gets an empty one if it had one,
// because what a timeline leaves out stays as it was.
func encode(o metav1.Object, had bool) (text []byte, has bool, err error) {
	typed, err := json.Marshal(o)
	if err != nil {
		return nil, false, err
	}
	var all map[string]any
	if err := json.Unmarshal(typed, &all); err != nil {
		return nil, false, err
	}
	delete(all, "status")
	if status := statusOf(o); len(status) > 0 {
		for _, value := range status {
			has = has || value != nil
		}
		if has || had {
			all["status"] = status
		}
	}
	text, err = json.Marshal(all)
	return text, has, err
}

// statusOf has every field that is kept of a status, nil for what is empty: a merge patch takes such a field away.
func statusOf(o metav1.Object) map[string]any {
	orNil := func(value any, empty bool) any {
		if empty {
			return nil
		}
		return value
	}
	switch o := o.(type) {
	case *corev1.Service:
		if in := o.Status.LoadBalancer.Ingress; len(in) > 0 {
			return map[string]any{"loadBalancer": o.Status.LoadBalancer}
		}
		return map[string]any{"loadBalancer": nil}
	case *corev1.Node:
		return map[string]any{"addresses": orNil(o.Status.Addresses, len(o.Status.Addresses) == 0), "conditions": orNil(o.Status.Conditions, len(o.Status.Conditions) == 0)}
	case *corev1.Pod:
		return map[string]any{"phase": orNil(o.Status.Phase, o.Status.Phase == ""), "podIP": orNil(o.Status.PodIP, o.Status.PodIP == ""),
			"podIPs": orNil(o.Status.PodIPs, len(o.Status.PodIPs) == 0), "conditions": orNil(o.Status.Conditions, len(o.Status.Conditions) == 0)}
	}
	return nil
}

// Summary says what is in a recording.
type Summary struct {
	Services, Slices, Nodes, Pods int // at its beginning
	Steps                         int // without the end
	Length                        time.Duration
}

func (s *Summary) count(kind string) {
	switch kind {
	case kindService:
		s.Services++
	case kindSlice:
		s.Slices++
	case kindNode:
		s.Nodes++
	case kindPod:
		s.Pods++
	}
}

// String is one line.
func (s Summary) String() string {
	return fmt.Sprintf("%d Services, %d EndpointSlices, %d Nodes and %d Pods at the beginning, %d changes in %s", s.Services, s.Slices, s.Nodes, s.Pods, s.Steps, s.Length)
}
