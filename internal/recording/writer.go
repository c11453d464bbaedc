package recording

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

// writtenObject is the state of an object in the timeline.
type writtenObject struct {
	uid       types.UID
	reference string            // as in timelines
	sum       [sha256.Size]byte // of the text that was written last
	status    bool              // a status was written, so an empty one must be written too
	deleting  bool              // its deletion was written
}

// timelineWriter writes a timeline of objects and their changes. Until each kind has been listed once it collects objects, which
// become the given objects of the timeline. Its methods are safe for concurrent use; the first error is kept.
type timelineWriter struct {
	mu      sync.Mutex
	out     io.Writer
	now     func() time.Duration // with any origin
	names   *renamer             // nil to replace nothing
	rate    float64              // of the timeline, in attempts per second; 0 for the format's default
	listed  map[string]bool
	pending map[ref]any // objects before all kinds are listed
	objects map[ref]*writtenObject
	origin  time.Duration
	last    time.Duration
	counts  Summary
	err     error
	begun   chan struct{} // closed when all kinds are listed
	failed  chan struct{} // closed at the first error of writing

	refused  error         // the error that ended the watches
	stop     chan struct{} // closed when refused is set
	stopOnce sync.Once
}

func newTimelineWriter(out io.Writer, now func() time.Duration, anonymous bool) *timelineWriter {
	s := &timelineWriter{out: out, now: now, listed: map[string]bool{}, pending: map[ref]any{}, objects: map[ref]*writtenObject{},
		begun: make(chan struct{}), failed: make(chan struct{}), stop: make(chan struct{})}
	if anonymous {
		s.names = newRenamer()
	}
	return s
}

// replaceKind records the list of a kind: objects that are not in it are deleted.
func (s *timelineWriter) replaceKind(kind string, objects []any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	there := map[ref]any{}
	for _, o := range objects {
		there[refOf(kind, o)] = o
	}
	if !s.listed[kind] {
		maps.Copy(s.pending, there)
		if s.listed[kind] = true; len(s.listed) == len(kinds) {
			s.begin()
		}
		return
	}
	for _, r := range s.absent(kind, there) {
		s.writeDeletion(r)
	}
	for _, r := range slices.SortedFunc(maps.Keys(there), ref.compare) {
		s.set(r, there[r])
	}
}

// absent returns the known objects of a kind that are not listed, in order.
func (s *timelineWriter) absent(kind string, there map[ref]any) (gone []ref) {
	all := slices.Collect(maps.Keys(s.objects))
	if s.pending != nil {
		all = slices.Collect(maps.Keys(s.pending))
	}
	for _, r := range all {
		if _, is := there[r]; r.kind == kind && !is {
			gone = append(gone, r)
		}
	}
	slices.SortFunc(gone, ref.compare)
	return gone
}

// update records a new or changed object.
func (s *timelineWriter) update(kind string, object any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(refOf(kind, object), object)
}

// remove records a deleted object.
func (s *timelineWriter) remove(kind string, object any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writeDeletion(refOf(kind, object))
}

func refOf(kind string, object any) ref {
	m, _ := object.(metav1.Object) // each API object is one
	return ref{kind, m.GetNamespace(), m.GetName()}
}

// begin writes the given objects, before the first step.
func (s *timelineWriter) begin() {
	s.origin = s.now()
	all := slices.SortedFunc(maps.Keys(s.pending), ref.compare)
	if s.names != nil {
		for _, r := range all {
			if o := recordedPart(s.pending[r]); o != nil {
				s.names.rename(o)
			}
		}
		s.names.assign()
	}
	s.writeHeader()
	early := s.pending
	s.pending = nil
	for _, r := range all {
		s.set(r, early[r])
	}
	for _, r := range all {
		s.writePodDeletion(r, early[r])
	}
	close(s.begun)
}

// writeHeader writes the lines before the objects, with a comment if the rate is not the format's default.
func (s *timelineWriter) writeHeader() {
	t := timeline.New()
	if s.rate == 0 || s.rate == t.Rate {
		s.write(t.Header())
		return
	}
	t.Rate = s.rate
	s.write(t.Header())
	s.write("# At this rate the attempts of a replay fit into its record; replay --rate R changes it.\n")
}

// hasBegun reports whether all given objects are written.
func (s *timelineWriter) hasBegun() bool {
	select {
	case <-s.begun:
		return true
	default:
		return false
	}
}

// set writes an object if it has changed.
func (s *timelineWriter) set(r ref, object any) {
	if s.pending != nil {
		s.pending[r] = object
		return
	}
	o := recordedPart(object)
	if o == nil {
		s.writeDeletion(r)
		return
	}
	m, _ := object.(metav1.Object)
	k := s.objects[r]
	if k != nil && k.uid != m.GetUID() { // another object of the same name
		s.writeDeletion(r)
		k = nil
	}
	if k == nil {
		k = &writtenObject{uid: m.GetUID()}
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
		s.writeApply(r, k, string(text))
	}
	s.objects[r] = k
	if s.hasBegun() {
		s.writePodDeletion(r, object)
	}
}

func (s *timelineWriter) writeApply(r ref, k *writtenObject, text string) {
	step := timeline.Step{Verb: "object apply", JSON: text}
	k.reference, _ = step.Reference() // an encoded object has a kind and a name
	if !s.hasBegun() {
		s.counts.count(r.kind)
		s.write("given " + text + "\n")
		return
	}
	s.writeStep(step)
}

// writePodDeletion writes the deletion of a pod with its grace period, once.
func (s *timelineWriter) writePodDeletion(r ref, object any) {
	k, left := s.objects[r], gracePeriod(object)
	if k == nil || k.deleting || left == 0 {
		return
	}
	k.deleting = true
	s.writeDeleteStep(k, min(time.Duration(left)*time.Second, time.Hour)) // the maximum of timelines
}

// writeDeletion writes the deletion of an object, if it is known.
func (s *timelineWriter) writeDeletion(r ref) {
	if s.pending != nil {
		delete(s.pending, r)
		return
	}
	k := s.objects[r]
	if k == nil {
		return
	}
	delete(s.objects, r)
	if r.kind != kindPod {
		s.writeStep(timeline.Step{Verb: "object delete", Object: k.reference})
		return
	}
	s.writeDeleteStep(k, 0)
}

func (s *timelineWriter) writeDeleteStep(k *writtenObject, grace time.Duration) {
	s.writeStep(timeline.Step{Verb: "object delete", Object: k.reference, Args: []timeline.Arg{{Key: "grace", Value: grace.String()}}})
}

// writeStep writes a step at the present time.
func (s *timelineWriter) writeStep(step timeline.Step) {
	s.counts.Steps++
	step.At = s.stepTime()
	s.write(step.String() + "\n")
}

// stepTime is the time of the next step in whole milliseconds; never before the last one's.
func (s *timelineWriter) stepTime() time.Duration {
	s.last = max(s.last, (s.now() - s.origin).Truncate(time.Millisecond))
	return s.last
}

// comment writes a comment line.
func (s *timelineWriter) comment(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending == nil {
		s.write("# +" + s.stepTime().String() + " " + text + "\n")
	}
}

// end writes the last line.
func (s *timelineWriter) end() (Summary, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending != nil {
		return s.counts, errors.New("the recording has not begun")
	}
	s.counts.Length = s.stepTime()
	s.write(timeline.Step{At: s.last, Verb: timeline.End}.String() + "\n")
	err := s.err
	s.fail(errors.New("the recording has ended"))
	return s.counts, err
}

// write writes complete lines in one call.
func (s *timelineWriter) write(lines string) {
	if s.err != nil {
		return
	}
	if _, err := io.WriteString(s.out, lines); err != nil {
		s.fail(fmt.Errorf("writing the recording: %w", err))
	}
}

func (s *timelineWriter) fail(err error) {
	if s.err == nil && err != nil {
		s.err = err
		close(s.failed)
	}
}

// encode returns the text of an object in a timeline, and whether it has a status. An object that had a status before gets an empty
// one, since fields that a timeline omits keep their values.
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

// statusOf returns the recorded fields of a status, nil for empty ones: a merge patch removes such fields.
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

// Summary counts the content of a recording.
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
