package run

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/build"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/scenarios/timeline"
)

func TestOnlyTheSameFailureCounts(t *testing.T) {
	report := func(v analysis.Verdict, class record.Class) *analysis.Report {
		return &analysis.Report{Verdict: v, Totals: analysis.Totals{ByClass: map[string]int{"ok": 5, "probe": 1, "reset": 0, class.String(): 3}}}
	}
	f := &Failure{Classes: lossClasses(report(analysis.Fail, record.Rejected))}
	if !slices.Equal(f.Classes, []string{"rejected"}) {
		t.Fatalf("the losses are of the classes %q", f.Classes)
	}
	for _, c := range []struct {
		report *analysis.Report
		want   bool
	}{
		{report(analysis.Fail, record.Rejected), true},
		{report(analysis.Fail, record.Reset), false},
		{report(analysis.Pass, record.Rejected), false},
		{report(analysis.Invalid, record.Rejected), false},
	} {
		if got := f.shows(c.report); got != c.want {
			t.Errorf("%s with %v: same failure %t, want %t", c.report.Verdict, c.report.Totals.ByClass, got, c.want)
		}
	}
}

// A run that failed only because a proxy no longer follows changes is reproduced by another such run.
func TestFailureWithoutLoss(t *testing.T) {
	report := func(dropped int, state string) *analysis.Report {
		return &analysis.Report{Verdict: analysis.Fail, Totals: analysis.Totals{ByClass: map[string]int{"ok": 5, "rejected": dropped}},
			Recovery: &analysis.RecoveryReport{Checks: 1, Nodes: []analysis.NodeRecovery{{Node: "node-1", State: state}}}}
	}
	f := &Failure{Classes: lossClasses(report(0, analysis.RecoveryFailed))}
	for r, want := range map[*analysis.Report]bool{
		report(0, analysis.RecoveryFailed):   true,
		report(3, analysis.RecoveryFollowed): false,
	} {
		if got := f.shows(r); got != want {
			t.Errorf("%v with %+v: same failure %t, want %t", r.Totals.ByClass, r.Recovery.Nodes, got, want)
		}
	}
}

// The trials boot the run's kernel. One from files has to be named again.
func TestKernelOfRun(t *testing.T) {
	for source, want := range map[string]string{"": "", "debian-13 6.12.118-1": "debian-13", "host 6.8.0-31.31": "host"} {
		if got, err := kernelOf(record.Run{Kernel: record.Kernel{Kind: "vm", Source: source}}, ""); err != nil || got != want {
			t.Errorf("%q: %q, %v", source, got, err)
		}
	}
	files := record.Run{Kernel: record.Kernel{Kind: "vm", Source: "linux.deb digest 0123456789ab"}}
	if got, err := kernelOf(files, ""); !IsUsage(err) {
		t.Errorf("of files: %q, %v", got, err)
	}
	if got, err := kernelOf(files, "there/linux.deb"); err != nil || got != "there/linux.deb" {
		t.Errorf("of named files: %q, %v", got, err)
	}
}

func TestSubjectOfRun(t *testing.T) {
	for want, s := range map[string]record.Subject{
		"bundled":                 {Name: "bundled", Version: "devel", Mode: "ipvs"},
		"kube-proxy@v1.12.2/ipvs": {Name: "kube-proxy", Version: "v1.12.2", Mode: "ipvs"},
	} {
		if spec, err := subjectOf(t.Context(), record.Run{Subject: s}, ""); err != nil || spec.String() != want {
			t.Errorf("%+v is %s, %v", s, spec, err)
		}
	}
	if _, err := subjectOf(t.Context(), record.Run{Subject: record.Subject{Name: "mine"}}, ""); !IsUsage(err) || !strings.Contains(err.Error(), "--subject exec:FILE") {
		t.Errorf("a subject of a file gave %v", err)
	}
}

// The command has the options of the trials that the timeline does not contain.
func TestCommandOfMinimizedTimeline(t *testing.T) {
	line := &Timeline{Timeline: &timeline.Timeline{Nodes: 2, Rate: 20}}
	for want, o := range map[string]Options{
		"hitless replay f --subject bundled --controlplane replay --kernel vm --set terminatingFallback=off": {LabOptions: site.LabOptions{Subject: "bundled", ControlPlane: "replay", Kernel: "vm", Clock: "virtual"}, Set: map[string]string{"terminatingFallback": "off"}},
		"hitless replay f --subject kube-proxy@v1.25.3/iptables --kernel vm --clock real":                    {LabOptions: site.LabOptions{Subject: "kube-proxy@v1.25.3/iptables", ControlPlane: "kube", Kernel: "vm", Clock: "real"}},
		"hitless replay f --subject kube-proxy@v1.25.3/iptables --kernel host --clock real":                  {LabOptions: site.LabOptions{Subject: "kube-proxy@v1.25.3/iptables", ControlPlane: "kube", Kernel: "host", Clock: "real"}},
	} {
		if got := (&Failure{Timeline: line, Options: o}).Command("f"); got != want {
			t.Errorf("%+v: %s, want %s", o, got, want)
		}
	}
	f := Failure{Timeline: line, Options: Options{LabOptions: site.LabOptions{Subject: "exec:my proxy.yaml", ControlPlane: "kube"}}}
	c, err := record.ParseCommand(f.Command("out/it's minimized"))
	if err != nil || !slices.Equal(c.Args, []string{"hitless", "replay", "out/it's minimized"}) || !slices.Equal(c.Values("subject"), []string{"exec:my proxy.yaml"}) {
		t.Errorf("%+v: %v", c, err)
	}
}

// A folder without a failed run is a usage error.
func TestOpenFailureNeedsARun(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "history"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFailure(t.Context(), dir, Options{}); !IsUsage(err) {
		t.Errorf("an empty folder gave %v", err)
	}
}

// failedRun writes the folder of a run of 6 s with ten attempts of the class, and its timeline.
func failedRun(t *testing.T, run record.Run, class record.Class) (dir string) {
	t.Helper()
	dir = t.TempDir()
	w, err := record.NewHistoryWriter(filepath.Join(dir, "history"), run)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"baseline", "proof", "scenario", "end"} {
		w.Event(record.Event{At: time.Duration(i) * 2 * time.Second, Object: name, Text: name, Body: record.Phase{}})
	}
	for i, state := range []record.FaultState{record.FaultBegin, record.FaultEnd} {
		w.Event(record.Event{At: 3*time.Second + time.Duration(i)*100*time.Millisecond, Object: "proof", Text: "proof",
			Body: record.Fault{Fault: "refuse", State: state, ID: "proof", Lane: "canary", Control: true}})
	}
	w.Event(record.Event{At: 5 * time.Second, Object: "roll", Text: "roll", Body: record.Step{State: record.StepEnd}})
	for id, name := range []string{"web", "canary"} {
		lane := record.Lane{ID: uint16(id), Name: name, Client: "client", Target: "203.0.113.1" + strconv.Itoa(id) + ":80",
			Protocol: "tcp-new", Policy: "fresh", Rate: 100, Dial: 3 * time.Second, Reply: time.Second}
		failing, as := 4500*time.Millisecond, class
		if name == "canary" {
			lane.Control, failing, as = true, 3*time.Second, record.Refused
		}
		w.Event(record.Event{Object: name, Text: "lane " + name, Body: lane})
		for i := range 600 {
			at := time.Duration(i) * 10 * time.Millisecond
			a := record.Attempt{Lane: uint16(id), Seq: uint64(i), Intended: at, Start: at, Class: record.OK, Total: time.Millisecond, Backend: "web-1"}
			if at >= failing && at < failing+100*time.Millisecond {
				a.Class, a.Backend = as, ""
			}
			w.Attempt(a)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	text := "hitless timeline 1\nnodes 2\n+1s proxy stop node-1\n+2s end\n"
	if err := os.WriteFile(filepath.Join(dir, "history", record.TimelineFile), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	seal(t, dir)
	return dir
}

// seal judges a run and seals its record, with what is in the folder now.
func seal(t *testing.T, dir string) {
	t.Helper()
	if _, _, err := reports.Seal(dir, nil); err != nil {
		t.Fatal(err)
	}
}

func aRun() record.Run {
	return record.Run{Scenario: "soak", Seed: 7, Clock: "virtual", Kernel: record.Kernel{Kind: "vm", Release: "6.1.0"}, ControlPlane: "replay",
		Subject: record.Subject{Name: "kube-proxy", Version: "v1.12.2", Mode: "ipvs"}, Nodes: []string{"node-1", "node-2"},
		Parameters: map[string]string{"terminatingFallback": "off"}, InputsSha256: strings.Repeat("ab", 32), Command: "hitless soak --seed 7"}
}

// Trials have the options in the folder of the failed run. The folder of its history gives the same options.
func TestOpenFailureReadsTheRun(t *testing.T) {
	released := aRun()
	released.Programs = record.ProgramsReleased
	dir := failedRun(t, released, record.Rejected)
	for _, folder := range []string{dir, filepath.Join(dir, "history")} {
		f, err := OpenFailure(t.Context(), folder, Options{LabOptions: site.LabOptions{Deadline: time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		o := f.Options
		if o.Subject != "kube-proxy@v1.12.2/ipvs" || o.ControlPlane != "replay" || o.Kernel != "vm" || o.Clock != "virtual" || o.Seed != 7 || o.Deadline != time.Minute || o.Programs != build.Released {
			t.Errorf("%s: the trials run with %+v", folder, o)
		}
		if !slices.Equal(f.Classes, []string{"rejected"}) || f.Timeline.Nodes != 2 || len(f.Timeline.Steps) == 0 {
			t.Errorf("%s: classes %q, timeline %+v", folder, f.Classes, f.Timeline.Timeline)
		}
	}
}

// A run without loss, or without its timeline, cannot be minimized.
func TestOpenFailureNeedsAFailureAndItsTimeline(t *testing.T) {
	if _, err := OpenFailure(t.Context(), failedRun(t, aRun(), record.OK), Options{}); !IsUsage(err) || !strings.Contains(err.Error(), "verdict pass") {
		t.Errorf("a run that passed gave %v", err)
	}
	dir := failedRun(t, aRun(), record.Rejected)
	if err := os.Remove(filepath.Join(dir, "history", record.TimelineFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFailure(t.Context(), dir, Options{}); !record.IsDamaged(err) || !strings.Contains(err.Error(), "timeline is missing") {
		t.Errorf("a run whose timeline was removed gave %v", err)
	}
	seal(t, dir)
	if _, err := OpenFailure(t.Context(), dir, Options{}); !IsUsage(err) || !strings.Contains(err.Error(), "reading the timeline") {
		t.Errorf("a run without its timeline gave %v", err)
	}
}

// A trial that cannot be run is an error. It leaves no files, and does not change the Failure.
func TestTrialThatCannotBeRunIsAnError(t *testing.T) {
	f, err := OpenFailure(t.Context(), failedRun(t, aRun(), record.Rejected), Options{LabOptions: site.LabOptions{Cache: t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	bad, err := timeline.Parse("some.timeline", []byte("hitless timeline 1\nnodes 2\n+1s proxy stop node-1\n+1s proxy change node-1 to=cilium\n+2s end\n"))
	if err != nil {
		t.Fatal(err)
	}
	if fails, err := f.Fails(t.Context(), bad); fails || !IsUsage(err) || !strings.Contains(err.Error(), "to=cilium") {
		t.Errorf("an unknown proxy gave %t, %v", fails, err)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 || f.Options.Out != "" || f.Options.Timeline != nil {
		t.Errorf("left behind: %v, %v; %+v", left, err, f.Options)
	}
}

// In a trial both subjects have the terminatingFallback of the failed run.
func TestTrialsKeepTheFallback(t *testing.T) {
	const first, change = "kube-proxy@v1.25.3/iptables", "+1s proxy stop node-1\n+1s proxy change node-1 to=kube-proxy@v1.26.0/iptables\n+2s end\n"
	file := func(set string) *Timeline {
		line, err := ReadTimeline(t.Context(), timelineFile(t, "hitless timeline 1\n"+set+change))
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	upgrade := func(set map[string]string) Options {
		set["to"] = "kube-proxy@v1.26.0/iptables"
		return Options{Scenario: "upgrade", Set: set}
	}
	for name, o := range map[string]Options{
		"not given":                upgrade(map[string]string{}),
		"the first one's default":  upgrade(map[string]string{"terminatingFallback": "off"}),
		"the second one's default": upgrade(map[string]string{"terminatingFallback": "on"}),
		"given in a file":          {Timeline: file("set terminatingFallback=off\n")},
	} {
		o.Subject, o.Cache = first, t.TempDir()
		if err := o.fillDefaults(t.Context()); err != nil {
			t.Fatal(err)
		}
		failed, spec, err := o.plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		trial := planned(t, first, file("").String(), fallbackOf(record.Run{Parameters: failed.Parameters, Command: o.command()}, spec))
		if had, has := failed.Parameters["terminatingFallback"], trial.Parameters["terminatingFallback"]; had != has || *failed.Next != *trial.Next {
			t.Errorf("%s: the run had %s and %+v, the trial has %s and %+v", name, had, *failed.Next, has, *trial.Next)
		}
	}
}
