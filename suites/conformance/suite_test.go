package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/record"
)

// suite runs the suite in a process of its own, because Ginkgo runs once in each. faults are those of pretend.
func suite(t *testing.T, faults string, more ...string) (dir, output string, failed bool) {
	t.Helper()
	dir = t.TempDir()
	out, err := command(dir, faults, more...).CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !asExit(err, &exit) {
		t.Fatal(err)
	}
	return dir, string(out), err != nil
}

func asExit(err error, exit **exec.ExitError) bool {
	e, is := err.(*exec.ExitError)
	*exit = e
	return is
}

func command(dir, faults string, more ...string) *exec.Cmd {
	args := []string{"-test.run=^TestConformance$", "-subject=bundled", "-pretend=" + faults, "-out=" + dir}
	return exec.Command(os.Args[0], append(args, more...)...)
}

// readReport reads a report and checks it against its schema.
func readReport(t *testing.T, dir string) *Report {
	t.Helper()
	r, err := Read(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate(t, filepath.Join(dir, File), "", ""); err != nil {
		t.Errorf("%s breaks its schema: %v", File, err)
	}
	return r
}

// validate compares a report with the schema, after a change of its text.
func validate(t *testing.T, file, old, new string) error {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if old != "" && !bytes.Contains(data, []byte(old)) {
		t.Fatalf("%s does not contain %q", file, old)
	}
	var document any
	if err := yaml.Unmarshal(bytes.Replace(data, []byte(old), []byte(new), 1), &document); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	return testfiles.ValidateJSON(t, Schema, text)
}

func stateOfSpec(t *testing.T, r *Report, name string) Result {
	t.Helper()
	i := slices.IndexFunc(r.Specs, func(s Result) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("the report has no spec %s", name)
	}
	return r.Specs[i]
}

// Without -pretend the suite builds hitless once, before Ginkgo's first node, and then finds that no spec is selected.
func TestTheSuiteBuildsItsProgram(t *testing.T) {
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte("#!/bin/sh\necho \"$@\" >>"+calls+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := command(t.TempDir(), "", "-ginkgo.focus=^none$")
	cmd.Env = append(os.Environ(), "HITLESS_PROGRAM=", "PATH="+dir+":"+os.Getenv("PATH"))
	output, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(output), `"^none$"`) {
		t.Errorf("a focus without specs: %v\n%s", err, output)
	}
	built, err := os.ReadFile(calls)
	if err != nil || strings.Count(string(built), "\n") != 1 || !strings.HasPrefix(string(built), "build ") || !strings.HasSuffix(string(built), "/cmd/hitless\n") {
		t.Errorf("%v; the calls of go are %q, want one build of hitless\n%s", err, built, output)
	}
}

const someRuns = "-ginkgo.focus=^conformance a Service proxy (quiet|drain|drain-local|restart-term) "

func TestASuiteWithoutFaultsIsGreen(t *testing.T) {
	dir, output, failed := suite(t, "none", someRuns)
	r := readReport(t, dir)
	if failed || r.ExitCode() != 0 || r.Count(Passed) != len(r.Specs) || r.Selected.Specs != len(r.Specs) {
		t.Fatalf("failed %v: %s\n%s", failed, r.Summary(), output)
	}
	for _, s := range r.Specs {
		if len(s.HistorySha256) != 64 || s.Repeat == "" {
			t.Errorf("%s has no hash or no command: %+v", s.Name, s)
		}
		if _, err := os.Stat(filepath.Join(dir, s.Run, "report.html")); err != nil {
			t.Errorf("%s has no report: %v", s.Name, err)
		}
	}
	for _, name := range []string{PageFile, junitFile, ginkgoFile} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Contains(data, []byte("drain-local new")) {
			t.Errorf("%s does not show the specs: %v", name, err)
		}
	}
	for _, change := range [][2]string{{"state: passed", "state: green"}, {"seed: 1", "seed: 0"}, {"kind: Conf", "kind: Form"}, {"promise:", "promis:"}} {
		if validate(t, filepath.Join(dir, File), change[0], change[1]) == nil {
			t.Errorf("%q for %q is accepted by the schema", change[1], change[0])
		}
	}
}

// A lane's loss turns the specs of that lane red, and no other of its run.
func TestALossTurnsTheSpecsOfItsLaneRed(t *testing.T) {
	dir, output, failed := suite(t, "restart-term:tcp-new,drain:udp-fresh", someRuns)
	r := readReport(t, dir)
	if !failed || r.ExitCode() != 1 {
		t.Fatalf("failed %v, exit code %d: %s\n%s", failed, r.ExitCode(), r.Summary(), output)
	}
	for name, want := range map[string]State{"restart-term new": Failed, "restart-term open": Passed, "restart-term datagrams": Passed,
		"drain new": Passed, "drain fresh": Failed, "quiet new": Passed} {
		if got := stateOfSpec(t, r, name); got.State != want {
			t.Errorf("%s is %s, want %s: %v", name, got.State, want, got.Reasons)
		}
	}
	for name, lane := range map[string]string{"restart-term new": newLane, "restart-term open": "", "drain fresh": freshLane} {
		told := stateOfSpec(t, r, name).Failures
		if told == nil {
			t.Errorf("%s does not tell its failures", name)
			continue
		}
		of := *told
		if (len(of) > 0) != (lane != "") || len(of) > 0 && (of[0].Lane != lane || of[0].Class != record.ConnectTimeout.String() || of[0].Connections == 0) {
			t.Errorf("the failures of %s are %+v", name, of)
		}
	}
	if core := r.Profiles[0]; core.Result != "failure" || !slices.Contains(core.Failed, "restart-term new") {
		t.Errorf("the core profile is %+v", core)
	}
	if !slices.Contains(r.Features.Unsupported, "restart") || !slices.Contains(r.Features.Supported, "undisturbed") {
		t.Errorf("the features are %+v", r.Features)
	}
	if page, _ := os.ReadFile(filepath.Join(dir, PageFile)); !bytes.Contains(page, []byte(`<a href="runs/restart-term/report.html">restart-term new</a>: `)) {
		t.Error("the page does not link the failed spec to its run")
	}
}

// A flow of datagrams may be lost while a pod ends, but not for longer, not often, and not to another Service. Losses of flows do not concern the
// other specs.
func TestAFlowMayBeLostBriefly(t *testing.T) {
	for fault, want := range map[string]State{stickyLane: Passed, "long " + stickyLane: Failed, "often " + stickyLane: Failed, "endless " + stickyLane: Failed, "misrouted " + stickyLane: Failed} {
		dir, output, _ := suite(t, "rollout-cluster:"+fault, "-ginkgo.focus=^conformance a Service proxy rollout-cluster ")
		r := readReport(t, dir)
		for name, want := range map[string]State{"rollout-cluster flows": want, "rollout-cluster new": Passed, "rollout-cluster fresh": Passed} {
			if got := stateOfSpec(t, r, name); got.State != want {
				t.Errorf("%s: %s is %s, want %s: %v\n%s", fault, name, got.State, want, got.Reasons, output)
			}
		}
	}
}

// Slow connections turn the spec of new connections red, and those of other lanes of the run stay green.
func TestLatencyTurnsTheSpecOfItsLaneRed(t *testing.T) {
	dir, output, _ := suite(t, "restart-term:slow tcp-new", "-ginkgo.focus=^conformance a Service proxy restart-term ")
	r := readReport(t, dir)
	for name, want := range map[string]State{"restart-term new": Failed, "restart-term open": Passed, "restart-term reused": Passed, "restart-term datagrams": Passed} {
		if got := stateOfSpec(t, r, name); got.State != want {
			t.Errorf("%s is %s, want %s: %v\n%s", name, got.State, want, got.Reasons, output)
		}
	}
}

// A proxy that removes rules of another program breaks the promise to leave them alone: that is no measurement that cannot be trusted.
func TestAProxyThatRemovesForeignRulesFails(t *testing.T) {
	expectStates(t, "interference-stale-allow new", map[string]State{"none": Passed, "interference-stale-allow:removal": Failed})
}

// expectStates runs the specs of a run with each of some faults, and expects the states of one of them.
func expectStates(t *testing.T, spec string, states map[string]State) {
	t.Helper()
	run, _, _ := strings.Cut(spec, " ")
	for faults, want := range states {
		dir, output, _ := suite(t, faults, "-ginkgo.focus=^conformance a Service proxy "+run+" ")
		if got := stateOfSpec(t, readReport(t, dir), spec); got.State != want {
			t.Errorf("%s: %s, want %s: %v\n%s", faults, got.State, want, got.Reasons, output)
		}
	}
}

// A pod that became ready during the restart must answer over its node, also where another pod hides that it does not. Without such a pod
// nothing was measured.
func TestAPodThatBecameReadyIsUsed(t *testing.T) {
	expectStates(t, "restart-ready new", map[string]State{"none": Passed, "restart-ready:unused": Failed, "restart-ready:no pod": Invalid,
		"restart-ready:no second pod": Invalid, "restart-ready:tcp-new": Failed})
}

// A flow of datagrams whose pod is ready must stay with it. Where no known pod answered, nothing was measured.
func TestAFlowStaysWithItsPod(t *testing.T) {
	for faults, want := range map[string]State{"none": Passed, "restart-term:moved": Failed, "restart-term:udp-sticky": Failed, "restart-term:endless udp-sticky": Failed,
		"restart-term:tcp-new": Passed, "restart-term:nameless": Invalid} {
		dir, output, _ := suite(t, faults, "-ginkgo.focus=^conformance a Service proxy restart-term ")
		r := readReport(t, dir)
		if got := stateOfSpec(t, r, "restart-term kept"); got.State != want {
			t.Errorf("%s: %s, want %s: %v\n%s", faults, got.State, want, got.Reasons, output)
		}
		if moved := faults == "restart-term:moved"; moved && stateOfSpec(t, r, "restart-term datagrams").State != Passed {
			t.Errorf("%s: a flow that moved loses nothing, and the spec of losses does not pass", faults)
		}
	}
}

// A deleted Service answers neither new connections nor old flows, nor does another pod. What is lost before and after is the promise of other
// specs. What fails the run without a loss fails this one too.
func TestADeletedServiceDoesNotAnswer(t *testing.T) {
	expectStates(t, "recreate-node-port deleted", map[string]State{"none": Passed, "recreate-node-port:answered tcp-new": Failed, "recreate-node-port:answered udp-sticky": Failed,
		"recreate-node-port:misrouted tcp-new": Failed, "recreate-node-port:misrouted udp-sticky": Failed, "recreate-node-port:removal": Failed,
		"recreate-node-port:answered udp-fresh": Passed, "recreate-node-port:udp-sticky": Passed, "recreate-node-port:no step": Invalid})
}

// An old flow of datagrams is refused where new connections are. A proxy that refuses nothing promises nothing here.
func TestAFlowToAServiceWithoutEndpointsIsRefused(t *testing.T) {
	expectStates(t, "scale-zero refused", map[string]State{"none": Passed, "scale-zero:lost udp-sticky": Failed, "scale-zero:answered udp-sticky": Failed, "scale-zero:lost udp-fresh": Passed,
		"scale-zero:removal": Failed, "scale-zero:lost tcp-new": Skipped, "scale-zero:no udp-sticky": Invalid, "scale-zero:no step": Invalid})
}

// A run that ended early proves nothing: its specs are invalid, and others go on.
func TestARunThatEndsEarlyIsInvalid(t *testing.T) {
	dir, _, failed := suite(t, "drain:early", someRuns)
	r := readReport(t, dir)
	if got := stateOfSpec(t, r, "drain new"); !failed || r.ExitCode() != 3 || got.State != Invalid || r.Count(Passed) == 0 {
		t.Errorf("exit code %d: %s; %+v", r.ExitCode(), r.Summary(), got)
	}
}

// A subject that never starts is one failure, and no spec is green.
func TestASubjectThatNeverStartsIsOneFailure(t *testing.T) {
	dir, output, failed := suite(t, "quiet:dead", someRuns)
	r := readReport(t, dir)
	if n := strings.Count(output, "did not become ready within"); !failed || n == 0 || r.Count(NotRun) != len(r.Specs) || r.ExitCode() != 3 || !strings.Contains(r.Ended, "did not become ready within") {
		t.Errorf("%d messages, exit code %d: %s\n%s", n, r.ExitCode(), r.Summary(), output)
	}
	if n := strings.Count(output, "[FAIL]"); n > 2 { // where it happens, and in Ginkgo's summary
		t.Errorf("%d failures:\n%s", n, output)
	}
}

// An environment that cannot run is said once, before any spec.
func TestAnEnvironmentThatCannotRunIsSaid(t *testing.T) {
	dir, output, failed := suite(t, "quiet:refused", someRuns)
	r := readReport(t, dir)
	if !failed || !strings.Contains(output, os.ErrPermission.Error()) || r.Count(NotRun) != len(r.Specs) || !strings.Contains(r.Ended, os.ErrPermission.Error()) {
		t.Errorf("%s\n%s", r.Summary(), output)
	}
}

// An interrupt ends the suite with a report of the specs whose runs have ended. The specs of the run quiet come after the interrupted one,
// and its run is the first.
func TestAnInterruptKeepsWhatWasJudged(t *testing.T) {
	r, output := interrupted(t, "restart-term:slow", "restart-term datagrams")
	if stateOfSpec(t, r, "drain-local new").State != Passed || stateOfSpec(t, r, "restart-term new").State != NotRun || r.Ended == "" {
		t.Errorf("%s\n%s", r.Summary(), output)
	}
	r, output = interrupted(t, "drain:slow", "drain ")
	if stateOfSpec(t, r, "quiet new").State != Passed || stateOfSpec(t, r, "drain new").State != NotRun || r.Ended == "" {
		t.Errorf("%s\n%s", r.Summary(), output)
	}
}

// interrupted is the report of a suite that ends with Ctrl-C once its output has this text.
func interrupted(t *testing.T, faults, at string) (r *Report, output string) {
	t.Helper()
	dir := t.TempDir()
	cmd := command(dir, faults, "-ginkgo.v", someRuns)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 4096)
	for interrupted := false; ; {
		n, err := out.Read(buffer)
		if output += string(buffer[:n]); err != nil {
			break
		}
		if !interrupted && strings.Contains(output, at) {
			interrupted = true
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
		}
	}
	if cmd.Wait() == nil {
		t.Error("the interrupted suite passed")
	}
	return readReport(t, dir), output
}

// Two calls with one seed give the same report, but for the folders; another seed gives other histories.
func TestTheSeedDeterminesTheReport(t *testing.T) {
	read := func(dir string) string {
		data, err := os.ReadFile(filepath.Join(dir, File))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	one, _, _ := suite(t, "none", someRuns)
	two, _, _ := suite(t, "none", someRuns)
	other, _, _ := suite(t, "none", someRuns, "-seed=2")
	if read(one) != read(two) {
		t.Error("the same seed gives another report")
	}
	if stateOfSpec(t, readReport(t, one), "quiet new").HistorySha256 == stateOfSpec(t, readReport(t, other), "quiet new").HistorySha256 {
		t.Error("another seed gives the same history")
	}
}

// Ginkgo's own dry run writes nothing.
func TestADryRunWritesNothing(t *testing.T) {
	dir, output, failed := suite(t, "none", "-ginkgo.dry-run", "-ginkgo.v", someRuns)
	if files, err := os.ReadDir(dir); failed || err != nil || len(files) > 0 || !strings.Contains(output, "quiet new") {
		t.Errorf("failed %v, %d files, %v:\n%s", failed, len(files), err, output)
	}
}

// The selection of this package and that of Ginkgo are the same.
func TestGinkgoSelectsTheSame(t *testing.T) {
	for _, filter := range []string{"core && udp || flap", "!core", "/^policy/ && !open-connections"} {
		specs, _, err := Selection{Labels: filter}.Select(Catalog())
		if err != nil {
			t.Fatal(err)
		}
		_, output, failed := suite(t, "none", "-ginkgo.dry-run", "-ginkgo.label-filter="+filter)
		if want := fmt.Sprintf("Ran %d of %d Specs", len(specs), len(specs)); failed || !strings.Contains(output, want) {
			t.Errorf("%s: want %q:\n%s", filter, want, output)
		}
	}
}

// Each check of routing is a spec of its own, in each family. A check that is not in the record is no pass.
func TestChecksAreJudgedOneByOne(t *testing.T) {
	dir, output, failed := suite(t, "routing-ipv4:cluster IP,routing-ipv6:no UDP", "-ginkgo.label-filter=routing")
	r := readReport(t, dir)
	if !failed || r.Count(Passed) != len(r.Specs)-2 {
		t.Fatalf("%s\n%s", r.Summary(), output)
	}
	for name, want := range map[string]State{"ipv4 cluster IP": Failed, "ipv6 cluster IP": Passed, "ipv6 UDP": Invalid, "ipv4 UDP": Passed, "dual-stack IPv6, cluster IP": Passed} {
		if got := stateOfSpec(t, r, name); got.State != want {
			t.Errorf("%s is %s, want %s: %v", name, got.State, want, got.Reasons)
		}
	}
	dir, _, _ = suite(t, "routing-ipv4:kernel", "-ginkgo.label-filter=routing && ipv4 && sctp")
	if r := readReport(t, dir); r.Count(Skipped) != len(r.Specs) || r.ExitCode() != 2 {
		t.Errorf("a kernel without SCTP: %s", r.Summary())
	}
}

// A cost that grows with the number of Services turns its own spec red. A record without enough changes is no pass.
func TestCostsAreJudgedByTheirGrowth(t *testing.T) {
	for faults, want := range map[string][2]State{"none": {Passed, Passed}, "cost:time": {Failed, Passed}, "cost:CPU": {Passed, Failed}, "cost:few": {Invalid, Invalid}} {
		dir, output, _ := suite(t, faults, "-ginkgo.label-filter=cost")
		r := readReport(t, dir)
		for i, name := range []string{"cost of a change, time", "cost of a change, CPU"} {
			if got := stateOfSpec(t, r, name); got.State != want[i] || len(got.HistorySha256) != 64 {
				t.Errorf("%s: %s is %s, want %s: %v\n%s", faults, name, got.State, want[i], got.Reasons, output)
			}
		}
	}
}
