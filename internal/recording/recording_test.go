package recording

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/hitless/hitless/lab/replay"
	"github.com/hitless/hitless/scenarios/timeline"
)

// disturb makes a random change to the plane.
func (p plane) disturb(t *rapid.T) {
	kind, name := drawn(t, "kind", kinds...), drawn(t, "name", "a", "b", "c")
	object := map[string]func() client{
		kindService: func() client { return anyService(t, name) }, kindSlice: func() client { return anySlice(t, name) },
		kindNode: func() client { return anyNode(t, name) }, kindPod: func() client { return anyPod(t, name) }}[kind]()
	if rapid.IntRange(0, 2).Draw(t, "delete") > 0 {
		if _, err := p.Apply(object); err != nil {
			t.Fatal(err)
		}
		return
	}
	grace := rapid.SampledFrom([]*int64{nil, ptr(int64(0)), ptr(int64(7))}).Draw(t, "grace")
	err := p.Delete(replay.Ref{Kind: kind, Namespace: object.GetNamespace(), Name: name}, metav1.DeleteOptions{GracePeriodSeconds: grace})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// client is an object of an API.
type client interface {
	runtime.Object
	metav1.Object
}

// tell passes all objects to a timeline writer, kind by kind, as lists do.
func (p plane) tell(t tb, s *timelineWriter) {
	for _, from := range sources(p.client) {
		list, err := from.list(context.Background(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var all []any
		for _, o := range items(list) {
			all = append(all, o)
		}
		s.replaceKind(from.kind, all)
	}
}

// After any changes, with any of them in lists after lost watches, a replay gives the final objects. The recording has no secret field.
func TestReplayOfRecordingGivesSameObjects(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		live := newPlane(t)
		var text bytes.Buffer
		at := time.Duration(0)
		s := newTimelineWriter(&text, func() time.Duration { at += time.Millisecond; return at }, false)
		for range rapid.IntRange(1, 4).Draw(t, "lists") {
			for range rapid.IntRange(0, 6).Draw(t, "changes") {
				live.disturb(t)
			}
			live.tell(t, s)
		}
		if _, err := s.end(); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text.String(), secret) {
			t.Fatalf("the recording contains the secret:\n%s", &text)
		}
		again := newPlane(t)
		again.do(t, text.String())
		if diff := cmp.Diff(live.shown(t), again.shown(t)); diff != "" {
			t.Fatalf("(-recorded +replayed)\n%s\n%s", diff, &text)
		}
	})
}

// leaving returns a pod with a deletion timestamp, on a node, with the uid.
func leaving(uid string, phase corev1.PodPhase) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default", UID: types.UID(uid)}, Spec: corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{Phase: phase}}
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Unix(1000, 0)}, ptr(int64(30))
	return p
}

// The deletion of a pod is recorded once, without a grace period for an ended pod. A pod with another uid is another pod.
func TestPodsLeave(t *testing.T) {
	there := leaving("1", corev1.PodRunning)
	there.DeletionTimestamp, there.DeletionGracePeriodSeconds = nil, nil
	other := leaving("2", corev1.PodRunning)
	for name, c := range map[string]struct {
		lists []*corev1.Pod
		want  []string // verbs, with what is given first
	}{
		"in two steps":             {[]*corev1.Pod{there, leaving("1", corev1.PodRunning), leaving("1", corev1.PodRunning), nil}, []string{"given", "delete 30s", "delete 0s"}},
		"leaving at the beginning": {[]*corev1.Pod{leaving("1", corev1.PodRunning), nil}, []string{"given", "delete 30s", "delete 0s"}},
		"it has ended":             {[]*corev1.Pod{leaving("1", corev1.PodSucceeded), nil}, []string{"given", "delete 0s"}},
		"another of its name":      {[]*corev1.Pod{leaving("1", corev1.PodRunning), other, nil}, []string{"given", "delete 30s", "delete 0s", "apply", "delete 30s", "delete 0s"}},
		"at once":                  {[]*corev1.Pod{there, nil}, []string{"given", "delete 0s"}},
	} {
		var text bytes.Buffer
		s := newTimelineWriter(&text, func() time.Duration { return 0 }, false)
		for _, kind := range []string{kindNode, kindService, kindSlice} {
			s.replaceKind(kind, nil)
		}
		for _, p := range c.lists {
			if p == nil {
				s.replaceKind(kindPod, nil)
			} else {
				s.replaceKind(kindPod, []any{p})
			}
		}
		if _, err := s.end(); err != nil {
			t.Fatal(err)
		}
		line, err := timeline.Parse(name, text.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for range line.Given {
			got = append(got, "given")
		}
		for _, step := range line.Steps[:len(line.Steps)-1] {
			got = append(got, strings.TrimSpace(strings.TrimPrefix(step.Verb, "object ")+" "+step.Get("grace")))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
