package scenarios

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hitless/hitless/scenarios/timeline"
)

// labOffers and liveOffers are the capabilities of the two kinds of sites.
var (
	labOffers = Offers{NodeGroups, RestartableProxies, PowerControl, NodeCommands, ControllableAPI, OwnLoadBalancer, SameAddresses, ClientPlacement,
		PodLanes, DatagramBackends, Journal, ManyServices, OwnNodes}
	liveOffers = Offers{ProxyDaemonSet, MarkedChanges, SiteTargets}
)

// siteOf returns a site with proxies and a control plane, each unless nil.
func siteOf(proxies Proxies, plane *fakeAPI) *Site {
	s := NewSite(nil, nil)
	if proxies != nil {
		s.OfferProxies(proxies)
	}
	if plane != nil {
		s.OfferControlPlane(plane)
	}
	return s
}

func webRun() runState { return runState{main: &workload{name: "web"}} }

// World and Scenario stay small: capabilities belong to the site, and run state to one struct.
func TestWorldAndScenarioAreSmall(t *testing.T) {
	world, scenario := reflect.TypeFor[World](), reflect.TypeFor[Scenario]()
	if world.NumField() > 14 || scenario.NumField() > 9 {
		t.Errorf("World has %d fields and Scenario %d, want at most 14 and 9", world.NumField(), scenario.NumField())
	}
	for i := range world.NumField() {
		if f := world.Field(i); f.Type.Kind() == reflect.Func {
			t.Errorf("World.%s is a function", f.Name)
		}
	}
}

func TestEachCapabilityIsExplained(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Capabilities() {
		if c.String() == "" || c.Meaning() == "" || capabilities[c].advice == "" || seen[c.String()] {
			t.Errorf("capability %d is %q: %q, %q", c, c, c.Meaning(), capabilities[c].advice)
		}
		seen[c.String()] = true
	}
}

// A missing capability is an error that names it, also without a site.
func TestAnAbsentCapabilityIsAnError(t *testing.T) {
	for _, w := range []*World{{}, {Site: NewSite(nil, nil)}} {
		if _, err := w.proxies(); err == nil || !strings.Contains(err.Error(), RestartableProxies.String()) {
			t.Errorf("proxies gave %v", err)
		}
		if err := w.perform(t.Context(), timeline.Step{Verb: "node off", Object: "node-1"}); err == nil || !strings.Contains(err.Error(), PowerControl.String()) {
			t.Errorf("node off gave %v", err)
		}
	}
}

// The site's capabilities decide which scenario of a name is selected. The error names the missing ones.
func TestSelect(t *testing.T) {
	real := slices.DeleteFunc(slices.Clone(labOffers), func(c Capability) bool { return c == ControllableAPI })
	for name, c := range map[string]struct {
		scenario string
		offers   Offers
		set      map[string]string
		summary  string // of the entry that was selected
		want     string // of the error
	}{
		"restart in a lab":          {"restart", labOffers, map[string]string{"signal": "KILL"}, restart().Summary, ""},
		"restart of a DaemonSet":    {"restart", liveOffers, map[string]string{"proxy": "kube-system/ds/kube-proxy"}, restartLive().Summary, ""},
		"a signal for a DaemonSet":  {"restart", liveOffers, map[string]string{"signal": "KILL"}, "", `no key "signal"`},
		"drain in a lab":            {"drain", labOffers, nil, drain().Summary, ""},
		"drain of a live node":      {"drain", liveOffers, nil, drainLive().Summary, ""},
		"upgrade in a lab":          {"upgrade", real, nil, upgrade().Summary, ""},
		"upgrade of a DaemonSet":    {"upgrade", liveOffers, nil, upgradeLive().Summary, ""},
		"migrate on a cluster":      {"migrate", liveOffers, nil, "", RestartableProxies.String()},
		"interference on a cluster": {"interference", liveOffers, nil, "", NodeCommands.String()},
		"recreate on a cluster":     {"recreate", liveOffers, nil, "", SameAddresses.String()},
		"api of a real API server":  {"api", real, nil, "", "--controlplane replay"},
		"api of a controllable one": {"api", labOffers, nil, api().Summary, ""},
		"a soak":                    {"soak", real, nil, soak().Summary, ""},
		"a soak with API blips":     {"soak", real, map[string]string{blipRate.Key: "1"}, "", "--controlplane replay"},
		"UDP on a cluster":          {"rollout", liveOffers, map[string]string{"lanes": "udp-fresh"}, "", "lanes of TCP"},
		"a client on a node":        {"quiet", liveOffers, map[string]string{"client": "outside"}, "", ClientPlacement.String()},
		"a load balancer of ours":   {"quiet", liveOffers, map[string]string{"flows": "sticky"}, "", OwnLoadBalancer.String()},
		"lanes to pods":             {"quiet", liveOffers, map[string]string{"direct": "off"}, "", PodLanes.String()},
		"no such scenario":          {"rolout", labOffers, nil, "", "drain, fault, flap"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, err := Select(c.scenario, c.offers, c.set)
			switch {
			case c.want == "" && (err != nil || s.Summary != c.summary):
				t.Errorf("selected %q, %v; want %q", s.Summary, err, c.summary)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want an error with %q", err, c.want)
			}
		})
	}
	if got, want := Names(liveOffers), []string{"drain", "flap", "policy", "quiet", "restart", "rollout", "scale", "upgrade"}; !slices.Equal(got, want) {
		t.Errorf("a live cluster can run %q, want %q", got, want)
	}
}

// A timeline that cordons a node or evicts its pods would leave a live cluster like that: it is refused, and the error says what to do.
func TestTimelinesCordonOnlyNodesOfTheirOwn(t *testing.T) {
	for _, step := range []string{"node cordon node-1", "node evict node-1"} {
		line, err := timeline.Parse("f", []byte("hitless timeline 1\n+0s "+step+"\n+1s end\n"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Replay(line).Select(liveOffers, nil); err == nil || !slices.Equal(Lacking(err), []Capability{OwnNodes}) || !strings.Contains(err.Error(), "`hitless run drain --kubeconfig FILE`") {
			t.Errorf("%s on a live cluster: %v", step, err)
		}
		if _, err := Replay(line).Select(labOffers, nil); err != nil {
			t.Errorf("%s in a lab: %v", step, err)
		}
	}
}

// A drain of a live cluster has the permissions for each of its steps.
func TestAccessOfALiveDrain(t *testing.T) {
	want := []Access{{"patch", "", "nodes", "", Anywhere}, {"list", "", "pods", "", Anywhere}, {"create", "", "pods", "eviction", Anywhere},
		{"create", "policy", "poddisruptionbudgets", "", InRun}}
	if got := drainLive().Access(drainLive().Defaults()); !slices.Equal(got, want) {
		t.Errorf("it needs %v, want %v", got, want)
	}
}

// Each scenario of a lab writes a timeline with its default parameters, and none of a live cluster does.
func TestWhichScenariosWriteATimeline(t *testing.T) {
	for _, s := range All() {
		want := len(s.Lacks(labOffers)) == 0
		if got := s.written(s.Defaults()); got != want {
			t.Errorf("%s (%s) writes a timeline: %t, want %t", s.Name, s.Summary, got, want)
		}
	}
}

// Of interference only a second proxy is a step that no timeline can write, and only failing programs block a proxy.
func TestWhichInterferenceIsWritten(t *testing.T) {
	for what, want := range map[string]bool{Programs: true, "flush": true, "reload": true, "stale-drop": true, "stale-allow": true, Second: false} {
		params, err := interference().Fill(map[string]string{"what": what, "to": "other"})
		if err != nil {
			t.Fatal(err)
		}
		if got := interference().written(params); got != want {
			t.Errorf("what=%s writes a timeline: %t, want %t", what, got, want)
		}
		if got := interference().Blocks(params); got != (what == Programs) {
			t.Errorf("what=%s blocks a proxy: %t", what, got)
		}
	}
}
