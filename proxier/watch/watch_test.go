package watch

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// api is a minimal API server: list and watch in JSON, without selectors and bookmarks; it ignores sendInitialEvents.
type api struct {
	*testing.T
	mu      sync.Mutex
	lists   map[string][]any         // by path
	watches map[string][]chan []byte // by path; closed to end them
	asked   []string                 // format and options of each request
}

const (
	servicesPath = "/api/v1/services"
	slicesPath   = "/apis/discovery.k8s.io/v1/endpointslices"
	nodesPath    = "/api/v1/nodes"
)

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	items, known := a.lists[r.URL.Path]
	a.asked = append(a.asked, r.URL.String()+" as "+r.Header.Get("Accept"))
	if !known {
		a.mu.Unlock()
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("watch") == "" {
		defer a.mu.Unlock()
		if items == nil {
			items = []any{}
		}
		if err := json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]string{"resourceVersion": "1"}, "items": items}); err != nil {
			a.Error(err)
		}
		return
	}
	events := make(chan []byte, 16)
	a.watches[r.URL.Path] = append(a.watches[r.URL.Path], events)
	a.mu.Unlock()
	flusher, _ := w.(http.Flusher)
	flusher.Flush()
	for {
		select {
		case e, more := <-events:
			if !more {
				return
			}
			if _, err := w.Write(e); err != nil {
				return
			}
			flusher.Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// send sends an event to the newest watch of a path, once there is one.
func (a *api) send(path, kind string, object any) {
	a.Helper()
	event, err := json.Marshal(map[string]any{"type": kind, "object": object})
	if err != nil {
		a.Fatal(err)
	}
	a.until("a watch on "+path, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		w := a.watches[path]
		if len(w) == 0 {
			return false
		}
		w[len(w)-1] <- event
		return true
	})
}

func (a *api) until(what string, done func() bool) {
	a.Helper()
	for deadline := time.Now().Add(10 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			a.Fatalf("waited 10 s for %s", what)
		}
	}
}

func named(s string) types.NamespacedName { return types.NamespacedName{Namespace: "shop", Name: s} }

func objectMeta(name, version string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shop", Name: name, ResourceVersion: version,
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "test"}}}
}

func sliceOf(service, version string, endpoints int) *discovery.EndpointSlice {
	s := &discovery.EndpointSlice{TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: objectMeta("slice", version), AddressType: discovery.AddressTypeIPv4}
	s.Labels = map[string]string{discovery.LabelServiceName: service}
	s.Endpoints = make([]discovery.Endpoint, endpoints)
	return s
}

func service(name, version string) *v1.Service {
	return &v1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: objectMeta(name, version)}
}

func nodeObject(version string, taints ...v1.Taint) *v1.Node {
	return &v1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: "node-1", ResourceVersion: version}, Spec: v1.NodeSpec{Taints: taints}}
}

type events struct {
	mu       sync.Mutex
	eligible []bool
	since    []int64
}

func start(t *testing.T, lists map[string][]any) (*api, *Watcher, *events) {
	t.Helper()
	a := &api{T: t, lists: lists, watches: map[string][]chan []byte{}}
	server := httptest.NewServer(a)
	h := &events{}
	none := func() {}
	w, err := New(&rest.Config{Host: server.URL}, "node-1", Listener{Service: none, Endpoints: func(since time.Time) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.since = append(h.since, since.Unix())
	}, Taken: none, Eligible: func(e bool) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.eligible = append(h.eligible, e)
	}}, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if _, known := lists[nodesPath]; !known {
		w.nodeTimeout = 10 * time.Millisecond
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		server.CloseClientConnections()
		server.Close()
	})
	tooLate := time.AfterFunc(20*time.Second, cancel)
	defer tooLate.Stop()
	if err := w.Run(ctx); err != nil {
		t.Fatal(err)
	}
	return a, w, h
}

// waitChanged waits for a change and returns the changed Services.
func waitChanged(t *testing.T, w *Watcher) []types.NamespacedName {
	t.Helper()
	select {
	case <-w.Changed():
		return w.TakeChanged()
	case <-time.After(10 * time.Second):
		t.Fatal("waited 10 s for a change")
		return nil
	}
}

func TestListAndWatch(t *testing.T) {
	a, w, _ := start(t, map[string][]any{servicesPath: {service("web", "1"), service("api", "1")}, slicesPath: {sliceOf("web", "1", 2)}, nodesPath: nil})
	if got, want := w.TakeChanged(), []types.NamespacedName{named("api"), named("web")}; !slices.Equal(got, want) {
		t.Errorf("changed after the lists %v, want %v", got, want)
	}
	if s := w.Slices(named("web")); len(s) != 1 || len(s[0].Endpoints) != 2 || w.Service(named("web")) == nil || len(w.Names()) != 2 {
		t.Errorf("slices %v, services %v", s, w.Names())
	}
	if m := w.Service(named("web")).ManagedFields; m != nil {
		t.Errorf("managed fields are not removed: %v", m)
	}
	a.send(slicesPath, "MODIFIED", sliceOf("web", "2", 3))
	if got := waitChanged(t, w); !slices.Equal(got, []types.NamespacedName{named("web")}) || len(w.Slices(named("web"))[0].Endpoints) != 3 {
		t.Errorf("changed after an endpoint update: %v", got)
	}
	a.send(slicesPath, "MODIFIED", sliceOf("api", "3", 3))
	if got := waitChanged(t, w); len(got) != 2 || len(w.Slices(named("web"))) != 0 {
		t.Errorf("changed after a slice moved between Services: %v, want both", got)
	}
	a.send(servicesPath, "DELETED", service("web", "4"))
	if got := waitChanged(t, w); !slices.Equal(got, []types.NamespacedName{named("web")}) || w.Service(named("web")) != nil {
		t.Errorf("changed after a Service was deleted: %v", got)
	}
	a.checkRequests(t)
}

// checkRequests checks that lists do not use sendInitialEvents, which a server may silently ignore, and that JSON is
// accepted.
func (a *api) checkRequests(t *testing.T) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, asked := range a.asked {
		if strings.Contains(asked, "sendInitialEvents") || !strings.HasSuffix(asked, " as application/vnd.kubernetes.protobuf,application/json") {
			t.Errorf("unexpected request %s", asked)
		}
	}
}

// An object that was deleted while the watch was interrupted is detected by the next list.
func TestDeletionDuringInterruptedWatch(t *testing.T) {
	a, w, _ := start(t, map[string][]any{servicesPath: {service("web", "1"), service("api", "1")}, slicesPath: nil, nodesPath: nil})
	w.TakeChanged()
	a.mu.Lock()
	a.lists[servicesPath] = []any{service("api", "1")}
	a.mu.Unlock()
	a.send(servicesPath, "ERROR", metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonExpired, Code: http.StatusGone})
	gone := false
	for !gone {
		gone = slices.Contains(waitChanged(t, w), named("web"))
	}
	if w.Service(named("web")) != nil {
		t.Error("the Service still exists")
	}
}

func TestNodeEligibility(t *testing.T) {
	a, _, h := start(t, map[string][]any{servicesPath: nil, slicesPath: nil, nodesPath: {nodeObject("1")}})
	other := nodeObject("2", v1.Taint{Key: autoscalerTaint})
	other.Name = "node-2" // a server without selectors sends all nodes
	a.send(nodesPath, "ADDED", other)
	a.send(nodesPath, "MODIFIED", nodeObject("3", v1.Taint{Key: autoscalerTaint}))
	a.send(nodesPath, "MODIFIED", nodeObject("4"))
	a.send(nodesPath, "DELETED", nodeObject("5"))
	want := []bool{true, false, true, false}
	a.until(fmt.Sprint("eligible to be ", want), func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return slices.Equal(h.eligible, want)
	})
}

// The trigger time of an endpoint change is reported once.
func TestEndpointTriggerTime(t *testing.T) {
	at := func(version string, when string) *discovery.EndpointSlice {
		s := sliceOf("web", version, 1)
		if when != "" {
			s.Annotations = map[string]string{v1.EndpointsLastChangeTriggerTime: when}
		}
		return s
	}
	a, _, h := start(t, map[string][]any{servicesPath: nil, slicesPath: {at("1", "1970-01-01T00:00:01Z")}, nodesPath: nil})
	a.send(slicesPath, "MODIFIED", at("2", "1970-01-01T00:00:02.5Z"))
	a.send(slicesPath, "MODIFIED", at("3", ""))
	a.send(slicesPath, "MODIFIED", at("4", "yesterday"))
	a.send(slicesPath, "DELETED", at("5", "1970-01-01T00:00:02.5Z"))
	never := time.Time{}.Unix()
	want := []int64{1, never, 2, never, never, never, never, never}
	a.until(fmt.Sprint("changes since ", want), func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return slices.Equal(h.since, want)
	})
}

// The Node's addresses are known at the start. Their change wakes the proxier; the deletion of the Node does not,
// since the machine still has them.
func TestNodeAddresses(t *testing.T) {
	at := func(version string, addrs ...v1.NodeAddress) *v1.Node {
		n := nodeObject(version)
		n.Status.Addresses = addrs
		return n
	}
	outer, inner := v1.NodeAddress{Type: v1.NodeExternalIP, Address: "203.0.113.1"}, v1.NodeAddress{Type: v1.NodeInternalIP, Address: "10.0.0.11"}
	second, nonsense := v1.NodeAddress{Type: v1.NodeInternalIP, Address: "10.0.0.12"}, v1.NodeAddress{Type: v1.NodeInternalIP, Address: "x"}
	a, w, _ := start(t, map[string][]any{servicesPath: nil, slicesPath: nil, nodesPath: {at("1", outer, nonsense, inner, second)}})
	got := func() string { return fmt.Sprint(w.NodeAddresses()) }
	if got() != "[10.0.0.11]" {
		t.Errorf("at the start: %s", got())
	}
	w.TakeChanged()
	a.send(nodesPath, "MODIFIED", at("2", second))
	if names := waitChanged(t, w); len(names) != 0 || got() != "[10.0.0.12]" {
		t.Errorf("after a change: %s, changed %v", got(), names)
	}
	a.send(nodesPath, "MODIFIED", at("3", outer))
	if waitChanged(t, w); got() != "[203.0.113.1]" {
		t.Errorf("without an InternalIP: %s", got())
	}
	zoned := at("4", outer)
	zoned.Labels = map[string]string{v1.LabelTopologyZone: "a"}
	a.send(nodesPath, "MODIFIED", zoned)
	if waitChanged(t, w); w.NodeZone() != "a" {
		t.Errorf("the zone is %q", w.NodeZone())
	}
	a.send(nodesPath, "DELETED", at("4", outer))
	a.send(servicesPath, "ADDED", service("web", "5"))
	if waitChanged(t, w); got() != "[203.0.113.1]" {
		t.Errorf("after the Node was deleted: %s", got())
	}
}

func TestRunWithoutNode(t *testing.T) {
	_, w, _ := start(t, map[string][]any{servicesPath: {service("web", "1")}, slicesPath: nil})
	if len(w.TakeChanged()) != 1 {
		t.Error("the Services are unknown")
	}
}

func TestPodCIDRs(t *testing.T) {
	with := func(name string, cidrs ...string) *v1.Node {
		n := nodeObject("1")
		n.Name, n.Spec.PodCIDRs = name, cidrs
		return n
	}
	for _, test := range []struct {
		name       string
		node       *v1.Node
		want, fail string
	}{
		{"both families", with("node-1", "10.244.1.0/24", "fd00:244:1::/64"), "[10.244.1.0/24 fd00:244:1::/64]", ""},
		{"none yet", with("node-1"), "[]", "spec.podCIDRs is empty"},
		{"another Node, from a server without selectors", with("node-2", "10.244.2.0/24"), "[]", "node-1"},
		{"invalid", with("node-1", "x"), "[]", "pod CIDRs"},
	} {
		server := httptest.NewServer(&api{T: t, lists: map[string][]any{nodesPath: {test.node}}, watches: map[string][]chan []byte{}})
		got, err := PodCIDRs(context.Background(), &rest.Config{Host: server.URL}, "node-1")
		server.Close()
		if fmt.Sprint(got) != test.want || (err != nil) != (test.fail != "") || err != nil && !strings.Contains(err.Error(), test.fail) {
			t.Errorf("%s: %v, error %v; want %s, %q", test.name, got, err, test.want, test.fail)
		}
	}
}
