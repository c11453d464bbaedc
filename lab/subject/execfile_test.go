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
	return filepath.Join(dir, "subject.yaml")
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
		"program: none\nready: {url: 'http://x'}":                   "none: no such file",
		"program: proxy\nready: {}":                                 ":2: ready: give either url or command",
		"program: proxy\nready:\n  url: 'http://x'\n  command: [x]": ":3: ready: give either",
		"program: proxy\nready: {url: '127.0.0.1:80'}":              ":2: url:",
		"program: proxy\nready: {uri: x}":                           `:2: unknown key "uri"; the keys are command, url`,
		"program: proxy\nready: {command: nft list}":                ":2: command: give a list",
		"program: proxy\nready: {command: []}":                      ":2: command: give a program",
		whole + "args: --x":                                         ":3: args: give a list",
		whole + "args: ['{nod}']":                                   ":3: args: unknown placeholder {nod}; the placeholders are {clusterCIDR}",
		whole + "env: [A]":                                          ":3: env: give KEY: value",
		whole + "env: {A-B: c}":                                     `:3: env: "A-B" is not`,
		whole + "env:\n  A: b\n  A: c":                              ":5: A is given twice, first in line 4",
		whole + "name: kube-proxy":                                  `:3: name: "kube-proxy" is a subject of hitless' own`,
		whole + "name: a/b":                                         ":3: name:",
		whole + "mode: two words":                                   ":3: mode: give one word",
		whole + "tools: [/bin/sh]":                                  ":3: tools: give one word",
		whole + "files: [{from: proxy.conf}]":                       ":3: files: an entry needs",
		whole + "files:\n- {from: none, to: /etc/x}":                ":4: from:",
		whole + "files:\n- {from: ., to: /etc/x}":                   "is a folder; give a regular file",
		whole + "files:\n- {from: proxy.conf, to: etc/x}":           ":4: to:",
		whole + "files:\n- {from: proxy.conf, to: /tmp/x}":          "not below /dev/ /proc/ /run/ /sys/ /tmp/",
		whole + "stop: {signal: HELLO}":                             `:3: signal: there is no signal "HELLO"`,
		whole + "stop: {within: 1h}":                                ":3: within:",
		whole + "terminatingFallback: maybe":                        ":3: terminatingFallback: give one of on, off",
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
