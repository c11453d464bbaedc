package run

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/build"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/timeline"
)

// Invalid input is a UsageError that names the valid values, before anything is created.
func TestBadInput(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		want    string
	}{
		"scenario":     {Options{Scenario: "rolout"}, "rollout"},
		"subject":      {Options{Scenario: "rollout", LabOptions: site.LabOptions{Subject: "cilium"}}, "kube-proxy@VERSION/MODE"},
		"exec":         {Options{Scenario: "rollout", LabOptions: site.LabOptions{Subject: "exec:options.go"}}, "options.go:"},
		"key":          {Options{Scenario: "rollout", Set: map[string]string{"replica": "1"}}, "did you mean replicas?"},
		"value":        {Options{Scenario: "rollout", Set: map[string]string{"replicas": "x"}}, "whole number"},
		"fallback":     {Options{Scenario: "rollout", LabOptions: site.LabOptions{Subject: "kube-proxy@v1.37.1/ipvs"}, Set: map[string]string{"terminatingFallback": "off"}}, "v1.22 to v1.27"},
		"no to":        {Options{Scenario: "upgrade"}, "--set to=SUBJECT"},
		"bad to":       {Options{Scenario: "upgrade", Set: map[string]string{"to": "v1.26.0"}}, "kube-proxy@VERSION/MODE"},
		"same to":      {Options{Scenario: "upgrade", Set: map[string]string{"to": "bundled"}}, "--set to=itself"},
		"to fallback":  {Options{Scenario: "upgrade", Set: map[string]string{"to": "kube-proxy@v1.37.1/ipvs", "terminatingFallback": "off"}}, "v1.22 to v1.27"},
		"nodes":        {Options{Scenario: "rollout", LabOptions: site.LabOptions{Nodes: 51}}, "1 to 50"},
		"rate":         {Options{Scenario: "rollout", Rate: -1}, "--rate"},
		"controlplane": {Options{Scenario: "rollout", LabOptions: site.LabOptions{ControlPlane: "k3s"}}, "kube or replay"},
		"clock":        {Options{Scenario: "rollout", LabOptions: site.LabOptions{Clock: "fast"}}, "virtual"},
		"guest kernel": {Options{Scenario: "rollout", LabOptions: site.LabOptions{GuestKernel: "debian-14"}}, "debian-13"},
		"no kernel":    {Options{Scenario: "rollout", LabOptions: site.LabOptions{GuestKernel: t.TempDir()}}, "vmlinuz"},
		"two kernels":  {Options{Scenario: "rollout", LabOptions: site.LabOptions{Kernel: "host", GuestKernel: "debian-13"}}, "leave one of them out"},
		"kernel":       {Options{Scenario: "rollout", LabOptions: site.LabOptions{Kernel: "docker"}}, "auto, host or vm"},
		"room": {Options{Scenario: "soak", Rate: 200, Set: map[string]string{"for": "100h", "lanes": "tcp-new,udp-fresh"}},
			"name fewer lanes"},
		"host clock": {Options{Scenario: "rollout", LabOptions: site.LabOptions{Kernel: "host", Clock: "virtual"}}, "real clock only"},
	} {
		c.options.Out = filepath.Join(t.TempDir(), "out")
		c.options.Cache = t.TempDir()
		_, err := Run(t.Context(), c.options)
		if !IsUsage(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want a usage error with %q", name, err, c.want)
		}
		if _, err := os.Stat(c.options.Out); err == nil {
			t.Errorf("%s: the folder for the results was made", name)
		}
	}
}

// An hour at 200 attempts per second fits into a record, and so does a day of `hitless soak` with its defaults. A thinned record takes
// less, but not if attempts may fail for days.
func TestSoaksHaveTheirRoom(t *testing.T) {
	for _, c := range []struct {
		length string
		rate   float64
		set    map[string]string
		fits   bool
	}{
		{"1h", 200, nil, true},
		{"24h", 0.2, nil, true},
		{"5h", 200, map[string]string{"record": "all"}, true},
		{"10h", 200, nil, true},
		{"10h", 200, map[string]string{"record": "all"}, false},
		{"10h", 200, map[string]string{"keepGoing": "on"}, false},
		{"10h", 200, map[string]string{"lanes": "tcp-new,udp-sticky"}, false}, // the record of the second lane is not thinned
		{"24h", 50, nil, true},
		{"24h", 50, map[string]string{"record": "all"}, false},
		{"24h", 50, map[string]string{"direct": "on"}, false},
		{"24h", 50, map[string]string{"direct": "on", "rolloutsPerHour": "1"}, false},
		{"240h", 0.2, map[string]string{"keepGoing": "on"}, true},
		{"744h", 1000, nil, false},
	} {
		o := Options{Scenario: "soak", Rate: c.rate, Set: map[string]string{"for": c.length}, LabOptions: site.LabOptions{Cache: t.TempDir()}}
		for key, value := range c.set {
			o.Set[key] = value
		}
		if err := o.fillDefaults(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := o.plan(t.Context()); (err == nil) != c.fits || (err != nil && !strings.Contains(err.Error(), "its record has room for 242 MB")) {
			t.Errorf("%s at %g a second with %v: %v, want it to fit: %v", c.length, c.rate, c.set, err, c.fits)
		}
	}
}

func TestUnwritableOut(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Run(t.Context(), Options{Scenario: "rollout", Out: filepath.Join(file, "out"), LabOptions: site.LabOptions{Cache: t.TempDir()}})
	if !IsUsage(err) || !strings.Contains(err.Error(), "--out") {
		t.Errorf("an unwritable --out gave %v", err)
	}
}

// The default of terminatingFallback depends on the subject, and the plan contains it.
func TestFallbackFollowsTheSubject(t *testing.T) {
	for subject, want := range map[string]string{"bundled": "on", "kube-proxy@v1.25.3/iptables": "off", "kube-proxy@v1.26.0/iptables": "on"} {
		o := Options{Scenario: "rollout", LabOptions: site.LabOptions{Subject: subject, Cache: t.TempDir()}}
		if err := o.fillDefaults(t.Context()); err != nil {
			t.Fatal(err)
		}
		p, _, err := o.plan(t.Context())
		if err != nil || p.Parameters["terminatingFallback"] != want {
			t.Errorf("%s: %q, %v, want %q", subject, p.Parameters["terminatingFallback"], err, want)
		}
	}
}

// A scenario that needs a second subject for one value of a parameter requires it then, and refuses it otherwise.
func TestSecondSubjectIsRequiredWhereNeeded(t *testing.T) {
	const other = "kube-proxy@v1.37.1/iptables"
	for _, c := range []struct{ what, to, next, refused string }{
		{"flush", "", "", ""}, {"second", other, other, ""}, {"second", "", "", "what was left running"},
		{"second", "bundled", "", "subject already"}, {"second", "itself", "", "another one"}, {"flush", other, "", "what=second"},
	} {
		o := Options{Scenario: "interference", LabOptions: site.LabOptions{Subject: "bundled", Cache: t.TempDir()}, Set: map[string]string{"what": c.what}}
		if c.to != "" {
			o.Set["to"] = c.to
		}
		if err := o.fillDefaults(t.Context()); err != nil {
			t.Fatal(err)
		}
		p, _, err := o.plan(t.Context())
		next := ""
		if p.Next != nil {
			next = p.Next.Subject
		}
		if next != c.next || c.refused == "" && err != nil || c.refused != "" && (!IsUsage(err) || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("what=%s to=%s: next %q, %v", c.what, c.to, next, err)
		}
	}
}

// A run that blocks a proxy is refused before it begins if none of its subjects can be blocked.
func TestSubjectsThatCannotBeBlocked(t *testing.T) {
	block, err := timeline.Parse("f", []byte("hitless timeline 1\n+0s proxy block node-1\n+1s workload rollout web\n+9s proxy unblock node-1\n+9s end\n"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := timeline.Parse("f", []byte("hitless timeline 1\n+0s proxy stop node-1\n+0s proxy change node-1 to=kube-proxy@v1.37.1/ipvs\n+0s proxy start node-1\n+1s proxy block node-1\n+9s proxy unblock node-1\n+9s end\n"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		subject string
		line    *timeline.Timeline // nil for the scenario
		set     map[string]string
		refused bool
	}{
		"bundled":               {"bundled", block, nil, true},
		"cilium":                {"cilium@v1.15.19", block, nil, true},
		"kube-proxy":            {"kube-proxy@v1.37.1/nftables", block, nil, false},
		"bundled, and another":  {"bundled", other, nil, false},
		"the scenario, bundled": {"bundled", nil, map[string]string{"what": "programs"}, true},
		"the scenario":          {"kube-proxy@v1.26.15/iptables", nil, map[string]string{"what": "programs"}, false},
		"another part of it":    {"bundled", nil, map[string]string{"what": "flush"}, false},
	} {
		o := Options{Scenario: "interference", LabOptions: site.LabOptions{Subject: c.subject, Cache: t.TempDir()}, Set: c.set}
		if c.line != nil {
			o.Timeline = &Timeline{Timeline: c.line}
		}
		if err := o.fillDefaults(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, _, err := o.plan(t.Context())
		if c.refused != (err != nil) || err != nil && (!IsUsage(err) || !SubjectLacks(err) || !strings.Contains(err.Error(), "give a kube-proxy")) {
			t.Errorf("%s: %v, want it to be refused: %t", name, err, c.refused)
		}
	}
}

// The default is a VM, also if this machine's kernel supports the subject.
func TestVirtualClockNeedsTheVM(t *testing.T) {
	for _, o := range []Options{{}, {LabOptions: site.LabOptions{Clock: "virtual"}}, {LabOptions: site.LabOptions{Kernel: "vm", Clock: "real"}}} {
		o.Scenario, o.Cache, o.Program = "rollout", t.TempDir(), "never started"
		s, err := o.resolve(t.Context())
		if _, is := s.(*site.VM); err != nil || !is {
			t.Errorf("--kernel %s --clock %s: %T, %v, want a VM", o.Kernel, o.Clock, s, err)
		}
	}
}

// If the test of the host fails, kernel auto uses a VM and reports why, and kernel host is a usage error.
func TestHostThatCannotBeTested(t *testing.T) {
	for kernel, refused := range map[string]bool{"auto": false, "host": true} {
		said := ""
		o := Options{Scenario: "rollout", LabOptions: site.LabOptions{Kernel: kernel, Clock: "real", Cache: t.TempDir()}, Program: filepath.Join(t.TempDir(), "none"),
			Progress: progress.Lines(func(line string) { said += line })}
		s, err := o.resolve(t.Context())
		if _, is := s.(*site.VM); IsUsage(err) != refused || is == refused || !refused && !strings.Contains(said, "taking a VM") {
			t.Errorf("--kernel %s: %T, %v, reported %q", kernel, s, err, said)
		}
	}
}

func TestCommandRepeatsTheRun(t *testing.T) {
	o := Options{Scenario: "rollout", LabOptions: site.LabOptions{Subject: "bundled", ControlPlane: "replay", Clock: "auto", Nodes: 3}, Rate: 50, Seed: 7,
		Set: map[string]string{"replicas": "2", "rollouts": "1"}}
	want := "hitless run rollout --subject bundled --seed 7 --controlplane replay --rate 50 --set replicas=2 --set rollouts=1"
	if got := o.command(); got != want {
		t.Errorf("command %q, want %q", got, want)
	}
	o.Kernel = "host"
	if got := o.command(); !strings.Contains(got, " --kernel host") {
		t.Errorf("command %q does not select the host's kernel", got)
	}
	o.Budget = "dir/my budget.yaml"
	if got := o.command(); !strings.Contains(got, " --budget 'my budget.yaml'") {
		t.Errorf("command %q does not have the budget as one word", got)
	}
}

// Released programs are an input of each run with programs of upstream, and stand in its command. For another run they mean nothing.
func TestReleasedProgramsAreAnInput(t *testing.T) {
	for _, c := range []struct {
		o    site.LabOptions
		want bool
	}{
		{site.LabOptions{Subject: "bundled"}, true}, // with the control plane of upstream
		{site.LabOptions{Subject: "kube-proxy@v1.37.1/ipvs", ControlPlane: "replay"}, true},
		{site.LabOptions{Subject: "bundled", ControlPlane: "replay"}, false},
	} {
		var plans, commands []string
		for _, programs := range []build.Programs{build.Built, build.Released} {
			o := Options{Scenario: "rollout", LabOptions: c.o}
			o.Cache, o.Programs = t.TempDir(), programs
			if err := o.fillDefaults(t.Context()); err != nil {
				t.Fatal(err)
			}
			p, _, err := o.plan(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			o.choosePrograms(&p)
			text, err := p.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			plans, commands = append(plans, string(text)), append(commands, o.command())
		}
		if named := strings.Contains(commands[1], " --programs released"); named != c.want || strings.Contains(commands[0], "--programs") {
			t.Errorf("%+v: the commands are %q", c.o, commands)
		}
		if (plans[0] != plans[1]) != c.want || strings.Contains(plans[0], "programs") {
			t.Errorf("%+v: the plans are %q", c.o, plans)
		}
	}
	if err := Check(t.Context(), Options{Scenario: "rollout", LabOptions: site.LabOptions{Programs: "elsewhere"}}); !IsUsage(err) {
		t.Errorf("programs from elsewhere: %v", err)
	}
}

// Settings of a timeline file apply to both subjects, like those of the command line.
func TestTimelineFallbackAppliesToSecondSubject(t *testing.T) {
	const change = "+1s proxy stop node-1\n+1s proxy change node-1 to=kube-proxy@v1.26.0/iptables\n+2s end\n"
	for _, c := range []struct {
		set  string // in the file
		call map[string]string
		want string
	}{
		{"", nil, "on"}, // its own default
		{"set terminatingFallback=off\n", nil, "off"},
		{"", map[string]string{"terminatingFallback": "off"}, "off"},
		{"set terminatingFallback=off\n", map[string]string{"terminatingFallback": "on"}, "on"},
	} {
		if got := planned(t, "kube-proxy@v1.25.3/iptables", "hitless timeline 1\n"+c.set+change, c.call).Next; got == nil || got.Fallback != c.want {
			t.Errorf("%q with %v: the second subject has %+v, want %s", c.set, c.call, got, c.want)
		}
	}
}

// planned returns the plan of a timeline.
func planned(t *testing.T, subject, text string, set map[string]string) guest.Plan {
	t.Helper()
	line, err := ReadTimeline(t.Context(), timelineFile(t, text))
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Timeline: line, LabOptions: site.LabOptions{Subject: subject, Cache: t.TempDir()}, Set: set}
	if err := o.fillDefaults(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, _, err := o.plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The defaults are those in the help of hitless run.
func TestDefaults(t *testing.T) {
	o := Options{Scenario: "rollout", LabOptions: site.LabOptions{Cache: t.TempDir()}}
	if err := o.fillDefaults(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, spec, err := o.plan(t.Context())
	if err != nil || p.Seed != 1 || p.Nodes != 3 || p.Rate != 100 || p.ControlPlane != "kube" || spec.String() != "bundled" {
		t.Errorf("the plan is %+v, %v", p, err)
	}
	o = Options{Scenario: "rollout", Seed: -1 << 63, LabOptions: site.LabOptions{Cache: t.TempDir()}}
	if err := o.fillDefaults(t.Context()); err != nil || o.Seed != -1<<63 {
		t.Errorf("seed -2^63 became %d, %v", o.Seed, err)
	}
}

// Options.Site selects the site.
func TestSiteOfCall(t *testing.T) {
	for want, all := range map[Kind][]*site.LiveOptions{
		InLab:     {nil, {}, {Context: "staging", DryRun: true}},
		InCluster: {{Kubeconfig: "file"}, {InCluster: true}},
		InKind:    {{Kind: "v1.26.0"}},
	} {
		for _, live := range all {
			if got := (Options{Live: live}).Site(); got != want {
				t.Errorf("%+v names %s, want %s", live, got, want)
			}
		}
	}
}

// The end of a run is reported, also if the run did not start.
func TestEndOfRunIsReported(t *testing.T) {
	var got []progress.Event
	_, err := Run(t.Context(), Options{Scenario: "none", Progress: func(e progress.Event) { got = append(got, e) }})
	if !IsUsage(err) || !slices.Equal(got, []progress.Event{{Kind: progress.End}}) {
		t.Errorf("%v, and the events are %+v", err, got)
	}
}

// Thousands of other Services give a run more wall time, and a deadline of the call stays.
func TestOtherServicesExtendTheDeadline(t *testing.T) {
	deadline := func(others string, given time.Duration) time.Duration {
		t.Helper()
		o := Options{Scenario: "restart", Set: map[string]string{"others": others}, LabOptions: site.LabOptions{ControlPlane: "replay", Deadline: given}}
		if err := o.fillDefaults(t.Context()); err != nil {
			t.Fatal(err)
		}
		plan, _, err := o.plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return o.resolvedLab(plan).Deadline
	}
	if none, many := deadline("0", 0), deadline("2000", 0); many < none+5*time.Minute {
		t.Errorf("the deadline is %s with no other Service and %s with 2000", none, many)
	}
	if got := deadline("2000", time.Minute); got != time.Minute {
		t.Errorf("a deadline of a minute became %s", got)
	}
}

// A capture needs a client outside of the cluster, which is the only place in scenarios without the parameter.
func TestCaptureNeedsAClientOutside(t *testing.T) {
	for set, can := range map[string]bool{"rollout": true, "rollout client=outside": true, "rollout client=pod": false, "rollout client=node": false, "drain what=poweroff": true} {
		scenario, word, _ := strings.Cut(set, " ")
		key, value, given := strings.Cut(word, "=")
		o := Options{Scenario: scenario, LabOptions: site.LabOptions{Capture: true}}
		if given {
			o.Set = map[string]string{key: value}
		}
		if err := o.fillDefaults(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := o.plan(t.Context()); (err == nil) != can {
			t.Errorf("%s: %v", set, err)
		}
	}
}

// The files of a call are not read after an interrupt.
func TestOptionsAfterAnInterrupt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "subject.yaml")
	if err := os.WriteFile(file, []byte("program: proxy\nready: {url: 'http://x'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var o Options
	o.Cache = t.TempDir()
	if err := o.fillDefaults(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.Subject = "exec:" + file
	if _, _, err := o.plan(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the subject: %v, want the end of the context", err)
	}
	if _, err := subjectOf(ctx, record.Run{}, o.Subject); !errors.Is(err, context.Canceled) {
		t.Errorf("the subject of an earlier run: %v, want the end of the context", err)
	}
}

// The commands of committed runs are written as they were, byte for byte: they are part of histories.
func TestCommandsOfCommittedRunsStay(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "docs", "results", "*", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`"command": ("hitless run (?:[^"\\]|\\.)*")`).FindAllSubmatch(data, -1) {
			var text string
			if err := json.Unmarshal(m[1], &text); err != nil {
				t.Fatal(err)
			}
			c, err := record.ParseCommand(text)
			if err != nil || len(c.Args) != 3 || c.Has("out") {
				continue // the suites add the folder
			}
			o := optionsOf(t, c)
			if err := o.fillDefaults(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := o.command(); got != text {
				t.Errorf("%s is written as %s", text, got)
			}
			checked++
		}
	}
	if checked < 20 {
		t.Errorf("only %d commands were found", checked)
	}
}

// optionsOf are the options of a run by its command.
func optionsOf(t *testing.T, c record.Command) Options {
	t.Helper()
	o := Options{Scenario: c.Args[2], Set: map[string]string{}, LabOptions: site.LabOptions{Cache: t.TempDir()}, Program: "hitless"}
	var err error
	for _, f := range c.Flags {
		switch f.Name {
		case "subject":
			o.Subject = f.Value
		case "seed":
			o.Seed, err = strconv.ParseInt(f.Value, 10, 64)
		case "rate":
			o.Rate, err = strconv.ParseFloat(f.Value, 64)
		case "nodes":
			o.Nodes, err = strconv.Atoi(f.Value)
		case "controlplane":
			o.ControlPlane = f.Value
		case "kernel":
			o.Kernel = f.Value
		case "guest-kernel":
			o.GuestKernel = f.Value
		case "clock":
			o.Clock = f.Value
		case "programs":
			o.Programs = build.Programs(f.Value)
		case "budget":
			o.Budget = f.Value
		case "capture":
			o.Capture = true
		case "loop":
			o.Loop = true
		case "set":
			key, value, _ := strings.Cut(f.Value, "=")
			o.Set[key] = value
		default:
			t.Fatalf("no option of a run is --%s", f.Name)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return o
}
