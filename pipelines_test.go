package hitless_test

import (
	"errors"
	"maps"
	"os"
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
