package replay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	protobufserializer "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/hitless/hitless/lab/replay"
	"github.com/hitless/hitless/lab/replay/replaytest"
)

// follow opens a watch of the ConfigMaps of namespace default.
func follow(t *testing.T, client kubernetes.Interface, opts metav1.ListOptions) apiwatch.Interface {
	t.Helper()
	w, err := client.CoreV1().ConfigMaps("default").Watch(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

// expect reads as many events as there are lines and compares them.
func expect(t *testing.T, w apiwatch.Interface, want ...string) {
	t.Helper()
	var got []string
	for range want {
		got = append(got, line(t, replaytest.Next(t, w)))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("events (-want +got):\n%s", diff)
	}
}

func remove(t tb, l lab, kind, name string) {
	t.Helper()
	if err := l.Delete(replay.Ref{Kind: kind, Name: name}, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestWatchStartsAtTheResourceVersion(t *testing.T) {
	inBoth(t, func(t *testing.T, l lab, client kubernetes.Interface) {
		l.apply(t, configMap("a", nil))                             // 2
		l.apply(t, configMap("b", nil))                             // 3
		l.apply(t, configMap("a", map[string]string{"color": "x"})) // 4
		remove(t, l, "ConfigMap", "b")                              // 5
		for version, want := range map[string][]string{
			"":  {"ADDED a 4"},
			"0": {"ADDED a 4"},
			"2": {"ADDED b 3", "MODIFIED a 4", "DELETED b 5"},
			"4": {"DELETED b 5"},
		} {
			expect(t, follow(t, client, metav1.ListOptions{ResourceVersion: version}), want...)
		}
		w := follow(t, client, metav1.ListOptions{ResourceVersion: "5"})
		l.apply(t, configMap("c", nil))
		expect(t, w, "ADDED c 6")
	})
}

func TestInitialEventsEndWithABookmark(t *testing.T) {
	inBoth(t, func(t *testing.T, l lab, client kubernetes.Interface) {
		l.apply(t, configMap("a", nil))
		w := follow(t, client, metav1.ListOptions{
			SendInitialEvents: new(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		})
		expect(t, w, "ADDED a 2")
		mark := replaytest.Next(t, w)
		if m, ok := mark.Object.(metav1.Object); mark.Type != apiwatch.Bookmark || !ok ||
			m.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" || m.GetResourceVersion() != "2" {
			t.Fatalf("after the initial events: %s %v", mark.Type, mark.Object)
		}
		l.apply(t, configMap("b", nil))
		expect(t, w, "ADDED b 3")
	})
}

func TestSelectorChangesAreAdditionsAndDeletions(t *testing.T) {
	l := start(t, nil)
	w := follow(t, l.client(t), metav1.ListOptions{LabelSelector: "!hidden", ResourceVersion: "0"})
	hidden := map[string]string{"hidden": ""}
	l.apply(t, configMap("a", hidden)) // 2: not seen
	l.apply(t, configMap("a", nil))
	l.apply(t, configMap("a", map[string]string{"b": "c"}))
	l.apply(t, configMap("a", hidden))
	remove(t, l, "ConfigMap", "a") // 6: not seen
	l.apply(t, configMap("z", nil))
	expect(t, w, "ADDED a 3", "MODIFIED a 4", "DELETED a 5", "ADDED z 7")
}

// TestPodsTerminateBeforeTheyAreDeleted asserts what a real kube-apiserver 1.37 sends for the same requests.
func TestPodsTerminateBeforeTheyAreDeleted(t *testing.T) {
	l := start(t, nil)
	w, err := l.client(t).CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for _, name := range []string{"slow", "forced", "nowhere"} {
		node := "node-1"
		if name == "nowhere" {
			node = ""
		}
		l.apply(t, pod(name, node))
		if name == "slow" {
			remove(t, l, "Pod", name)
		}
		if err := l.Delete(replay.Ref{Kind: "Pod", Name: name}, *metav1.NewDeleteOptions(0)); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for range 10 {
		e := replaytest.Next(t, w)
		p := e.Object.(*corev1.Pod)
		state := "lives"
		if p.DeletionTimestamp != nil {
			state = fmt.Sprintf("grace %d ends %s", *p.DeletionGracePeriodSeconds, p.DeletionTimestamp.UTC().Format("05"))
		}
		got = append(got, fmt.Sprintf("%s generation %d: %s", line(t, e), p.Generation, state))
	}
	want := []string{
		"ADDED slow 2 generation 1: lives",
		"MODIFIED slow 3 generation 2: grace 30 ends 30",
		"MODIFIED slow 4 generation 2: grace 0 ends 00",
		"DELETED slow 5 generation 2: grace 0 ends 00",
		"ADDED forced 6 generation 1: lives",
		"MODIFIED forced 7 generation 2: grace 0 ends 00",
		"DELETED forced 8 generation 2: grace 0 ends 00",
		"ADDED nowhere 9 generation 1: lives",
		"MODIFIED nowhere 10 generation 2: grace 0 ends 00",
		"DELETED nowhere 11 generation 2: grace 0 ends 00",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWatchEndsAtItsTimeoutWithABookmark(t *testing.T) {
	l := start(t, nil)
	w := follow(t, l.client(t), metav1.ListOptions{TimeoutSeconds: new(int64(1)), AllowWatchBookmarks: true})
	l.apply(t, service("other-resources-move-the-version", ""))
	l.apply(t, configMap("a", nil))
	expect(t, w, "ADDED a 3")
	l.apply(t, service("unrelated", ""))
	l.apply(t, configMap("b", nil))
	expect(t, w, "ADDED b 5", "BOOKMARK  5")
	closed(t, w)
}

func TestTooOldAndTooNewVersions(t *testing.T) {
	inBoth(t, func(t *testing.T, l lab, client kubernetes.Interface) {
		l.Keep = 2
		for _, name := range []string{"a", "b", "c", "d"} {
			l.apply(t, configMap(name, nil))
		}
		expect(t, follow(t, client, metav1.ListOptions{ResourceVersion: "3"}), "ADDED c 4", "ADDED d 5")
		gone := replaytest.Next(t, follow(t, client, metav1.ListOptions{ResourceVersion: "2"}))
		if err := apierrors.FromObject(gone.Object); gone.Type != apiwatch.Error || !apierrors.IsResourceExpired(err) {
			t.Errorf("watch of a version older than what is kept: %s %v, want 410", gone.Type, gone.Object)
		}
		ahead := replaytest.Next(t, follow(t, client, metav1.ListOptions{ResourceVersion: "99"}))
		if err := apierrors.FromObject(ahead.Object); ahead.Type != apiwatch.Error || !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
			t.Errorf("watch of a version of the future: %s %v", ahead.Type, ahead.Object)
		}
	})
}

func TestOldClientsSeeSlicesAsV1beta1(t *testing.T) {
	l := start(t, nil)
	l.apply(t, slice("web-1", "web", "node-2", "10.244.2.5"))
	path := "/apis/discovery.k8s.io/v1beta1/namespaces/default/endpointslices"
	var got struct {
		APIVersion string
		Endpoints  []map[string]any
	}
	_, _, answer := l.curl(t, http.MethodGet, path+"/web-1", "", "", "")
	if err := json.Unmarshal([]byte(answer), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"addresses": []any{"10.244.2.5"}, "conditions": map[string]any{}, "nodeName": "node-2",
		"topology": map[string]any{"kubernetes.io/hostname": "node-2"}}
	if diff := cmp.Diff(want, got.Endpoints[0]); diff != "" || got.APIVersion != "discovery.k8s.io/v1beta1" {
		t.Errorf("in %s (-want +got):\n%s", got.APIVersion, diff)
	}
	// What an old writer sends is stored as v1.
	old := strings.ReplaceAll(answer, "web-1", "web-2")
	old = strings.ReplaceAll(old, `"resourceVersion":"2",`, "")
	old = strings.ReplaceAll(old, `"kubernetes.io/hostname":"node-2"`, `"kubernetes.io/hostname":"node-2","topology.kubernetes.io/zone":"z","x":"y"`)
	if code, _, answer := l.curl(t, http.MethodPost, path, "", "", old); code != http.StatusCreated {
		t.Fatalf("create as v1beta1: %d %s", code, answer)
	}
	stored, err := l.client(t).DiscoveryV1().EndpointSlices("default").Get(t.Context(), "web-2", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e := stored.Endpoints[0]
	if *e.Zone != "z" || *e.NodeName != "node-2" || cmp.Diff(map[string]string{"x": "y"}, e.DeprecatedTopology) != "" {
		t.Errorf("stored endpoint %+v", e)
	}
	watched, err := l.client(t).DiscoveryV1beta1().EndpointSlices("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Stop()
	expect(t, watched, "ADDED web-1 2", "ADDED web-2 3")
}

func TestWireFormat(t *testing.T) {
	l := start(t, nil)
	l.apply(t, service("web", "10.96.0.10"))
	for _, test := range []struct {
		name, method, path, accept, contentType, body string
		code                                          int
		answer, media                                 string // part of the answer; its content type
	}{
		{name: "health", path: "/healthz", code: 200, answer: "ok", media: "text/plain; charset=utf-8"},
		{name: "version", path: "/version", code: 200, answer: `"minor":"37"`, media: "application/json"},
		{name: "legacy API", path: "/api", code: 200, answer: `"versions":["v1"]`, media: "application/json"},
		{name: "groups", path: "/apis", code: 200, answer: `"discovery.k8s.io/v1beta1"`, media: "application/json"},
		{name: "a group", path: "/apis/apps", code: 200, answer: `"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}`, media: "application/json"},
		{name: "resources", path: "/api/v1", code: 200, answer: `"name":"services/status"`, media: "application/json"},
		{name: "no openapi", path: "/openapi/v2", code: 404, answer: `"reason":"NotFound"`, media: "application/json"},
		{name: "no such group", path: "/apis/batch/v1/jobs", code: 404, answer: `"kind":"Status"`, media: "application/json"},
		{name: "no such version", path: "/api/v2/services", code: 404, answer: `"kind":"Status"`, media: "application/json"},
		{name: "anything", path: "/api/v1/services", accept: "*/*", code: 200, answer: `"kind":"ServiceList"`, media: "application/json"},
		{name: "kubectl wants a table", path: "/api/v1/services", accept: "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
			code: 200, answer: `"kind":"ServiceList"`, media: "application/json"},
		{name: "protobuf first", path: "/api/v1/services", accept: "application/vnd.kubernetes.protobuf,*/*", code: 200,
			answer: "k8s\x00", media: "application/vnd.kubernetes.protobuf"},
		{name: "protobuf has no such type here", path: "/version", accept: "application/vnd.kubernetes.protobuf,*/*", code: 200,
			answer: "gitVersion", media: "application/json"},
		{name: "not acceptable", path: "/api/v1/services", accept: "text/html", code: 406, answer: `"kind":"Status"`, media: "application/json"},
		{name: "list with a wrong version", path: "/api/v1/services?resourceVersion=x", code: 400, answer: "invalid resource version"},
		{name: "no service CIDRs", path: "/apis/networking.k8s.io/v1/servicecidrs", code: 200, answer: `"items":[]`},
		{name: "create across namespaces", method: "POST", path: "/api/v1/services", body: "{}", code: 405, answer: `"kind":"Status"`},
		{name: "create of another kind", method: "POST", path: "/api/v1/namespaces/default/services", body: `{"apiVersion":"v1","kind":"Pod"}`, code: 400},
		{name: "create in another namespace", method: "POST", path: "/api/v1/namespaces/x/services", code: 400,
			body: `{"apiVersion":"v1","kind":"Service","metadata":{"name":"a","namespace":"y"}}`},
		{name: "no JSON", method: "POST", path: "/api/v1/namespaces/default/services", body: `{`, code: 400},
		{name: "JSON null", method: "POST", path: "/api/v1/namespaces/default/services", body: `null`, code: 400},
		{name: "nothing", method: "POST", path: "/api/v1/namespaces/default/services", code: 400},
		{name: "metadata that is none", method: "POST", path: "/api/v1/namespaces/default/services", code: 400,
			body: `{"apiVersion":"v1","kind":"Service","metadata":7}`},
		{name: "an endpoint that is none", method: "POST", path: "/apis/discovery.k8s.io/v1beta1/namespaces/default/endpointslices", code: 400,
			body: `{"metadata":{"name":"s"},"addressType":"IPv4","endpoints":[{"nodeName":{},"topology":{"kubernetes.io/hostname":{}}}]}`},
		{name: "strange body type", method: "POST", path: "/api/v1/namespaces/default/services", contentType: "text/plain", body: "x", code: 415},
		{name: "yaml", method: "POST", path: "/api/v1/namespaces/default/services", contentType: "application/yaml",
			body: "metadata: {name: from-yaml}\nspec: {ports: [{port: 80}]}", code: 201, answer: `"name":"from-yaml"`},
		{name: "access review", method: "POST", path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body: "{}", code: 201, answer: `"allowed":true`},
		{name: "reviews are not stored", path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", code: 405},
		{name: "unknown subresource", path: "/api/v1/namespaces/default/pods/web/log", code: 404},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.method == "" {
				test.method = http.MethodGet
			}
			code, media, answer := l.curl(t, test.method, test.path, test.accept, test.contentType, test.body)
			if code != test.code || !strings.Contains(answer, test.answer) || test.media != "" && media != test.media {
				t.Errorf("got %d %s %s", code, media, answer)
			}
		})
	}
}

// A protobuf list is built from cached objects; it must equal the API machinery's encoding of the JSON list, also when cached.
func TestProtobufListsMatchJSON(t *testing.T) {
	l := start(t, nil)
	client := l.client(t)
	for _, name := range []string{"b", "a", "c"} {
		if _, err := client.CoreV1().Services("default").Create(t.Context(), service(name, "10.96.0.1"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		l.apply(t, slice(name+"-1", name, "node-1", "10.244.1.4", "10.244.1.5"))
		l.apply(t, configMap(name, map[string]string{"z": "1", "y": strings.Repeat("2", 300)}))
	}
	serializer := protobufserializer.NewSerializer(scheme.Scheme, scheme.Scheme)
	for _, path := range []string{"/api/v1/services", "/api/v1/services?fieldSelector=metadata.name%3Db", "/api/v1/namespaces/none/services", "/api/v1/configmaps",
		"/apis/discovery.k8s.io/v1/endpointslices", "/apis/discovery.k8s.io/v1beta1/endpointslices"} {
		_, _, text := l.curl(t, http.MethodGet, path, "application/json", "", "")
		list, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(text), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		var want bytes.Buffer
		if err := serializer.Encode(list, &want); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, _, got := l.curl(t, http.MethodGet, path, "application/vnd.kubernetes.protobuf", "", ""); got != want.String() {
				t.Errorf("%s: %d bytes in protobuf, want %d:\n%q\nwant\n%q", path, len(got), want.Len(), got, want.String())
			}
		}
	}
}

func TestResponsesAreDeterministic(t *testing.T) {
	answers := func() []string {
		l := start(t, nil)
		client := l.client(t)
		for _, name := range []string{"b", "a", "c"} {
			if _, err := client.CoreV1().Services("default").Create(t.Context(), service(name, "10.96.0.1"), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			l.apply(t, slice(name+"-1", name, "node-1", "10.244.1.4", "10.244.1.5"))
			l.apply(t, configMap(name, map[string]string{"z": "1", "y": "2", "x": "3", "w": "4"}))
		}
		remove(t, l, "Service", "b")
		var all []string
		for _, path := range []string{"/api/v1/services", "/api/v1/configmaps", "/apis", "/apis/discovery.k8s.io/v1/endpointslices", "/apis/discovery.k8s.io/v1beta1/endpointslices",
			"/api/v1/services?watch=1&resourceVersion=1&timeoutSeconds=1"} {
			for _, accept := range []string{"application/json", "application/vnd.kubernetes.protobuf,application/json"} {
				_, _, answer := l.curl(t, http.MethodGet, path, accept, "", "")
				all = append(all, answer)
			}
		}
		return all
	}
	if diff := cmp.Diff(answers(), answers()); diff != "" {
		t.Error(diff)
	}
}

func TestServeEndsItsWatches(t *testing.T) {
	l := start(t, nil)
	w := follow(t, l.client(t), metav1.ListOptions{})
	eventually(t, "the watch is open", func() bool { return len(l.Watchers(replay.Scope{})) == 1 })
	l.end()
	closed(t, w)
	eventually(t, "the server has forgotten the watch", func() bool { return len(l.Watchers(replay.Scope{})) == 0 })
}

func TestAWatchEndsWithItsClient(t *testing.T) {
	l := start(t, nil)
	w := follow(t, l.client(t), metav1.ListOptions{})
	eventually(t, "the watch is open", func() bool { return len(l.Watchers(replay.Scope{})) == 1 })
	w.Stop()
	eventually(t, "the server has forgotten the watch", func() bool { return len(l.Watchers(replay.Scope{})) == 0 })
}

func TestAwayDisconnectsAClient(t *testing.T) {
	l := start(t, nil)
	w := follow(t, l.client(t), metav1.ListOptions{})
	eventually(t, "the watch is open", func() bool { return len(l.Watchers(replay.Scope{})) == 1 })
	here, there := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.1")
	list := func() error { // without client-go, which would try for a while
		resp, err := http.Get(l.url + "/api/v1/configmaps")
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	lift := l.Fault(replay.Away{Addrs: []netip.Addr{there}})
	if err := list(); err != nil || len(l.Watchers(replay.Scope{})) != 1 {
		t.Errorf("a client was kept away that is at another address: %v", err)
	}
	lift()
	lift = l.Fault(replay.Away{Addrs: []netip.Addr{there, here}})
	eventually(t, "the watch has ended", func() bool { return len(l.Watchers(replay.Scope{})) == 0 })
	for range w.ResultChan() {
		t.Error("an event came from a server that is away")
	}
	if list() == nil {
		t.Error("a server that is away answered")
	}
	lift()
	lift() // a second time changes nothing
	if err := list(); err != nil {
		t.Errorf("it did not come back: %v", err)
	}
}

// A write during a delay is delivered after the same delay, counted from the write, without waiting for a further write.
func TestEventsDuringADelayAreDelivered(t *testing.T) {
	const delay, between = 300 * time.Millisecond, 50 * time.Millisecond
	l := start(t, nil)
	w := follow(t, l.client(t), metav1.ListOptions{})
	defer l.Fault(replay.DelayWatches{Scope: replay.Scope{UserAgent: "replay-test", Resource: "configmaps"}, By: delay})()
	names, written := []string{"a", "b", "c", "d"}, []time.Time{}
	for i, name := range names {
		if i > 0 {
			<-time.After(between)
		}
		written = append(written, time.Now())
		l.apply(t, configMap(name, nil))
	}
	for i, name := range names {
		expect(t, w, fmt.Sprintf("ADDED %s %d", name, i+2))
		if took := time.Since(written[i]); took < delay {
			t.Errorf("%s came after %s, want %s at least", name, took, delay)
		}
	}
}

func TestDelayCountsFromTheWrite(t *testing.T) {
	const delay = 300 * time.Millisecond
	l := start(t, nil)
	w := follow(t, l.client(t), metav1.ListOptions{})
	other := follow(t, l.client(t), metav1.ListOptions{})
	lift := l.Fault(replay.DelayWatches{Scope: replay.Scope{UserAgent: "replay-test", Resource: "configmaps"}, By: delay})
	defer lift()
	l.Fault(replay.DelayWatches{Scope: replay.Scope{UserAgent: "somebody else"}, By: time.Hour})
	l.Fault(replay.DelayWatches{Scope: replay.Scope{Resource: "services"}, By: time.Hour})
	began := time.Now()
	l.apply(t, configMap("a", nil))
	l.apply(t, configMap("b", nil))
	expect(t, w, "ADDED a 2", "ADDED b 3")
	if took := time.Since(began); took < delay || took > patience/2 {
		t.Errorf("two events came after %s, want %s for both together", took, delay)
	}
	lift()
	l.Fault(replay.DelayWatches{By: time.Hour})()
	expect(t, other, "ADDED a 2", "ADDED b 3")
	lift = l.Fault(replay.DelayWatches{By: time.Hour})
	l.apply(t, configMap("c", nil))
	lift() // releases what is under way
	expect(t, w, "ADDED c 4")
}
