package run

import (
	"encoding/xml"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/scenarios"
	"github.com/hitless/hitless/scenarios/museum"
)

// The scenario of each entry exists and has the entry's parameters.
func TestEntriesCanBeRun(t *testing.T) {
	for _, e := range museum.All() {
		if e.Timeline != nil {
			if line, err := e.Timeline.Check(); err != nil {
				t.Errorf("%s, line %d: %v", e.ID, line, err)
			}
			if err := checkSettings(e.Timeline, e.ID); err != nil {
				t.Error(err)
			}
			continue
		}
		if _, _, err := scenarios.Select(e.Scenario, guest.Offers("replay", "vm"), e.Set); err != nil {
			t.Errorf("%s: %v", e.ID, err)
		}
	}
}

// The proxy that follows the subject has its version, unless the call names another one.
func TestTheProxyAfterAChangeHasTheSubjectsVersion(t *testing.T) {
	e, err := museum.Find("k8s-102314")
	if err != nil {
		t.Fatal(err)
	}
	for subject, want := range map[string]string{"kube-proxy@v1.14.10/iptables": "kube-proxy@v1.14.10/ipvs", "exec:proxy.yaml": "kube-proxy@v1.37.1/ipvs"} {
		o := Options{LabOptions: site.LabOptions{Subject: subject}}
		if err := o.UseEntry(e); err != nil || o.Set["to"] != want {
			t.Errorf("%s is changed to %s (%v), want %s", subject, o.Set["to"], err, want)
		}
	}
	o := Options{LabOptions: site.LabOptions{Subject: "kube-proxy@v1.14.10/iptables"}, Set: map[string]string{"to": "bundled"}}
	if err := o.UseEntry(e); err != nil || o.Set["to"] != "bundled" {
		t.Errorf("a given proxy becomes %s (%v)", o.Set["to"], err)
	}
}

// A subject that cannot run a trigger does not have the bug, and the search goes on.
func TestABugWhoseTriggerTheSubjectCannotRunDoesNotApply(t *testing.T) {
	e, err := museum.Find("k8s-110208")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{LabOptions: site.LabOptions{Subject: "kube-proxy@v1.22.10/userspace", ControlPlane: "replay"}, Seed: 1, Out: filepath.Join(t.TempDir(), "out")}
	b, err := Museum(t.Context(), o, e)
	if err != nil || b.Answer != museum.DoesNotApply || !strings.Contains(b.Reasons[0], "trafficPolicy=Local") {
		t.Errorf("%s: %q, %v", b.Answer, b.Reasons, err)
	}
}

// A proxy in another mode cannot have the bug, and nothing is run.
func TestABugOfAnotherModeDoesNotApply(t *testing.T) {
	e, err := museum.Find("k8s-134147")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{LabOptions: site.LabOptions{Subject: "kube-proxy@v1.37.1/nftables"}, Out: filepath.Join(t.TempDir(), "out")}
	b, err := Museum(t.Context(), o, e)
	if _, statErr := os.Stat(o.Out); err != nil || b.Answer != museum.DoesNotApply || statErr == nil {
		t.Errorf("%+v, %v; the folder exists: %v", b, err, statErr == nil)
	}
}

// An entry has the number of nodes of its runs, which a call cannot change.
func TestNodesOfAnEntry(t *testing.T) {
	for id, need := range map[string]int{"k8s-117205": 1, "k8s-103857": 2} {
		e, err := museum.Find(id)
		if err != nil {
			t.Fatal(err)
		}
		for given, want := range map[int]bool{0: true, need: true, 5: false} {
			o := Options{LabOptions: site.LabOptions{Nodes: given}}
			if err := o.UseEntry(e); (err == nil) != want || want && o.Timeline == nil && o.Nodes != need {
				t.Errorf("%s with --nodes %d: %d nodes, %v", id, given, o.Nodes, err)
			}
		}
	}
}

// A timeline of the museum is no file of the user, so that the museum repeats it.
func TestRepeatOfATimelineOfTheMuseum(t *testing.T) {
	e, err := museum.Find("k8s-134147")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{LabOptions: site.LabOptions{ControlPlane: "replay", Subject: "kube-proxy@v1.34.3/ipvs"}}
	if err := o.UseEntry(e); err != nil {
		t.Fatal(err)
	}
	if err := o.fillDefaults(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := "hitless museum run k8s-134147 --subject kube-proxy@v1.34.3/ipvs --seed 1 --controlplane replay"; o.command() != want {
		t.Errorf("the run is repeated by %q, want %q", o.command(), want)
	}
}

func TestMuseum(t *testing.T) {
	e, err := museum.Find("k8s-85643")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Set: map[string]string{"rollouts": "1", "replicas": "1"}}
	if err := o.UseEntry(e); err != nil || o.Scenario != "rollout" || o.Set["trafficPolicy"] != "Local" || o.Set["rollouts"] != "1" {
		t.Errorf("%v, %+v", err, o)
	}
	if o.Out != "out/museum-k8s-85643" {
		t.Errorf("the results go to %s", o.Out)
	}
	o = Options{Set: map[string]string{"trafficPolicy": "Cluster"}, Out: t.TempDir()}
	if _, err := Museum(t.Context(), o, e); !IsUsage(err) || !strings.Contains(err.Error(), "needs trafficPolicy=Local") {
		t.Errorf("a parameter that the bug needs was changed: %v", err)
	}
	o = Options{Set: map[string]string{"reuse": "10s"}, Out: t.TempDir()}
	if _, err := Museum(t.Context(), o, e); !IsUsage(err) || !strings.Contains(err.Error(), "needs reuse=0s") {
		t.Errorf("a default that could fake the bug was changed: %v", err)
	}
	timeline, err := museum.Find("k8s-103857")
	if err != nil {
		t.Fatal(err)
	}
	o = Options{LabOptions: site.LabOptions{Nodes: 3}, Out: t.TempDir()}
	if _, err := Museum(t.Context(), o, timeline); !IsUsage(err) || !strings.Contains(err.Error(), "needs 2") {
		t.Errorf("a timeline of two nodes ran with three: %v", err)
	}
	o = Options{LabOptions: site.LabOptions{Subject: "cilium"}, Out: t.TempDir()}
	if _, err := Museum(t.Context(), o, e); !IsUsage(err) {
		t.Errorf("an unknown subject gave %v", err)
	}
}

// A described program whose mode is none of kube-proxy's, or that has none, can have every bug.
func TestEveryBugAppliesToAnUnknownMode(t *testing.T) {
	for _, mode := range []string{"", "mode: ebpf\n"} {
		file := filepath.Join(t.TempDir(), "proxy.yaml")
		if err := os.WriteFile(file, []byte("program: "+os.Args[0]+"\nready: {url: 'http://127.0.0.1:10256/healthz'}\n"+mode), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := modeOf(t.Context(), "exec:"+file)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range museum.All() {
			if why := e.Applies("exec:"+file, got); why != "" {
				t.Errorf("%s does not apply to a described program with %q: %s", e.ID, mode, why)
			}
		}
	}
}

// A field that only old versions read is no trigger for others.
func TestAnOldFieldAppliesToOldVersions(t *testing.T) {
	e, err := museum.Find("k8s-110208")
	if err != nil {
		t.Fatal(err)
	}
	for subject, want := range map[string]bool{"kube-proxy@v1.22.10/iptables": true, "kube-proxy@v1.22.17/ipvs": true, "kube-proxy@v1.23.0/ipvs": false, "kube-proxy@v1.37.1/nftables": false, "bundled": false} {
		if why := e.Applies(subject, ""); (why == "") != want {
			t.Errorf("%s: %q", subject, why)
		}
	}
	b, err := Museum(t.Context(), Options{Out: t.TempDir()}, e)
	if err != nil || b.Answer != museum.DoesNotApply {
		t.Errorf("the bundled proxier: %s, %v", b.Answer, err)
	}
}

// A result has the settings of its call, and not those of the entry's own specimen.
func TestAResultHasTheSettingsOfItsCall(t *testing.T) {
	e, err := museum.Find("k8s-102314")
	if err != nil {
		t.Fatal(err)
	}
	for _, given := range []map[string]string{nil, {"to": "bundled"}, e.Bad.Set, e.Good.Set} {
		o := Options{LabOptions: site.LabOptions{Subject: "kube-proxy@v1.37.1/nftables"}, Out: t.TempDir(), Set: given}
		if b, err := Museum(t.Context(), o, e); err != nil || !maps.Equal(b.Set, given) {
			t.Errorf("a call with %v: %v, %v", given, b.Set, err)
		}
	}
}

// Each answer has its own outcome in JUnit: a bug that is seen fails, and only one that is not seen passes.
func TestAnswersHaveOutcomesInJUnit(t *testing.T) {
	dir := t.TempDir()
	answers := map[museum.Answer]string{museum.Seen: "failure", museum.NotSeen: "", museum.CannotTell: "error", museum.DoesNotApply: "skipped"}
	var found []BugResult
	for answer := range answers {
		found = append(found, BugResult{ID: string(answer), Answer: answer, Reasons: []string{"the reason"}})
	}
	if err := WriteBugs(dir, found); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(filepath.Join(dir, reports.JUnitFile))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var suites struct {
		Cases []struct {
			Name    string    `xml:"name,attr"`
			Failure *struct{} `xml:"failure"`
			Error   *struct{} `xml:"error"`
			Skipped *struct{} `xml:"skipped"`
		} `xml:"testsuite>testcase"`
	}
	if err := xml.NewDecoder(file).Decode(&suites); err != nil || len(suites.Cases) != len(answers) {
		t.Fatalf("%d cases, %v", len(suites.Cases), err)
	}
	for _, c := range suites.Cases {
		id, _, _ := strings.Cut(c.Name, ":")
		want := answers[museum.Answer(id)]
		if (c.Failure != nil) != (want == "failure") || (c.Error != nil) != (want == "error") || (c.Skipped != nil) != (want == "skipped") {
			t.Errorf("%s: %+v, want %q", id, c, want)
		}
	}
}
