package run

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/vm"
)

// describe writes files into a new folder and returns it.
func describe(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const ready = "ready: {url: 'http://127.0.0.1:10256/healthz'}\n"

func TestPackExec(t *testing.T) {
	dir := describe(t, map[string]string{"proxy": "#!/bin/sh\nexec nft -f /etc/rules\n", "rules": "flush ruleset\n",
		"subject.yaml": "program: proxy\n" + ready + "tools: [sh, ls]\nfiles: [{from: rules, to: /etc/rules}]\n"})
	e, err := subject.ReadExec(filepath.Join(dir, "subject.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	img := vm.NewImage()
	if err := addExec(img, &e); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"/opt/subject/proxy", "/etc/rules", "/bin/sh", "/usr/bin/ls", "/lib/x86_64-linux-gnu/libc.so.6"} {
		if !img.Has(file) {
			t.Errorf("%s is missing in the guest", file)
		}
	}
}

// What the guest would only fail at is told before it boots, with the file that says it.
func TestPackExecErrors(t *testing.T) {
	for name, c := range map[string]struct{ program, more, want string }{
		"no shell":         {"#!/bin/sh\n", "", "tools:"},
		"no program":       {"hello", "", "neither a program"},
		"no tool":          {"#!/bin/sh\n", "tools: [sh, no-such-tool]\n", "no-such-tool is not installed"},
		"the same place":   {"#!/bin/sh\n", "tools: [sh]\nfiles: [{from: proxy, to: /usr/bin/sh}]\n", "stands in the guest already"},
		"the same, moved":  {"#!/bin/sh\n", "tools: [sh]\nfiles: [{from: proxy, to: /bin/sh}]\n", "stands in the guest already"},
		"hitless' own":     {"#!/bin/sh\n", "tools: [sh]\nfiles: [{from: proxy, to: /usr/bin/hitless}]\n", "stands in the guest already"},
		"the guest's init": {"#!/bin/sh\n", "tools: [sh]\nfiles: [{from: proxy, to: /init}]\n", "stands in the guest already"},
	} {
		dir := describe(t, map[string]string{"proxy": c.program, "subject.yaml": "program: proxy\n" + ready + c.more})
		e, err := subject.ReadExec(filepath.Join(dir, "subject.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		img := vm.NewImage()
		img.Add("/usr/bin/hitless", e.Pack.Program, 0o755)
		img.Link("/init", "usr/bin/hitless")
		if err := addExec(img, &e); !IsUsage(err) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), e.Pack.Source) {
			t.Errorf("%s: %v, want a usage error with the file's name and %q", name, err, c.want)
		}
	}
}

// The plan and the command say nothing of where the description stands: equal inputs, equal history.
func TestExecPlanHasNoHostPath(t *testing.T) {
	var plans, commands []string
	for range 2 {
		dir := describe(t, map[string]string{"proxy": "#!/bin/sh\n", "subject.yaml": "program: proxy\n" + ready})
		o := Options{Scenario: "rollout", Subject: "exec:" + filepath.Join(dir, "subject.yaml"), Cache: t.TempDir()}
		if err := o.fillDefaults(); err != nil {
			t.Fatal(err)
		}
		p, _, err := o.plan()
		if err != nil {
			t.Fatal(err)
		}
		data, err := p.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		plans, commands = append(plans, string(data)), append(commands, o.command())
	}
	if plans[0] != plans[1] || commands[0] != commands[1] {
		t.Errorf("the same description in two folders gave two plans or commands:\n%q\n%q", plans, commands)
	}
	if !strings.Contains(plans[0], "/opt/subject/proxy") {
		t.Errorf("the plan does not carry the description: %s", plans[0])
	}
}
