//go:build unix

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// eachFlag calls a function with each flag of each command, also of the hidden ones.
func eachFlag(c *cobra.Command, do func(c *cobra.Command, f *pflag.Flag)) {
	c.InitDefaultHelpFlag()
	c.LocalFlags().VisitAll(func(f *pflag.Flag) { do(c, f) })
	for _, child := range c.Commands() {
		eachFlag(child, do)
	}
}

// meaningful are the flags that accept a value which the rule refuses elsewhere, with the value.
var meaningful = []string{
	"--duration 0", "--delayed-after 0", // no limit
	"--seed -1",
	"--healthz-bind-address ", "--metrics-bind-address ", // off
	"--v 0", "--ipvs-min-sync-period 0", "--reconcile-period 0", "--drain-interval 0", "--drain-period 0", "--drain-gone-period 0",
	"--ipvs-tcp-timeout 0", "--ipvs-tcpfin-timeout 0", "--ipvs-udp-timeout 0", // none, or the kernel's
}

// Every flag of every command refuses the empty value. Numbers and durations refuse 0, negative ones, NaN and infinities too. Flags
// with another meaning of such a value are listed here.
func TestEveryFlagIsStrict(t *testing.T) {
	count, used := 0, map[string]bool{}
	eachFlag(root(), func(c *cobra.Command, f *pflag.Flag) {
		count++
		bad := []string{""}
		switch f.Value.Type() {
		case "int", "int64", "float64", "duration", "intSlice":
			bad = append(bad, "0", "-1", "-1s", "NaN", "Inf", "-Inf", "1e999", "x")
		case "string", "stringSlice", "stringArray", "bool":
		default:
			t.Errorf("%s --%s has the type %s, which the rule does not know", c.CommandPath(), f.Name, f.Value.Type())
		}
		for _, text := range bad {
			call := "--" + f.Name + " " + text
			err := f.Value.Set(text)
			if slices.Contains(meaningful, call) {
				used[call] = true
				if err != nil {
					t.Errorf("%s %s: %v, and it means something", c.CommandPath(), call, err)
				}
			} else if err == nil {
				t.Errorf("%s %q is accepted", c.CommandPath(), call)
			}
		}
	})
	if count < 150 {
		t.Errorf("%d flags were checked: the walk misses commands", count)
	}
	for _, call := range meaningful {
		if !used[call] {
			t.Errorf("no command has %q", call)
		}
	}
}

// A default is a value that the rule accepts, or it means that the flag was not given.
func TestDefaultsFollowTheRule(t *testing.T) {
	eachFlag(root(), func(c *cobra.Command, f *pflag.Flag) {
		switch f.DefValue {
		case "", "0", "0s", "[]", "false":
			return
		}
		if err := f.Value.Set(strings.Trim(f.DefValue, "[]")); err != nil {
			t.Errorf("%s --%s has the default %s: %v", c.CommandPath(), f.Name, f.DefValue, err)
		}
	})
}

// emptyFolder makes an empty folder the working folder, and returns the files in it after a call.
func emptyFolder(t *testing.T) (left func() []string) {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("HITLESS_CACHE", filepath.Join(t.TempDir(), "cache"))
	return func() (names []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
}

// A wrong command line ends with exit code 2, one line on standard error, and writes nothing.
func TestWrongInputWritesNothing(t *testing.T) {
	left := emptyFolder(t)
	for args, want := range map[string]string{
		"run rollout --subject=":                           "--subject",
		"run rollout --rate 0":                             "--rate",
		"run rollout --rate NaN":                           "not a number",
		"run rollout --rate Inf":                           "not a number",
		"run rollout --nodes 0":                            "--nodes",
		"run rollout --nodes -3":                           "negative",
		"run rollout --out=":                               "--out",
		"run rollout --deadline -1s":                       "negative",
		"run rollout --deadline 0":                         "0 means nothing",
		"run rollout --binaries=":                          "--binaries",
		"run rollout --kubeconfig=":                        "--kubeconfig",
		"run rollout --set replicas=":                      "the value is empty",
		"run rollout --set replicas=1 --set replicas=2":    "twice",
		"run rollout --set =1":                             "key=value",
		"run rollout --rate 1 --rate 2":                    "given twice",
		"run rollout --kernel box":                         "auto, vm, host",
		"run fault --set node=node-9":                      "the nodes are node-1, node-2, node-3",
		"run rollout --nodes 1":                            "needs 2 nodes",
		"run restart --nodes 1":                            "needs 3 nodes",
		"run restart --nodes 5 --set replicas=7":           "needs 7 nodes",
		"run ":                                             "argument 1 is empty",
		"compare restart --subject= --subject bundled":     "--subject",
		"compare restart --subject a --subject b --runs 0": "--runs",
		"soak --for 0":                                     "--for",
		"soak --seeds=":                                    "--seeds",
		"soak --probe-every -1s":                           "negative",
		"soak --set for=2h":                                "--for and --keep-going",
		"probe 127.0.0.1:1 --rate NaN":                     "not a number",
		"probe 127.0.0.1:1 --duration -1s":                 "negative",
		"probe 127.0.0.1:1 --path=":                        "--path",
		"watch start 127.0.0.1:1 --out=":                   "--out",
		"replay ":                                          "argument 1 is empty",
		"record --kubeconfig= --out x.timeline":            "--kubeconfig",
		"record --kubeconfig x --out=":                     "--out",
		"record --kubeconfig x --out x.timeline --for 0":   "--for",
		"report --format=":                                 "--format",
		"report serve . --listen=":                         "--listen",
		"minimize --out= .":                                "--out",
		"museum run k8s-85643 --rate 0":                    "--rate",
		"museum run k8s-85643 k8s-103857 --nodes 3":        "needs 2",
		"bench-proxier --services 0":                       "--services",
		"bench-proxier --services 100,":                    "--services",
		"lab up --nodes 0":                                 "--nodes",
		"lab nonsense":                                     "unknown command",
		"build ":                                           "argument 1 is empty",
		"clean --within 0":                                 "--within",
		"schema ":                                          "argument 1 is empty",
		"gate . --budget=":                                 "--budget",
		"run rollout --budget=":                            "--budget",
		"gate .":                                           "name its file with --budget FILE",
		"help nonsense":                                    "there is no command",
		"completion nonsense":                              "unknown command",
		"run rollout --subjct bundled":                     "did you mean --subject?",
		"proxier --ipvs-sync-period 0":                     "0 means nothing",
		"proxier --kubeconfig=":                            "--kubeconfig",
		"proxier --log-format xml":                         "text, json",
	} {
		var out, errs bytes.Buffer
		words := strings.Split(args, " ")
		if code := execute(words, &out, &errs); code != exitUsage || !strings.Contains(errs.String(), want) || strings.Count(errs.String(), "\n") != 1 {
			t.Errorf("hitless %s: exit %d, want 2 and one line with %q: %s%s", args, code, want, errs.String(), out.String())
		}
	}
	if names := left(); len(names) > 0 {
		t.Errorf("wrong calls left %q", names)
	}
}

// Files that a user names are regular and bounded. A named pipe ends a call at once, and so does a device without an end.
func TestFilesAreRegular(t *testing.T) {
	left := emptyFolder(t)
	elsewhere := t.TempDir()
	pipe := filepath.Join(elsewhere, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(elsewhere, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	large := write("large", "")
	if err := os.Truncate(large, 1<<40); err != nil {
		t.Fatal(err)
	}
	kubeconfig := write("kubeconfig", "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"+
		"clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: u, user: {client-key: pipe, client-certificate: pipe}}]\n")
	twice := write("twice", "clusters: []\nclusters: []\n")
	program := write("program.yaml", "program: /dev/zero\nready: {command: [x]}\n")
	for _, c := range []struct{ args, want string }{
		{"run rollout --subject exec:" + pipe, "is a named pipe"},
		{"run rollout --subject exec:/dev/zero", "is a device"},
		{"run rollout --subject exec:" + large, "more than 1 MB"},
		{"run rollout --subject exec:" + elsewhere, "is a folder"},
		{"run rollout --subject exec:", "the name of the file is empty"},
		{"run rollout --subject exec:" + program, "/dev/zero is a device"},
		{"replay " + pipe, "is a named pipe"},
		{"replay /dev/zero", "is a device"},
		{"replay " + large, "more than 256 MB"},
		{"gate . --budget " + pipe, "is a named pipe"},
		{"run rollout --budget " + pipe, "is a named pipe"},
		{"gate . --budget " + large, "more than 1 MB"},
		{"run rollout --sign " + pipe, "is a named pipe"},
		{"probe 127.0.0.1:1 --sign " + pipe, "is a named pipe"},
		{"watch worker 127.0.0.1:1 --sign /dev/zero", "is a device"},
		{"report . --verify-with " + pipe, "is a named pipe"},
		{"report serve . --verify-with " + large, "more than 1 MB"},
		{"report serve " + pipe, "give a folder with runs"},
		{"run rollout --kubeconfig " + pipe, "is a named pipe"},
		{"run rollout --kubeconfig " + kubeconfig, "is a named pipe"},
		{"run rollout --kubeconfig " + twice, ":2: clusters is given twice"},
		{"clean --kubeconfig " + large, "more than 1 MB"},
		{"record --out x.timeline --kubeconfig /dev/zero", "is a device"},
		{"results " + pipe, "is a named pipe"},
		{"lab shell --kubeconfig " + pipe, "is a named pipe"},
		{"proxier --config " + pipe, "is a named pipe"},
		{"proxier --kubeconfig " + pipe, "is a named pipe"},
	} {
		var out bytes.Buffer
		if code := execute(strings.Fields(c.args), &out, &out); code != exitUsage || !strings.Contains(out.String(), c.want) {
			t.Errorf("hitless %s: exit %d, want 2 and %q: %s", c.args, code, c.want, out.String())
		}
	}
	if names := left(); len(names) > 0 {
		t.Errorf("wrong calls left %q", names)
	}
}

// A budget is one document with known keys. Errors name file and line, and nothing of Go.
func TestBudgetErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	for text, want := range map[string]string{
		"droped: 1\n":                 "b.yaml:1: unknown key \"droped\"; the keys are delayed, dropped",
		"dropped: 1\ndropped: 2\n":    "b.yaml:2: dropped is given twice",
		"dropped: 1\n---\ndelayed: 1": "b.yaml:2: a second document",
		"dropped: none\n":             "b.yaml:1: dropped: \"none\" is not a whole number",
		"dropped: .nan\n":             "is not a whole number",
		"dropped: -1\n":               "is not a whole number of 0 or more",
		"dropped:\n":                  "is not a whole number",
		"- dropped\n":                 "b.yaml:1: want key: value lines",
		"":                            "b.yaml:1: the file is empty",
		"dropped: [\n":                "this is not YAML",
		"rules:\n- lane: a\n":         "b.yaml:2: this rule limits nothing",
		"rules:\n- {scenario: rolout, dropped: 1}\n": "b.yaml:2: there is no scenario \"rolout\"",
	} {
		if err := os.WriteFile("b.yaml", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		code := execute([]string{"gate", ".", "--budget", "b.yaml"}, &out, &out)
		if code != exitUsage || !strings.Contains(out.String(), want) || strings.Contains(out.String(), "Go ") || strings.Contains(out.String(), "unmarshal") {
			t.Errorf("%q: exit %d, want 2 and %q: %s", text, code, want, out.String())
		}
		out.Reset()
		if code := execute([]string{"run", "rollout", "--budget", "b.yaml", "--out", "o"}, &out, &out); code != exitUsage || !strings.Contains(out.String(), want) {
			t.Errorf("run with %q: exit %d, want 2 and %q: %s", text, code, want, out.String())
		}
	}
	if err := os.WriteFile("b.yaml", []byte("rules:\n- {scenario: rollout, lane: tcp-long, dropped: 1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if code := execute([]string{"run", "rollout", "--budget", "b.yaml", "--out", "o"}, &out, &out); code != exitUsage || !strings.Contains(out.String(), "b.yaml:2: the run will have no lane \"tcp-long\"") {
		t.Errorf("a lane that the run will not have: exit %d: %s", code, out.String())
	}
	if _, err := os.Stat("o"); err == nil {
		t.Error("a wrong budget left a folder")
	}
}

// Help shows a flag's value as one word: pflag takes it from the first quoted words of its text.
func TestEveryFlagNamesItsValueByOneWord(t *testing.T) {
	eachFlag(root(), func(c *cobra.Command, f *pflag.Flag) {
		if name, _ := pflag.UnquoteUsage(f); strings.Contains(name, " ") {
			t.Errorf("%s shows --%s %s", c.CommandPath(), f.Name, name)
		}
	})
}
