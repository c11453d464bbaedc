package scenarios

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/timeline"
)

// fakeProber stores the lanes without starting them.
type fakeProber struct {
	asked    []LaneSpec
	failures func() int // none when nil
}

func (p *fakeProber) Failures() int {
	if p.failures == nil {
		return 0
	}
	return p.failures()
}

func (p *fakeProber) StartLane(_ context.Context, l LaneSpec) (func() error, error) {
	p.asked = append(p.asked, l)
	return func() error { return nil }, nil
}

// started returns the names of the lanes that the scenario restart starts with these parameters.
func started(t *testing.T, set map[string]string) (names []string, w *World) {
	t.Helper()
	params, err := restart().Fill(set)
	if err != nil {
		t.Fatal(err)
	}
	p := &fakeProber{}
	w = &World{Params: params, Clock: &fakeClock{}, Prober: p, Rate: 100,
		run: runState{main: &workload{name: "web", targets: map[record.Family]target{record.IPv4: {tcp: "203.0.113.10:80"}}, datagrams: params.Datagrams()}}}
	if err := w.startLanes(t.Context(), restart()); err != nil {
		t.Fatal(err)
	}
	for _, l := range p.asked {
		names = append(names, l.Name)
		if l.Protocol != l.Name || l.Control || l.Target != "203.0.113.10:80" || l.Rate != 100 || (l.Connections > 0) != (l.Name == record.ProtocolLong) {
			t.Errorf("the lane is %+v", l)
		}
	}
	return names, w
}

func TestLanesParameter(t *testing.T) {
	for given, want := range map[string]string{
		"":                                      "tcp-new",
		"udp-fresh":                             "udp-fresh",
		"tcp-new,udp-sticky,tcp-long":           "tcp-long,udp-sticky,tcp-new", // lasting connections are opened first
		strings.Join(timeline.Protocols(), ","): strings.Join(timeline.Protocols(), ","),
		"http-reuse,udp-fresh,udp-sticky":       "http-reuse,udp-sticky,udp-fresh",
	} {
		set := map[string]string{"lanes": given}
		if given == "" {
			set = nil
		}
		names, w := started(t, set)
		if got := strings.Join(names, ","); got != want {
			t.Errorf("lanes=%s starts %s, want %s", given, got, want)
		}
		udp := 0
		for _, p := range w.run.main.service(w).Spec.Ports {
			if p.Protocol == "UDP" {
				udp++
			}
		}
		if wanted := strings.Contains(given, "udp-"); (udp == 1) != wanted {
			t.Errorf("lanes=%s: the Service has %d UDP ports", given, udp)
		}
		for _, name := range names {
			if err := w.stopLane(name); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestBadLanesAreRefused(t *testing.T) {
	for _, c := range []struct{ lanes, balancer, want string }{
		{"", "passthrough", "some of"},
		{"tcp-new,", "passthrough", "some of"},
		{"tcp-new,tcp-new", "passthrough", "each once"},
		{"udp", "passthrough", "udp-fresh"},
		{"tcp-new,udp-fresh", "haproxy", "TCP only"},
	} {
		_, err := soak().Fill(map[string]string{"lanes": c.lanes, "loadBalancer": c.balancer})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("lanes=%s with %s gave %v, want an error with %q", c.lanes, c.balancer, err, c.want)
		}
	}
	if _, err := soak().Fill(map[string]string{"lanes": "http-reuse,tcp-long", "loadBalancer": "haproxy"}); err != nil {
		t.Error(err)
	}
}

// Scenarios with their own lanes have no parameter `lanes`, because names of lanes must be unique.
func TestNoScenarioHasALaneTwice(t *testing.T) {
	for _, s := range All() {
		named := slices.ContainsFunc(s.Parameters, func(p Parameter) bool { return p.Key == Lanes.Key })
		if s.Lanes != nil && named {
			t.Errorf("%s starts its own lanes and has the parameter lanes", s.Name)
		}
	}
}

// A lane of a timeline equals one of the parameter `lanes`: same target and same policy.
func TestTimelineLaneEqualsNamedLane(t *testing.T) {
	for _, protocol := range timeline.Protocols() {
		line, err := timeline.Parse("f", []byte("hitless timeline 1\nset lanes=none-of-them\nlane "+protocol+"\n+1s end\n"))
		if err != nil {
			t.Fatal(err)
		}
		w := &World{Params: Params{"lanes": protocol, "reuse": "10s"}, Rate: 100, run: runState{main: &workload{name: "web", targets: map[record.Family]target{record.IPv4: {tcp: "192.0.2.1:30080", udp: "192.0.2.1:30081"}}}}}
		named, own := w.parameterLanes(), w.timelineLanes(line)
		if diff := cmp.Diff(named, own); diff != "" {
			t.Errorf("%s (-named +of the timeline)\n%s", protocol, diff)
		}
		if record.Datagrams(protocol) != (own[0].Target == "192.0.2.1:30081") {
			t.Errorf("%s goes to %s", protocol, own[0].Target)
		}
		if _, err := Replay(line).Fill(map[string]string{"loadBalancer": "haproxy"}); (err != nil) != record.Datagrams(protocol) || err != nil && !strings.Contains(err.Error(), "TCP only") {
			t.Errorf("%s behind HAProxy gave %v", protocol, err)
		}
	}
}
