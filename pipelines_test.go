package hitless_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// pipeline has the fields of workflows and actions that this project uses.
type pipeline struct {
	Name        string
	On          any
	Inputs      map[string]any
	Permissions any
	Jobs        map[string]struct {
		RunsOn      string `yaml:"runs-on"`
		Permissions any
		Steps       []step
	}
	Runs struct {
		Using string
		Steps []step
	}
}

type step struct {
	Uses  string
	Run   string
	Shell string
	If    string
	With  map[string]string
	Env   map[string]string
}

func pipelines(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{".github/workflows/*", ".github/actions/*/action.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no file matches %s: %v", pattern, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			texts[file] = string(data)
		}
	}
	return texts
}

func parsePipeline(text string) (p pipeline, err error) {
	if err = yaml.Unmarshal([]byte(text), &p); err != nil {
		return p, err
	}
	var steps []step
	for name, job := range p.Jobs {
		if job.RunsOn == "" || len(job.Steps) == 0 {
			return p, errors.New("the job " + name + " needs runs-on and steps")
		}
		steps = append(steps, job.Steps...)
	}
	composite := p.Runs.Using == "composite"
	if composite {
		steps = append(steps, p.Runs.Steps...)
	}
	if p.Name == "" || len(steps) == 0 || (p.On == nil) != composite {
		return p, errors.New("a pipeline needs a name and a step, and a workflow also a trigger")
	}
	for _, s := range steps {
		if (s.Uses == "") == (s.Run == "") || composite && s.Run != "" && s.Shell == "" {
			return p, errors.New("a step needs either uses or run, and in an action also a shell: " + s.Uses + s.Run)
		}
		if strings.Contains(s.Run, "${{") {
			return p, errors.New("an expression in a command executes its input; pass it by the step's env: " + s.Run)
		}
	}
	return p, nil
}

func TestPipelinesAreWellFormed(t *testing.T) {
	for file, text := range pipelines(t) {
		if _, err := parsePipeline(text); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	for name, text := range map[string]string{
		"invalid YAML":        "name: x\n\ton: push",
		"job without steps":   "name: x\non: push\njobs: {a: {runs-on: here, steps: []}}",
		"uses and run":        "name: x\non: push\njobs: {a: {runs-on: here, steps: [{run: a, uses: b}]}}",
		"no shell":            "name: x\nruns: {using: composite, steps: [{run: a}]}",
		"injected command":    "name: x\non: push\njobs: {a: {runs-on: here, steps: [{run: 'a ${{ inputs.x }}'}]}}",
		"no trigger":          "name: x\njobs: {a: {runs-on: here, steps: [{run: a}]}}",
		"job without runs-on": "name: x\non: push\njobs: {a: {steps: [{run: a}]}}",
	} {
		if _, err := parsePipeline(text); err == nil {
			t.Errorf("%s: the pipeline was accepted", name)
		}
	}
}

// The YAML examples of the documentation parse.
func TestDocumentationExamplesAreYAML(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
			block, _, ended := strings.Cut(block, "```")
			var value any
			if err := yaml.Unmarshal([]byte(block), &value); err != nil || !ended {
				t.Errorf("%s: %v in\n%s", page, err, block)
			}
			shown++
		}
	}
	if shown < 5 {
		t.Errorf("only %d blocks were read", shown)
	}
}

// The make targets, scripts, actions and inputs that a pipeline names exist.
func TestPipelineReferencesExist(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	target := regexp.MustCompile(`(?:^|\s|&)make (?:-C \S+ )?([a-z -]+)`)
	script := regexp.MustCompile(`(?:\.ci|hack)/[a-z.-]+`)
	used := regexp.MustCompile(`inputs\.([a-z]+)`)
	for file, text := range pipelines(t) {
		p, err := parsePipeline(text)
		if err != nil {
			t.Fatal(err)
		}
		var steps []step
		for _, job := range p.Jobs {
			steps = append(steps, job.Steps...)
		}
		for _, s := range append(steps, p.Runs.Steps...) {
			for _, m := range target.FindAllStringSubmatch(s.Run, -1) {
				for word := range strings.FieldsSeq(m[1]) {
					if !strings.Contains(s.Run, "apt-get") && !strings.Contains(string(makefile), "\n"+word+":") {
						t.Errorf("%s: make has no target %s", file, word)
					}
				}
			}
			for _, name := range script.FindAllString(s.Run, -1) {
				if info, err := os.Stat(name); err != nil || info.Mode()&0o100 == 0 {
					t.Errorf("%s: %s is not executable", file, name)
				}
			}
			if action, own := ownAction(s.Uses); own {
				checkInputs(t, file, action, s.With)
			}
		}
		declared := slices.Sorted(maps.Keys(p.inputs()))
		for _, m := range used.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(declared, m[1]) {
				t.Errorf("%s uses the unknown input %s; it has %q", file, m[1], declared)
			}
		}
		for _, name := range declared {
			if !strings.Contains(text, "inputs."+name) {
				t.Errorf("%s does not use its input %s", file, name)
			}
		}
	}
}

// ownAction returns the path of an action of this project, which a step uses at a ref or from a checkout.
func ownAction(uses string) (path string, own bool) {
	if path, own = strings.CutPrefix(uses, "./.hitless/"); own {
		return path, true
	}
	path, _, _ = strings.Cut(uses, "@")
	return strings.CutPrefix(path, "hitless/hitless/")
}

// The reusable workflow measures with the version that its caller asks for.
func TestTheGateHasTheVersionOfItsInput(t *testing.T) {
	p, err := parsePipeline(pipelines(t)[".github/workflows/gate.yaml"])
	if err != nil {
		t.Fatal(err)
	}
	steps := p.Jobs["gate"].Steps
	action := slices.IndexFunc(steps, func(s step) bool { _, own := ownAction(s.Uses); return own })
	if action < 1 || steps[action].Uses != "./.hitless/.github/actions/gate" {
		t.Fatalf("the gate is not of a checkout: %+v", steps)
	}
	with := map[string]string{"repository": "hitless/hitless", "ref": "${{ inputs.version }}", "path": ".hitless", "persist-credentials": "false"}
	if checkout := steps[action-1]; !strings.HasPrefix(checkout.Uses, "actions/checkout@") || !maps.Equal(checkout.With, with) {
		t.Errorf("the checkout before the gate is %+v", checkout)
	}
}

// inputs returns the inputs of an action, or of a workflow that is called or started by hand.
func (p pipeline) inputs() map[string]any {
	all := p.Inputs
	events, _ := p.On.(map[string]any)
	for _, event := range []string{"workflow_call", "workflow_dispatch"} {
		if e, is := events[event].(map[string]any); is {
			all, _ = e["inputs"].(map[string]any)
		}
	}
	return all
}

// checkInputs checks that the action has the inputs of a step's with.
func checkInputs(t *testing.T, file, action string, with map[string]string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(action, "action.yaml"))
	if err != nil {
		t.Errorf("%s uses %s: %v", file, action, err)
		return
	}
	p, err := parsePipeline(string(data))
	if err != nil {
		t.Fatal(err)
	}
	for name := range with {
		if p.Inputs[name] == nil {
			t.Errorf("%s passes the unknown input %s to %s", file, name, action)
		}
	}
}

// runGate runs hack/gate.sh with a fake hitless whose commands run and gate exit with these codes. It returns the exit code and the calls.
func runGate(t *testing.T, run, gate string, env ...string) (code int, calls string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	fake := "#!/bin/sh\necho \"$*\" >> " + dir + "/calls\ncase $1 in run) exit " + run + ";; gate) echo judged; exit " + gate + ";; esac\n"
	if err := os.WriteFile(filepath.Join(dir, "bin", "hitless"), []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("hack/gate.sh")
	cmd.Env = append(os.Environ(), append([]string{"HITLESS=" + dir, "SCENARIO=rollout", "SUBJECT=bundled", "OUT=" + dir + "/out", "GITHUB_STEP_SUMMARY="}, env...)...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %s", err, out)
	}
	data, err := os.ReadFile(dir + "/calls")
	if err != nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), strings.ReplaceAll(string(data), dir, "DIR")
}

func TestGateExitCodes(t *testing.T) {
	const first = "run rollout --subject bundled --seed 1 --controlplane replay --out DIR/out"
	for _, c := range []struct {
		name, run, gate string
		env             []string
		code            int
		calls           string
	}{
		{"a run that passes", "0", "9", nil, 0, first + "\n"},
		{"a run that fails", "1", "9", nil, 1, first + "\n"},
		{"a loss within the budget", "1", "0", []string{"BUDGET=b.yaml"}, 0, first + "\ngate DIR/out --budget b.yaml\n"},
		{"a loss over the budget", "1", "1", []string{"BUDGET=b.yaml"}, 1, first + "\ngate DIR/out --budget b.yaml\n"},
		{"an invalid run", "3", "0", []string{"BUDGET=b.yaml"}, 3, first + "\n"},
		{"parameters", "0", "9", []string{"SET=rollouts=1\nreplicas=2"}, 0, first + " --set rollouts=1 --set replicas=2\n"},
	} {
		if code, calls := runGate(t, c.run, c.gate, c.env...); code != c.code || calls != c.calls {
			t.Errorf("%s: exit code %d after\n%swant %d after\n%s", c.name, code, calls, c.code, c.calls)
		}
	}
}

// The summary of a GitHub job begins with the verdict that decides: that by the budget, if there is one.
func TestTheSummaryOfAJobHasTheVerdictByTheBudget(t *testing.T) {
	for want, env := range map[string][]string{"": {}, "## By the budget b.yaml\n\n```\njudged\n```\n\n": {"BUDGET=b.yaml"}} {
		summary := filepath.Join(t.TempDir(), "summary.md")
		runGate(t, "1", "0", append(env, "GITHUB_STEP_SUMMARY="+summary)...)
		if got, err := os.ReadFile(summary); err != nil || string(got) != want {
			t.Errorf("with %q the summary is %q, want %q: %v", env, got, want, err)
		}
	}
}

// hack/versions.sh runs all scenarios and exits with the worst code.
func TestVersionsExitsWithTheWorstCode(t *testing.T) {
	for code, cases := range map[int]string{0: "", 1: "*kill*) exit 1;;", 3: "*kill*) exit 3;; *scaledown*) exit 1;;"} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
			t.Fatal(err)
		}
		fake := "#!/bin/sh\necho \"$*\" >> " + dir + "/calls\ncase \"$*\" in " + cases + " esac\n"
		if err := os.WriteFile(filepath.Join(dir, "bin", "hitless"), []byte(fake), 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("hack/versions.sh")
		cmd.Env = append(os.Environ(), "HITLESS="+dir, "OUT=out", "OLD=v1.36.1", "NEW=v1.37.1", "MODE=ipvs", "RUNS=4")
		var exit *exec.ExitError
		if out, err := cmd.CombinedOutput(); err != nil && !errors.As(err, &exit) {
			t.Fatalf("%v: %s", err, out)
		}
		calls, err := os.ReadFile(dir + "/calls")
		if err != nil {
			t.Fatal(err)
		}
		const pair = "--subject kube-proxy@v1.36.1/ipvs --subject kube-proxy@v1.37.1/ipvs --controlplane replay --runs 4"
		if got := cmd.ProcessState.ExitCode(); got != code || strings.Count(string(calls), pair) != 4 {
			t.Errorf("exit code %d, want %d, after\n%s", got, code, calls)
		}
	}
}

// publish runs hack/publish.sh with a fake gh on the files of a release, and returns the exit code and the call.
func publish(t *testing.T, tag string, files map[string]string) (int, string) {
	t.Helper()
	dir := t.TempDir()
	fake := "#!/bin/sh\necho \"$*\" > " + dir + "/call\n"
	for _, sub := range []string{"bin", "out"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "bin", "gh"), []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, "out", name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("hack/publish.sh")
	cmd.Env = append(os.Environ(), "TAG="+tag, "OUT="+dir+"/out", "PATH="+dir+"/bin:"+os.Getenv("PATH"))
	_ = cmd.Run() // its exit code is the result
	call, _ := os.ReadFile(dir + "/call")
	return cmd.ProcessState.ExitCode(), strings.ReplaceAll(string(call), dir, "DIR")
}

// Only the complete and undamaged release of the tag is published.
func TestPublish(t *testing.T) {
	const archive, text = "hitless_v1.2.3_linux_amd64.tar.gz", "an archive"
	sums := func(name, text string) string { return fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(text)), name) }
	for name, c := range map[string]struct {
		tag   string
		files map[string]string
		code  int
		call  string
	}{
		"the release": {"v1.2.3", map[string]string{archive: text, "SHA256SUMS": sums(archive, text)}, 0,
			"release create v1.2.3 --verify-tag --title v1.2.3 --generate-notes DIR/out/SHA256SUMS DIR/out/" + archive + "\n"},
		"with a hidden marker": {"v1.2.3", map[string]string{archive: text, ".hitless-made": "", "SHA256SUMS": sums(archive, text)}, 0,
			"release create v1.2.3 --verify-tag --title v1.2.3 --generate-notes DIR/out/SHA256SUMS DIR/out/" + archive + "\n"},
		"another tag":            {"v1.2.4", map[string]string{archive: text, "SHA256SUMS": sums(archive, text)}, 2, ""},
		"a damaged archive":      {"v1.2.3", map[string]string{archive: "damaged", "SHA256SUMS": sums(archive, text)}, 1, ""},
		"a file without its sum": {"v1.2.3", map[string]string{archive: text, "more": "", "SHA256SUMS": sums(archive, text)}, 2, ""},
		"a sum without its file": {"v1.2.3", map[string]string{archive: text, "SHA256SUMS": sums(archive, text) + sums("more", "")}, 2, ""},
	} {
		if code, call := publish(t, c.tag, c.files); code != c.code || call != c.call {
			t.Errorf("%s: exit code %d after %q, want %d after %q", name, code, call, c.code, c.call)
		}
	}
	rc := strings.ReplaceAll(archive, "v1.2.3", "v1.2.3-rc.1")
	if code, call := publish(t, "v1.2.3-rc.1", map[string]string{rc: text, "SHA256SUMS": sums(rc, text)}); code != 0 || !strings.Contains(call, "--prerelease") {
		t.Errorf("a release candidate: exit code %d after %q", code, call)
	}
}

// A script that lacks a variable or gets a wrong word says which, and the words that it knows.
func TestScriptsSayWhatTheyNeed(t *testing.T) {
	for _, c := range []struct{ script, word, want string }{
		{"hack/publish.sh", "", "set TAG"},
		{"hack/gate.sh", "", "set SCENARIO SUBJECT OUT"},
		{"hack/packages.sh", "tset", "no group of packages is called tset; the groups are base lab make tests browser cross lint"},
	} {
		cmd := exec.Command(c.script, strings.Fields(c.word)...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
		out, _ := cmd.CombinedOutput() // its exit code is checked
		if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(string(out), c.want) {
			t.Errorf("%s %s: exit code %d, %q; want 2 and %q", c.script, c.word, code, out, c.want)
		}
	}
}

// Each row of the list of this repository's own packages has a group, a program, a package and a purpose.
func TestOwnPackagesAreComplete(t *testing.T) {
	text, err := os.ReadFile("hack/packages.txt")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		if rows++; len(strings.Fields(line)) < 4 {
			t.Errorf("%q has not all fields", line)
		}
	}
	if rows == 0 {
		t.Error("there are no rows: remove the file")
	}
}

// onlyReads reports whether a workflow has no more than the right to read the sources; an action has none.
func onlyReads(p pipeline) bool {
	for _, job := range p.Jobs {
		if job.Permissions != nil {
			return false
		}
	}
	return len(p.Jobs) == 0 || reflect.DeepEqual(p.Permissions, map[string]any{"contents": "read"})
}

// A workflow without permissions has those of its repository, which may be to write.
func TestOnlyReads(t *testing.T) {
	for text, want := range map[string]bool{
		"{permissions: {contents: read}, jobs: {a: {}}}":                               true,
		"{runs: {using: composite}}":                                                   true,
		"{jobs: {a: {}}}":                                                              false,
		"{permissions: write-all, jobs: {a: {}}}":                                      false,
		"{permissions: {contents: read, packages: write}, jobs: {a: {}}}":              false,
		"{permissions: {contents: read}, jobs: {a: {permissions: {contents: write}}}}": false,
	} {
		var p pipeline
		if err := yaml.Unmarshal([]byte(text), &p); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if onlyReads(p) != want {
			t.Errorf("%s: reads only is %v", text, !want)
		}
	}
}

// A release is made for tags alone, after the tests, and nothing else writes to the repository.
func TestReleasesComeFromTags(t *testing.T) {
	for file, text := range pipelines(t) {
		p, err := parsePipeline(text)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(file) != "release.yaml" {
			if !onlyReads(p) {
				t.Errorf("%s may write: %v", file, p.Permissions)
			}
			continue
		}
		on, _ := p.On.(map[string]any)
		push, _ := on["push"].(map[string]any)
		if len(on) != 1 || len(push) != 1 || push["tags"] == nil {
			t.Errorf("%s runs on %v", file, p.On)
		}
		var runs []string
		for _, s := range p.Jobs["release"].Steps {
			if s.Run != "" {
				runs = append(runs, s.Run)
			}
		}
		if want := []string{"make unit lint", "make release", "hack/publish.sh"}; !slices.Equal(runs, want) {
			t.Errorf("%s runs %q, want %q", file, runs, want)
		}
	}
}
