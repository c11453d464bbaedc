package replay_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/lab/replay"
	"github.com/hitless/hitless/reports"
)

const webTimeline = `# a Service gets an endpoint and loses it
- at: 0s
  apply:
    apiVersion: v1
    kind: Service
    metadata: {name: web}
    spec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}
    status: {loadBalancer: {ingress: [{ip: 203.0.113.10}]}}
- at: 0s
  apply:
    apiVersion: discovery.k8s.io/v1beta1
    kind: EndpointSlice
    metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
    addressType: IPv4
    endpoints: [{addresses: [10.244.1.4], topology: {kubernetes.io/hostname: node-1}}]
    ports: [{port: 8080}]
- at: 1.5s
  delete: {kind: EndpointSlice, name: web-1}
`

// handClock is a clock that jumps to where a wait wants to be.
type handClock struct{ now time.Duration }

func (c *handClock) Now() time.Duration { return c.now }
func (c *handClock) Until(ctx context.Context, at time.Duration) error {
	c.now = max(c.now, at)
	return ctx.Err()
}

func TestTimelineIsPlayed(t *testing.T) {
	timeline, err := replay.ParseTimeline("web.yaml", []byte(webTimeline))
	if err != nil {
		t.Fatal(err)
	}
	l := start(t, nil)
	w, err := l.client(t).DiscoveryV1().EndpointSlices("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var got []reports.Event
	if err := timeline.Play(t.Context(), &handClock{}, l.Server, func(e reports.Event) { got = append(got, e) }); err != nil {
		t.Fatal(err)
	}
	done := map[string]string{"state": "end"}
	want := []reports.Event{
		{Kind: reports.EventStep, Object: "Service default/web", Text: "apply Service default/web", Attrs: done},
		{Kind: reports.EventStep, Object: "EndpointSlice default/web-1", Text: "apply EndpointSlice default/web-1", Attrs: done},
		{At: 1500 * time.Millisecond, Kind: reports.EventStep, Object: "EndpointSlice default/web-1", Text: "delete EndpointSlice default/web-1", Attrs: done},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	expect(t, w, "ADDED web-1 3", "DELETED web-1 4")
	if body, _, _ := list(t, l, "/api/v1/services"); !strings.Contains(body, `"ip":"203.0.113.10"`) {
		t.Errorf("the status was not applied: %s", body)
	}
}

func TestApplyWithoutStatusKeepsIt(t *testing.T) {
	l := start(t, nil)
	timeline, err := replay.ParseTimeline("web.yaml", []byte(webTimeline[:strings.Index(webTimeline, "- at: 1.5s")]+`- at: 2s
  apply: {apiVersion: v1, kind: Service, metadata: {name: web}, spec: {clusterIP: 10.96.0.10, ports: [{port: 81}]}}
`))
	if err != nil {
		t.Fatal(err)
	}
	if err := timeline.Play(t.Context(), &handClock{}, l.Server, func(reports.Event) {}); err != nil {
		t.Fatal(err)
	}
	if _, _, body := l.curl(t, http.MethodGet, "/api/v1/services", "", "", ""); !strings.Contains(body, `"ip":"203.0.113.10"`) || !strings.Contains(body, `"port":81`) {
		t.Error(body)
	}
}

func TestStepThatCannotBeDoneEndsTheTimeline(t *testing.T) {
	timeline, err := replay.ParseTimeline("x", []byte("\n- at: 1s\n  delete: {kind: Pod, name: none, gracePeriodSeconds: 0}\n"))
	if err != nil {
		t.Fatal(err)
	}
	var got reports.Event
	err = timeline.Play(t.Context(), &handClock{}, replay.New(), func(e reports.Event) { got = e })
	if err == nil || !strings.Contains(err.Error(), "line 2") || got.Attrs["state"] != "failed" {
		t.Errorf("error %v, event %v", err, got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := timeline.Play(ctx, replay.ClockFrom(time.Now()), replay.New(), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

func TestTimelineErrorsNameTheLine(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"empty":             {"# nothing\n", "f:1: the timeline is empty"},
		"not a list":        {"\nat: 0s\n", "f:2: the timeline must be a list"},
		"not YAML":          {"- at: 0s\n  apply: {\n", "f:2: this is not YAML"},
		"two documents":     {"- {at: 0s, delete: {kind: Pod, name: a}}\n---\n- 1\n", "f:2: a second document"},
		"no time":           {"- delete: {kind: Pod, name: a}\n", "f:1: a step needs at:"},
		"no duration":       {"- at: 5\n  delete: {kind: Pod, name: a}\n", `f:1: at: "5" is not a duration`},
		"negative":          {"- at: -5s\n  delete: {kind: Pod, name: a}\n", `f:1: at: "-5s" is not a duration`},
		"time is a mapping": {"- at: {}\n  delete: {kind: Pod, name: a}\n", `f:1: at: "" is not a duration`},
		"backwards":         {"- {at: 2s, delete: {kind: Pod, name: a}}\n- {at: 1s, delete: {kind: Pod, name: a}}\n", "f:2: at: 1s comes after 2s"},
		"nothing to do":     {"- at: 5s\n", "f:1: a step needs exactly one of"},
		"two things to do":  {"- at: 5s\n  delete: {}\n  apply: {}\n", "f:1: a step needs exactly one of"},
		"unknown key":       {"- at: 5s\n  aply: {}\n", `f:2: unknown key "aply"; known keys are at, apply, delete`},
		"key twice":         {"- at: 5s\n  at: 6s\n", `f:2: "at" is given twice`},
		"step is a word":    {"- word\n", "f:1: want a mapping"},
		"delete what":       {"- at: 5s\n  delete: {kind: Widget, name: a}\n", `f:2: delete: kind "Widget" is not known`},
		"delete whom":       {"- at: 5s\n  delete: {kind: Pod}\n", "f:2: delete: name is missing"},
		"grace":             {"- at: 5s\n  delete: {kind: Pod, name: a, gracePeriodSeconds: x}\n", `f:2: gracePeriodSeconds: "x" cannot be read`},
		"node in namespace": {"- at: 5s\n  delete: {kind: Node, namespace: x, name: a}\n", "f:2: delete: a Node has no namespace"},
		"apply a word":      {"- at: 5s\n  apply: x\n", "f:2: apply: want an object"},
		"unknown kind":      {"- at: 5s\n  apply: {apiVersion: v1, kind: Widget}\n", `f:2: apply: apiVersion "v1", kind "Widget" is not known`},
		"unknown field": {"- at: 5s\n  apply:\n    apiVersion: v1\n    kind: Service\n    metadata: {name: a}\n    spec:\n      prots: []\n",
			`f:7: apply: strict decoding error: unknown field "spec.prots"`},
		"unknown field in a list": {"- at: 5s\n  apply:\n    apiVersion: v1\n    kind: Service\n    metadata: {name: a}\n    spec:\n      ports:\n      - port: 1\n      - prot: 2\n",
			`f:9: apply: strict decoding error: unknown field "spec.ports[1].prot"`},
		"wrong type": {"- at: 5s\n  apply:\n    apiVersion: v1\n    kind: Service\n    metadata: {name: a}\n    spec:\n      clusterIP: 7\n",
			"f:7: apply: "},
		"field twice": {"- at: 5s\n  apply:\n    apiVersion: v1\n    kind: Service\n    metadata: {name: a}\n    kind: Pod\n", `f:6: "kind" is given twice`},
		"alias":       {"- at: 5s\n  apply:\n    apiVersion: v1\n    kind: &k Service\n    metadata: {name: *k}\n", "f:5: aliases are not part"},
		"no address type": {"- at: 5s\n  apply: {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: a}}\n",
			"f:2: apply: EndpointSlice.discovery.k8s.io \"a\" is invalid: addressType"},
		"no name": {"- at: 5s\n  apply: {apiVersion: v1, kind: Pod}\n", "f:2: apply: metadata.name is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := replay.ParseTimeline("f", []byte(test.text))
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
		})
	}
}

func FuzzParseTimeline(f *testing.F) {
	f.Add([]byte(webTimeline))
	f.Add([]byte("- at: 5s\n  apply: {apiVersion: v1, kind: Pod, metadata: 7}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		timeline, err := replay.ParseTimeline("f", text)
		if err != nil && !strings.HasPrefix(err.Error(), "f:") {
			t.Errorf("error without a place: %v", err)
		}
		if err == nil { // what parses can be done, but for deletions of what is not there
			s := replay.New()
			for _, step := range timeline.Steps {
				if step.Apply == nil {
					continue
				}
				if _, err := s.Apply(step.Apply); err != nil {
					t.Errorf("line %d: %v", step.Line, err)
				}
			}
		}
	})
}
