package subject

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// described writes a description next to a program and a file that it can refer to.
func described(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"proxy": "#!/bin/sh\n", "proxy.conf": "x", "subject.yaml": text} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"empty", "linked", "many/sub"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{"many/a.yaml": definitionText, "many/sub/b.json": `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}}`,
		"bad.yaml": "apiVersion: v1\n---\nkind: ConfigMap\n", "comment.yaml": "# nothing\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "linked", "passwd")); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "subject.yaml")
}

const definitionText = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: rules.example.com}
---
# the second object
apiVersion: v1
kind: Namespace
metadata: {name: proxies}
`

// What prepares kernel, API and nodes: modules, objects of files and folders, mounts, and folders of files.
func TestExecPreparations(t *testing.T) {
	file := described(t, `
program: proxy
ready: {url: "http://127.0.0.1/", within: 3m}
modules: [cls-bpf, sch_ingress]
objects: [many, many/a.yaml]
mounts:
  - {kind: bpffs, at: /run/proxy/bpf}
  - {kind: cgroup2, at: /run/proxy/groups}
files:
  - {from: many, to: /var/lib/proxy}
`)
	got, err := ReadExec(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(file)
	definition := []string{"CustomResourceDefinition.apiextensions.k8s.io", "Namespace"}
	want := Exec{Ready: Ready{URL: "http://127.0.0.1/", Within: 3 * time.Minute}, Modules: []string{"cls_bpf", "sch_ingress"},
		Objects: []Manifest{{"/opt/subject-objects/000-a.yaml", definition}, {"/opt/subject-objects/001-b.json", []string{"ConfigMap"}},
			{"/opt/subject-objects/002-a.yaml", definition}},
		Mounts: []Mount{{BPFFS, "/run/proxy/bpf"}, {Cgroup2, "/run/proxy/groups"}},
		Pack: Pack{Source: file, Program: filepath.Join(dir, "proxy"),
			Files: []File{{filepath.Join(dir, "many/a.yaml"), "/var/lib/proxy/a.yaml"}, {filepath.Join(dir, "many/sub/b.json"), "/var/lib/proxy/sub/b.json"}},
			Objects: []File{{filepath.Join(dir, "many/a.yaml"), "/opt/subject-objects/000-a.yaml"},
				{filepath.Join(dir, "many/sub/b.json"), "/opt/subject-objects/001-b.json"}, {filepath.Join(dir, "many/a.yaml"), "/opt/subject-objects/002-a.yaml"}}}}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Exec{}, "Name", "Version", "Mode", "Program", "Stop", "Fallback")); diff != "" {
		t.Errorf("wrong preparations (-want +got):\n%s", diff)
	}
	if !got.NeedsGroups() || (&Exec{Mounts: got.Mounts[:1]}).NeedsGroups() {
		t.Error("a proxy needs control groups if it mounts them, and only then")
	}
}

func TestReadExec(t *testing.T) {
	file := described(t, `
name: by-hand
version: 1.10
mode: nftables
program: proxy
args: ["--node={node}", --fallback, "{terminatingFallback}"]
env:
  ZONE: "{podCIDR}"
  EMPTY: ""
files:
  - {from: proxy.conf, to: /etc/proxy.conf}
tools: [sh, nft]
ready: {command: [nft, list, ruleset]}
stop: {signal: SIGINT, within: 5s}
cleanup: ["{program}", --cleanup]
terminatingFallback: off
`)
	got, err := ReadExec(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(file)
	want := Exec{Name: "by-hand", Version: "1.10", Mode: "nftables", Program: "/opt/subject/proxy",
		Args: []string{"--node={node}", "--fallback", "{terminatingFallback}"}, Env: []string{"EMPTY=", "ZONE={podCIDR}"},
		Ready: Ready{Command: []string{"nft", "list", "ruleset"}}, Stop: Stop{"INT", 5 * time.Second},
		Cleanup: []string{"{program}", "--cleanup"}, Fallback: "off",
		Pack: Pack{Source: file, Program: filepath.Join(dir, "proxy"), Tools: []string{"sh", "nft"},
			Files: []File{{filepath.Join(dir, "proxy.conf"), "/etc/proxy.conf"}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong description (-want +got):\n%s", diff)
	}
}

func TestExecDefaults(t *testing.T) {
	got, err := ReadExec(t.Context(), described(t, "program: proxy\nready: {url: 'http://{nodeIP}:10256/healthz'}\n"))
	want := Exec{Name: "subject", Mode: "exec", Program: "/opt/subject/proxy",
		Ready: Ready{URL: "http://{nodeIP}:10256/healthz"}, Stop: Stop{"TERM", 30 * time.Second}, Fallback: "off"}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Exec{}, "Pack", "Version")); err != nil || diff != "" {
		t.Errorf("%v, wrong description (-want +got):\n%s", err, diff)
	}
	if !regexp.MustCompile(`^sha256:[0-9a-f]{12}$`).MatchString(got.Version) {
		t.Errorf("version %q, want the program's digest", got.Version)
	}
}

// Each error has the file, the line, the mistake and the correct form.
func TestExecErrors(t *testing.T) {
	const whole = "program: proxy\nready: {url: 'http://127.0.0.1/'}\n"
	for text, want := range map[string]string{
		"":                                  ":1: the file is empty",
		"- program":                         ":1: want key: value",
		"a: [":                              "not YAML",
		whole + "---\nx: y":                 ":3: a second document",
		whole + "progam: x":                 `:3: unknown key "progam"; the keys are args, cleanup`,
		whole + "program: proxy":            ":3: program is given twice",
		"ready: {url: 'http://127.0.0.1/'}": ":1: program is missing",
		"program: proxy":                    ":1: ready is missing",
		"program: none\nready: {url: 'http://x'}":                                   "none: no such file",
		"program: proxy\nready: {}":                                                 ":2: ready: give either url or command",
		"program: proxy\nready:\n  url: 'http://x'\n  command: [x]":                 ":3: ready: give either",
		"program: proxy\nready: {url: '127.0.0.1:80'}":                              ":2: url:",
		"program: proxy\nready: {uri: x}":                                           `:2: unknown key "uri"; the keys are command, url`,
		"program: proxy\nready: {command: nft list}":                                ":2: command: give a list",
		"program: proxy\nready: {command: []}":                                      ":2: command: give a program",
		whole + "args: --x":                                                         ":3: args: give a list",
		whole + "args: ['{nod}']":                                                   ":3: args: unknown placeholder {nod}; the placeholders are {clusterCIDR}",
		whole + "env: [A]":                                                          ":3: env: give KEY: value",
		whole + "env: {A-B: c}":                                                     `:3: env: "A-B" is not`,
		whole + "env:\n  A: b\n  A: c":                                              ":5: A is given twice, first in line 4",
		whole + "name: kube-proxy":                                                  `:3: name: "kube-proxy" is a subject of hitless' own`,
		whole + "name: a/b":                                                         ":3: name:",
		whole + "mode: two words":                                                   ":3: mode: give one word",
		whole + "tools: [/bin/sh]":                                                  ":3: tools: give one word",
		whole + "files: [{from: proxy.conf}]":                                       ":3: files: an entry needs",
		whole + "files:\n- {from: none, to: /etc/x}":                                ":4: from:",
		whole + "files:\n- {from: many, to: dev}":                                   ":4: to:",
		whole + "files:\n- {from: proxy.conf, to: etc/x}":                           ":4: to:",
		whole + "files:\n- {from: proxy.conf, to: /tmp/x}":                          "not below /dev/ /proc/ /sys/ /tmp/",
		whole + "files:\n- {from: empty, to: /etc/x}":                               "empty is a folder without files",
		whole + "files:\n- {from: linked, to: /etc/x}":                              "linked/passwd is no regular file",
		whole + "ready: {within: 1s}":                                               ":3: ready is given twice",
		"program: proxy\nready: {within: 1s}":                                       ":2: ready: give either url or command",
		"program: proxy\nready: {url: 'http://x', within: 31m}":                     ":2: within: give a duration above 0, at most 30m",
		whole + "modules: cls_bpf":                                                  ":3: modules: give a list",
		whole + "modules: [a.ko]":                                                   `:3: modules: "a.ko"; give the name of a kernel module`,
		whole + "modules:\n- cls-bpf\n- cls_bpf":                                    ":5: modules: cls_bpf is given twice",
		whole + "mounts: [{kind: ext4, at: /mnt/x}]":                                ":3: kind: give one of tmpfs, bpffs, cgroup2",
		whole + "mounts: [{kind: tmpfs}]":                                           ":3: mounts: an entry needs kind:",
		whole + "mounts: [{kind: tmpfs, at: /usr/x}]":                               `:3: at: "/usr/x"; give an absolute path below /run/`,
		whole + "mounts: [{kind: tmpfs, at: /run/../usr}]":                          ":3: at:",
		whole + "mounts: [{kind: tmpfs, at: '/run/{node}'}]":                        ":3: at:",
		whole + "mounts:\n- {kind: tmpfs, at: /run/x}\n- {kind: bpffs, at: /run/x}": ":5: mounts: /run/x is given twice",
		whole + "objects: [none.yaml]":                                              ":3: objects:",
		whole + "objects: [proxy.conf]":                                             "a manifest's name ends in .yaml",
		whole + "objects:\n- bad.yaml":                                              "bad.yaml:1: an object needs apiVersion, kind and metadata.name",
		whole + "objects: [comment.yaml]":                                           "comment.yaml has no object",
		whole + "stop: {signal: HELLO}":                                             `:3: signal: there is no signal "HELLO"`,
		whole + "stop: {within: 1h}":                                                ":3: within:",
		whole + "terminatingFallback: maybe":                                        ":3: terminatingFallback: give one of on, off",
	} {
		file := described(t, text)
		_, err := ReadExec(t.Context(), file)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), file) {
			t.Errorf("%q gave %v, want FILE%s", text, err, want)
		}
	}
	if _, err := Parse("exec:" + filepath.Join(t.TempDir(), "none.yaml")); err == nil {
		t.Error("a file that is not there was taken")
	}
}

func TestExecIsASubject(t *testing.T) {
	s, err := Parse("exec:" + described(t, "program: proxy\nready: {url: 'http://x'}\nargs: ['{terminatingFallback}']\n"))
	if err != nil || s.String() != "exec:subject" {
		t.Errorf("%s, %v: the name in records must not be a path of this machine", s, err)
	}
	if s.DefaultFallback() != "on" || s.CheckFallback("off") != nil {
		t.Error("a proxy that takes {terminatingFallback} can be told")
	}
	s, _ = Parse("exec:" + described(t, "program: proxy\nready: {url: 'http://x'}\n"))
	if s.DefaultFallback() != "off" || s.CheckFallback("on") == nil {
		t.Error("a proxy that cannot be told claims that it can honour terminatingFallback=on")
	}
}

func TestExpand(t *testing.T) {
	got := expandAll([]string{"{node}={nodeIP}", "table { a }"}, map[string]string{"node": "node-1", "nodeIP": "10.0.0.11"})
	if want := []string{"node-1=10.0.0.11", "table { a }"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
