package recording

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"pgregory.net/rapid"

	"github.com/hitless/hitless/lab/replay"
	"github.com/hitless/hitless/scenarios/timeline"
)

const patience = time.Minute

// eventually waits for a condition.
func eventually(t tb, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %s still waiting for %s", patience, what)
		}
	}
}

// recording is a running recording.
type recording struct {
	file string
	stop context.CancelFunc
	done chan struct{}
	sum  Summary
	err  error
}

// recorded starts to record a plane, and returns after the first complete list.
func recorded(t tb, client kubernetes.Interface, o Options) *recording {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	dir, err := os.MkdirTemp("", "record-test-")
	if err != nil {
		t.Fatal(err)
	}
	begun := make(chan struct{})
	r := &recording{file: filepath.Join(dir, "f.timeline"), stop: stop, done: make(chan struct{})}
	o.File, o.Pause, o.Started = r.file, time.Millisecond, func() { close(begun) }
	go func() {
		defer close(r.done)
		r.sum, r.err = Record(ctx, client, o)
	}()
	t.Cleanup(func() { stop(); <-r.done; os.RemoveAll(dir) })
	select {
	case <-begun:
	case <-r.done:
		t.Fatalf("the recording ended before the first complete list: %v", r.err)
	}
	return r
}

// sees waits until the recording contains these words.
func (r *recording) sees(t tb, words ...string) {
	t.Helper()
	eventually(t, "the recording to have "+strings.Join(words, ", "), func() bool {
		text, err := os.ReadFile(r.file + partSuffix)
		for _, w := range words {
			if err != nil || !strings.Contains(string(text), w) {
				return false
			}
		}
		return true
	})
}

// ended ends the recording like Ctrl-C, and returns it.
func (r *recording) ended(t tb) string {
	t.Helper()
	r.stop()
	<-r.done
	text, err := os.ReadFile(r.file)
	if r.err != nil || err != nil {
		t.Fatal(r.err, err)
	}
	return string(text)
}

// mark creates one object of each kind, which marks the end of earlier changes.
func (p plane) mark(t tb) (names []string) {
	t.Helper()
	last := metav1.ObjectMeta{Name: "z-last", Namespace: "z"}
	for _, o := range []client{
		&corev1.Service{ObjectMeta: last}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "z-last"}}, &corev1.Pod{ObjectMeta: last},
		&discoveryv1.EndpointSlice{ObjectMeta: last, AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{}},
	} {
		if _, err := p.Apply(o); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range kinds {
		names = append(names, `"kind":"`+kind+`","metadata":{"name":"z-last"`)
	}
	return names
}

// Over HTTP, with watches that are cut or answered with 410 during changes: new lists contain the missed changes.
func TestRecordingSurvivesLostWatches(t *testing.T) {
	relists := 0
	rapid.Check(t, func(t *rapid.T) {
		live := newPlane(t)
		live.Keep = rapid.SampledFrom([]int{2, 10000}).Draw(t, "events kept")
		for range rapid.IntRange(0, 4).Draw(t, "changes before") {
			live.disturb(t)
		}
		r := recorded(t, live.client, Options{})
		for range rapid.IntRange(1, 12).Draw(t, "changes") {
			scope := replay.Scope{Resource: drawn(t, "resource", "", "services", "endpointslices", "nodes", "pods")}
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				live.Fault(replay.CutWatches{Scope: scope})
			case 1:
				live.Fault(replay.ExpireNextWatch{Scope: scope})
				live.Fault(replay.CutWatches{Scope: scope})
			default:
				live.disturb(t)
			}
		}
		r.sees(t, live.mark(t)...)
		text := r.ended(t)
		relists += strings.Count(text, "was lost;")
		again := newPlane(t)
		again.do(t, text)
		if diff := cmp.Diff(live.shown(t), again.shown(t)); diff != "" {
			t.Fatalf("(-recorded +replayed)\n%s\n%s", diff, text)
		}
	})
	if relists == 0 {
		t.Error("no recording had a second list, so lost watches are not tested")
	}
}

// Steps and end have their times in milliseconds since the first complete list.
func TestStepsStandAtTheirTime(t *testing.T) {
	live := newPlane(t)
	var now atomic.Int64
	now.Store(int64(5 * time.Minute))
	r := recorded(t, live.client, Options{Now: func() time.Duration { return time.Duration(now.Load()) }})
	at := []time.Duration{0, 1500 * time.Millisecond, 90*time.Second + 999*time.Microsecond, 3 * time.Hour}
	var want []string
	for i, after := range at {
		now.Store(int64(5*time.Minute + after))
		name := fmt.Sprintf("n-%d", i)
		if _, err := live.Apply(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
		r.sees(t, fmt.Sprintf("%q", name))
		want = append(want, after.Truncate(time.Millisecond).String()+" Node/"+name)
	}
	now.Store(int64(5*time.Minute + 4*time.Hour))
	line, err := timeline.Parse("f", []byte(r.ended(t)))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range line.Steps[:len(line.Steps)-1] {
		reference, _ := s.Reference()
		got = append(got, s.At.String()+" "+reference)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-happened +recorded)\n%s\n%s", diff, line)
	}
	if line.Length() != 4*time.Hour || r.sum.Length != line.Length() || r.sum.Steps != len(at) {
		t.Errorf("recorded for 4h, the summary is %+v:\n%s", r.sum, line)
	}
}

// An incomplete recording has another name, and a replay refuses it.
func TestIncompleteRecordingIsRefused(t *testing.T) {
	live := newPlane(t)
	r := recorded(t, live.client, Options{})
	r.sees(t, live.mark(t)...)
	text, err := os.ReadFile(r.file + partSuffix)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(r.file); err == nil {
		t.Error("the recording has its final name before its end")
	}
	if _, err := timeline.Parse("f", text); err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("f:%d: the timeline is cut off", strings.Count(string(text), "\n"))) {
		t.Errorf("the incomplete recording was accepted: %v", err)
	}
	if _, err := Record(t.Context(), live.client, Options{File: r.file}); err == nil || !strings.Contains(err.Error(), "another recording writes it, or was killed") {
		t.Errorf("a second recording with the same name: %v", err)
	}
	r.ended(t)
	if _, err := Record(t.Context(), live.client, Options{File: r.file}); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("a recording over another: %v", err)
	}
	if _, err := os.Stat(r.file + partSuffix); err == nil {
		t.Error("an ended recording leaves FILE.part")
	}
}

// A recording ends after its duration.
func TestRecordingEndsAfterDuration(t *testing.T) {
	live := newPlane(t)
	r := recorded(t, live.client, Options{For: time.Millisecond})
	<-r.done
	if _, err := os.Stat(r.file); r.err != nil || err != nil {
		t.Error(r.err, err)
	}
}

// Without read permission there is no recording. A recording that loses it ends with the changes so far.
func TestRecordingWithoutReadPermission(t *testing.T) {
	live := newPlane(t)
	forbid := make(chan struct{})
	handler := live.Handler()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-forbid:
			if strings.HasSuffix(r.URL.Path, "/pods") {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusForbidden)
				fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"pods is forbidden"}`)
				return
			}
		default:
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	client := kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL, QPS: -1})
	r := recorded(t, client, Options{})
	close(forbid)
	// A request that passed the handler before may open its watch after the first cut.
	eventually(t, "the recording to end without permission for pods", func() bool {
		live.Fault(replay.CutWatches{})
		select {
		case <-r.done:
			return true
		default:
			return false
		}
	})
	text, err := os.ReadFile(r.file)
	if !apierrors.IsForbidden(r.err) || err != nil || !strings.HasSuffix(string(text), " end\n") {
		t.Errorf("%v, the file is %q, %v", r.err, text, err)
	}
	other := filepath.Join(t.TempDir(), "f")
	if _, err := Record(t.Context(), client, Options{File: other}); !apierrors.IsForbidden(errors.Unwrap(err)) {
		t.Errorf("it began with %v", err)
	}
	if left, _ := filepath.Glob(other + "*"); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
}

// A full disk ends the recording with an error, and the written part stays.
func TestRecordingOnFullDisk(t *testing.T) {
	s := newTimelineWriter(&full{room: 4096}, func() time.Duration { return 0 }, false)
	for _, kind := range kinds {
		s.replaceKind(kind, nil)
	}
	for i := range 100 {
		s.update(kindNode, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}})
	}
	select {
	case <-s.failed:
	default:
		t.Error("the recording continued")
	}
	if _, err := s.end(); !errors.Is(err, errFull) {
		t.Errorf("it ended with %v", err)
	}
}

var errFull = errors.New("no space left on device")

type full struct{ room int }

func (f *full) Write(data []byte) (int, error) {
	if f.room -= len(data); f.room < 0 {
		return 0, errFull
	}
	return len(data), nil
}
