package run

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/scenarios/timeline"
)

func TestOnlyTheSameFailureCounts(t *testing.T) {
	report := func(v reports.Verdict, class reports.Class) *reports.Report {
		return &reports.Report{Verdict: v, Totals: reports.Totals{ByClass: map[string]int{"ok": 5, "probe": 1, "reset": 0, class.String(): 3}}}
	}
	f := &Failure{Classes: lossesOf(report(reports.Fail, reports.Rejected))}
	if !slices.Equal(f.Classes, []string{"rejected"}) {
		t.Fatalf("the losses are of the classes %q", f.Classes)
	}
	for _, c := range []struct {
		report *reports.Report
		want   bool
	}{
		{report(reports.Fail, reports.Rejected), true},
		{report(reports.Fail, reports.Reset), false},
		{report(reports.Pass, reports.Rejected), false},
		{report(reports.Invalid, reports.Rejected), false},
	} {
		if got := f.same(c.report); got != c.want {
			t.Errorf("%s with %v: same failure %t, want %t", c.report.Verdict, c.report.Totals.ByClass, got, c.want)
		}
	}
}

func TestTheSubjectOfARun(t *testing.T) {
	for want, s := range map[string]reports.Subject{
		"bundled":                 {Name: "bundled", Version: "devel", Mode: "ipvs"},
		"kube-proxy@v1.12.2/ipvs": {Name: "kube-proxy", Version: "v1.12.2", Mode: "ipvs"},
	} {
		if spec, err := subjectOf(reports.Run{Subject: s}, ""); err != nil || spec.String() != want {
			t.Errorf("%+v is %s, %v", s, spec, err)
		}
	}
	if _, err := subjectOf(reports.Run{Subject: reports.Subject{Name: "mine"}}, ""); !IsUsage(err) || !strings.Contains(err.Error(), "--subject exec:FILE") {
		t.Errorf("a subject of a file gave %v", err)
	}
}

// The command has what the trials had and the timeline has not.
func TestTheCommandOfAShorterTimeline(t *testing.T) {
	line := &Timeline{Timeline: &timeline.Timeline{Nodes: 2, Rate: 20}}
	for want, o := range map[string]Options{
		"hitless replay f --subject bundled --controlplane replay --kernel vm --set terminatingFallback=off": {Subject: "bundled", ControlPlane: "replay",
			Kernel: "vm", Clock: "virtual", Set: map[string]string{"terminatingFallback": "off"}},
		"hitless replay f --subject kube-proxy@v1.25.3/iptables --kernel vm --clock real":   {Subject: "kube-proxy@v1.25.3/iptables", ControlPlane: "kube", Kernel: "vm", Clock: "real"},
		"hitless replay f --subject kube-proxy@v1.25.3/iptables --kernel host --clock real": {Subject: "kube-proxy@v1.25.3/iptables", ControlPlane: "kube", Kernel: "host", Clock: "real"},
	} {
		if got := (&Failure{Timeline: line, Options: o}).Command("f"); got != want {
			t.Errorf("%+v: %s, want %s", o, got, want)
		}
	}
}

// A folder without a run that failed is a usage error.
func TestOpenFailureNeedsARun(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "history"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFailure(dir, Options{}); !IsUsage(err) {
		t.Errorf("an empty folder gave %v", err)
	}
}
