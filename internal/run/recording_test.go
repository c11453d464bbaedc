package run

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/replay"
	"github.com/hitless/hitless/lab/replay/replaytest"
)

// liveOf starts a cluster with these Services, and returns its kubeconfig.
func liveOf(t *testing.T, services ...*corev1.Service) site.LiveOptions {
	t.Helper()
	plane := replay.New()
	for _, s := range services {
		if _, err := plane.Apply(s); err != nil {
			t.Fatal(err)
		}
	}
	return site.LiveOptions{Kubeconfig: replaytest.Serve(t, plane.Handler())}
}

func shop(address string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: "shop"}, Spec: corev1.ServiceSpec{ClusterIP: address, Ports: []corev1.ServicePort{{Port: 80}}}}
}

// recordAll records the current objects, and ends.
func recordAll(t *testing.T, l site.LiveOptions, o RecordOptions) (Recording, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o.Started = cancel
	return Record(ctx, l, o)
}

// Recorded names and addresses can conflict with those of the lab. The recording reports that, and a replay refuses it with the line. An
// anonymous recording has no conflicts.
func TestRecordingConflictsAreReported(t *testing.T) {
	live := liveOf(t, shop("10.96.0.10"))
	file := filepath.Join(t.TempDir(), "own.timeline")
	r, err := recordAll(t, live, RecordOptions{File: file})
	const why = "own.timeline:6: Service/shop/shop: the lab may give its own Services the address 10.96.0.10"
	if err != nil || r.Refused == nil || !strings.Contains(r.Refused.Error(), why) || !strings.HasPrefix(r.Text, "1 Services, 0 EndpointSlices") {
		t.Errorf("recorded %+v, %v", r, err)
	}
	if _, _, err := planOf(t, file, "replay"); !IsUsage(err) || !strings.Contains(err.Error(), why) {
		t.Errorf("a replay of it gave %v", err)
	}
	file = filepath.Join(t.TempDir(), "new", "anonymous.timeline")
	if r, err = recordAll(t, live, RecordOptions{File: file, Anonymous: true}); err != nil || r.Refused != nil {
		t.Errorf("recorded %+v, %v", r, err)
	}
	if _, _, err := planOf(t, file, "replay"); err != nil {
		t.Error(err)
	}
	if _, _, err := planOf(t, file, "kube"); !IsUsage(err) || !strings.Contains(err.Error(), "anonymous.timeline:6: Service/ns-00001/svc-00001: a real API server gives no address outside 10.96.0.0/16") {
		t.Errorf("a replay with the real control plane gave %v", err)
	}
}

func TestLabConflicts(t *testing.T) {
	for object, want := range map[string]string{
		`{"apiVersion":"v1","kind":"Node","metadata":{"name":"node-2"}}`:                                                             "the lab has a node of this name",
		`{"apiVersion":"v1","kind":"Node","metadata":{"name":"node-3"}}`:                                                             "",
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":"web"}}`:                                                             "the lab has a Service of this name",
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"shop"}}`:                                          "",
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":"web"},"spec":{"selector":{"app":"web"}}}`:                           "",
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":"a"},"spec":{"ports":[{"port":1},{"port":2,"nodePort":30001}]}}`:     "the node port 30001",
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":"a"},"spec":{"clusterIP":"10.96.9.9","ports":[{"nodePort":31000}]}}`: "",
	} {
		line, err := ReadTimeline(t.Context(), timelineFile(t, "hitless timeline 1\nnodes 2\n+1s object apply "+object+"\n+2s end\n"))
		if err != nil {
			t.Fatal(err)
		}
		if err := line.checkLab("replay"); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), ":3: ") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s gave %v, want %q", object, err, want)
		}
	}
}

func planOf(t *testing.T, file, controlPlane string) (any, any, error) {
	t.Helper()
	line, err := ReadTimeline(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Timeline: line, LabOptions: site.LabOptions{ControlPlane: controlPlane, Cache: t.TempDir()}}
	if err := o.fillDefaults(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, spec, err := o.plan(t.Context())
	return p, spec, err
}

func TestRecordNeedsAClusterAndAFile(t *testing.T) {
	for want, call := range map[string]struct {
		l site.LiveOptions
		o RecordOptions
	}{
		"--kubeconfig": {site.LiveOptions{}, RecordOptions{File: "f"}},
		"--out":        {site.LiveOptions{Kubeconfig: "k"}, RecordOptions{}},
		"--for":        {site.LiveOptions{Kubeconfig: "k"}, RecordOptions{File: "f", For: -1}},
		"none/of/it":   {site.LiveOptions{Kubeconfig: "none/of/it"}, RecordOptions{File: filepath.Join(t.TempDir(), "f")}},
	} {
		if _, err := Record(t.Context(), call.l, call.o); !IsUsage(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want a usage error with %q", err, want)
		}
	}
}

// Recordings of a day, a week or until Ctrl-C can be replayed unchanged, as documented. For a longer one the recording reports a rate at
// which a replay fits.
func TestLongRecordingFits(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct{ asked, length time.Duration }{{time.Hour, time.Hour}, {day, day}, {7 * day, 7 * day}, {365 * day, 365 * day}, {0, 2 * day}} {
		file := filepath.Join(t.TempDir(), "some.timeline")
		if _, err := recordAll(t, liveOf(t), RecordOptions{File: file, For: c.asked}); err != nil {
			t.Fatal(err)
		}
		lengthen(t, file, c.length)
		if _, _, err := planOf(t, file, "replay"); err != nil {
			t.Errorf("recorded with --for %s, for %s: %v", c.asked, c.length, err)
		}
	}
	file, begun := filepath.Join(t.TempDir(), "endless.timeline"), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := Record(ctx, liveOf(t), RecordOptions{File: file, Started: func() { close(begun); cancel() }, Now: func() time.Duration {
		select {
		case <-begun:
			return 30 * day
		default:
			return 0
		}
	}})
	if err != nil || r.Refused == nil || !strings.Contains(r.Refused.Error(), "--rate 1 is a rate at which it fits") {
		t.Fatalf("recorded for 30 days: %+v, %v", r, err)
	}
	line, err := ReadTimeline(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Timeline: line, LabOptions: site.LabOptions{ControlPlane: "replay", Cache: t.TempDir()}, Rate: 1}
	if err := o.fillDefaults(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := o.plan(t.Context()); err != nil {
		t.Errorf("with that rate: %v", err)
	}
}

// lengthen moves the end of a timeline.
func lengthen(t *testing.T, file string, to time.Duration) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	last := bytes.LastIndexByte(bytes.TrimSpace(text), '\n') + 1
	if err := os.WriteFile(file, fmt.Appendf(text[:last], "+%s end\n", to), 0o600); err != nil {
		t.Fatal(err)
	}
}

// An API server that does not answer ends a recording after its patience, whatever its length, and leaves no file.
func TestRecordBoundsItsWait(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	kubeconfig := replaytest.Kubeconfig(t, server.URL)
	file, asked := filepath.Join(t.TempDir(), "a.timeline"), ""
	_, err := Record(t.Context(), site.LiveOptions{Kubeconfig: kubeconfig}, RecordOptions{File: file, For: time.Hour, Patience: 50 * time.Millisecond,
		Asking: func(at string, _ time.Duration) { asked = at }})
	if err == nil || !strings.Contains(err.Error(), "no answer within 50ms") || asked != server.URL {
		t.Errorf("asked %q: %v", asked, err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(file)); len(entries) > 0 {
		t.Errorf("it left %v", entries)
	}
}
