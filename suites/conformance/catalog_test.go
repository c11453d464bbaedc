package conformance

import (
	"slices"
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
)

func bundled() Config {
	return Config{Options: run.Options{LabOptions: site.LabOptions{Subject: "bundled"}}}
}

// Each spec is complete: a name of its own, a promise, a source, and labels that the suite knows.
func TestEachSpecIsComplete(t *testing.T) {
	known, names, texts := labels(), map[string]bool{}, map[string]bool{}
	for _, s := range Catalog() {
		if names[s.Name] || texts[s.Text()] {
			t.Errorf("two specs are called %s", s.Name)
		}
		names[s.Name], texts[s.Text()] = true, true
		if s.Promise == "" || s.Source == "" || len(s.Features) == 0 || s.Run == nil || (s.Level != Core && s.Level != Extended) {
			t.Errorf("%s lacks its promise, source, feature, level or run: %+v", s.Name, s)
		}
		for _, label := range s.Labels() {
			if !slices.Contains(known, label) {
				t.Errorf("%s has the label %q, which no list knows", s.Name, label)
			}
		}
	}
}

// Runs with one name would share a folder.
func TestRunsHaveNamesOfTheirOwn(t *testing.T) {
	names := map[string]bool{}
	for _, r := range runs(Catalog()) {
		if names[r.Name] || strings.ContainsAny(r.Name, "/ ") {
			t.Errorf("the name of run %q is taken, or is not the name of a folder", r.Name)
		}
		names[r.Name] = true
	}
}

// Each run of the catalog is possible in a lab with its parameters, and the lanes of each spec are among those of its run.
func TestEachRunIsPossibleInALab(t *testing.T) {
	c := bundled().withDefaults()
	for _, r := range runs(Catalog()) {
		if why, _, err := c.lacks(t.Context(), r); why != "" || err != nil {
			t.Errorf("%s: %s %v", r.Name, why, err)
		}
	}
	for _, s := range Catalog() {
		for _, lane := range s.lanes {
			if lanes, given := s.Run.Set["lanes"]; given && !slices.Contains(strings.Split(lanes, ","), lane) {
				t.Errorf("%s judges the lane %s, and its run has %s", s.Name, lane, lanes)
			}
		}
	}
	wrong := &Run{Name: "wrong", Scenario: "quiet", Set: set("quietfor", "1s")}
	if _, _, err := c.lacks(t.Context(), wrong); err == nil {
		t.Error("a run with a misspelled parameter is possible")
	}
}

func TestTheCatalogIsLargeEnough(t *testing.T) {
	n := map[Kind]int{}
	for _, s := range Catalog() {
		n[s.Kind]++
	}
	if n[Disruption] < 45 || len(Catalog()) < 160 {
		t.Errorf("the catalog has %d specs, %d of them disruptions; want 160 and 45 at least", len(Catalog()), n[Disruption])
	}
}

// A kube-proxy without dual stack serves one family only: it skips the specs of IPv6 and of both families, and no other.
func TestAnOldProxySkipsIPv6AndDualStack(t *testing.T) {
	for subject, serves := range map[string]bool{"kube-proxy@v1.12.5/ipvs": false, "kube-proxy@v1.20.15/iptables": false, "kube-proxy@v1.21.14/iptables": true, "bundled": true} {
		c := bundled()
		c.Options.Subject = subject
		planned, _, err := c.Plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		families := map[Family]int{}
		for _, p := range planned {
			families[p.Family]++
			if skipped := p.Family != IPv4 && !serves; skipped != (p.Skip != "") {
				t.Errorf("%s, %s: skipped because %q", subject, p.Name, p.Skip)
			}
			if p.Skip != "" && !strings.Contains(p.Skip, "v1.21") {
				t.Errorf("%s, %s: the reason %q does not name the version that serves it", subject, p.Name, p.Skip)
			}
		}
		if families[IPv4] == 0 || families[IPv6] == 0 || families[DualStack] == 0 {
			t.Errorf("%s: the plan has %v specs", subject, families)
		}
	}
}

// Real watches cannot be ended on command, and the real control plane has IPv4 only: a lab with it skips those runs, and says why.
func TestASiteSkipsWhatItLacks(t *testing.T) {
	c := bundled()
	c.Options.ControlPlane = "kube"
	planned, _, err := c.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	skipped, run := 0, 0
	for _, p := range planned {
		away := slices.Contains(p.Features, "api-outage") || p.Kind == Disruption && p.Family != IPv4
		if away != (p.Skip != "") {
			t.Errorf("%s: skipped because %q", p.Name, p.Skip)
		}
		if p.Skip == "" {
			run++
		} else if skipped++; !strings.Contains(p.Skip, "control plane") {
			t.Errorf("%s: the reason %q does not name what is missing", p.Name, p.Skip)
		}
	}
	if skipped == 0 || run == 0 {
		t.Errorf("%d specs skipped and %d not", skipped, run)
	}
}

// On a live cluster only what the API allows runs, and without lanes of UDP, which its backends do not answer.
func TestALiveClusterSkipsWhatNeedsALab(t *testing.T) {
	c := Config{Options: run.Options{Live: &site.LiveOptions{Kubeconfig: "cluster.yaml"}}}
	planned, _, err := c.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wanted, seen := map[string]bool{"quiet new": true, "quiet open": true, "quiet datagrams": false, "rollout-local new": true, "rollout-local fresh": false,
		"rollout-node-port new": false, "restart-term new": false, "drain new": false, "api-away new": false, "policy-external open": true}, 0
	for _, p := range planned {
		if want, listed := wanted[p.Name]; listed {
			if seen++; want != (p.Skip == "") {
				t.Errorf("%s: skipped because %q", p.Name, p.Skip)
			}
		}
		if lanes := p.Run.Set["lanes"]; p.Skip == "" && strings.Contains(lanes, "udp") {
			t.Errorf("%s runs with the lanes %s", p.Name, lanes)
		}
	}
	if seen != len(wanted) {
		t.Errorf("the plan has %d of %d wanted specs", seen, len(wanted))
	}
}

func TestWrongCallsAreRefused(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"unknown subject":       func(c *Config) { c.Options.Subject = "kube-proxy" },
		"unknown control plane": func(c *Config) { c.Options.ControlPlane = "cube" },
		"unknown label":         func(c *Config) { c.Selection.Labels = "core && smok" },
		"no such focus":         func(c *Config) { c.Selection.Focus = []string{"resart"} },
		"bad filter":            func(c *Config) { c.Selection.Labels = "core &&" },
	} {
		c := bundled()
		change(&c)
		if _, _, err := c.Plan(t.Context()); !run.IsUsage(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := bundled().Plan(t.Context()); err != nil {
		t.Errorf("a right call is refused: %v", err)
	}
}

// Times on the real clock cannot be compared: the specs of costs are skipped there, and no other.
func TestCostsNeedTheVirtualClock(t *testing.T) {
	for _, change := range []func(*Config){func(c *Config) { c.Options.Clock = "real" }, func(c *Config) {}} {
		c := bundled()
		c.Options.Kernel = "vm" // the host would be tried with the program, which is this test
		change(&c)
		c.Selection.Labels = "cost || rollout"
		planned, _, err := c.Plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range planned {
			if want := p.Kind == Cost && c.Options.Clock == "real"; want != (p.Skip != "") || want && !strings.Contains(p.Skip, "virtual clock") {
				t.Errorf("clock %q, %s: skipped because %q", c.Options.Clock, p.Name, p.Skip)
			}
		}
	}
}

// A pod that stays unused after a restart (kubernetes#92019) shows only at a node without another ready pod: restart-ready has two pods, and
// the proxies of both nodes restart in turn, each while its own node's pod is unready.
func TestAPodThatStaysUnusedShows(t *testing.T) {
	r := runOf(t, "restart-ready")
	if which := r.Set["which"]; r.Set["replicas"] != "2" || r.Nodes != 2 || which != "" && which != "each" {
		t.Errorf("with replicas=%s and which=%q on %d nodes another pod answers for the unused one", r.Set["replicas"], which, r.Nodes)
	}
}

// runOf is the run of a name.
func runOf(t *testing.T, name string) *Run {
	t.Helper()
	i := slices.IndexFunc(runs(Catalog()), func(r *Run) bool { return r.Name == name })
	if i < 0 {
		t.Fatalf("the catalog has no run %s", name)
	}
	return runs(Catalog())[i]
}
