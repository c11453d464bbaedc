package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// A shell completes scenarios, subjects, keys of --set and their values.
func TestCompletion(t *testing.T) {
	t.Setenv("HITLESS_CACHE", t.TempDir())
	for args, want := range map[string][]string{
		"run ro":                                {"rollout\t"},
		"compare rest":                          {"restart\t"},
		"run rollout --subject ":                {"bundled\n", "exec:\n", "/nftables\n"},
		"run rollout --set ":                    {"rollouts=\t", "trafficPolicy=\t"},
		"soak --set ":                           {"rolloutsPerHour=\t"},
		"run rollout --set trafficPolicy=":      {"trafficPolicy=Local\n", "trafficPolicy=Cluster\n"},
		"run rollout --set antiAffinity=":       {"antiAffinity=off\n"},
		"run rollout --controlplane ":           {"kube\n", "replay\n"},
		"museum run ":                           {"k8s-85643\t"},
		"probe 127.0.0.1:80 --protocol http-re": {"http-reuse\n"},
		"help wa":                               {"watch\t"},
	} {
		var out, errs bytes.Buffer
		code := execute(append([]string{"__complete"}, strings.Split(args, " ")...), &out, &errs)
		for _, word := range want {
			if code != 0 || !strings.Contains(out.String(), word) {
				t.Errorf("%s: exit %d, want %q among\n%s", args, code, word, out.String())
			}
		}
	}
	var out bytes.Buffer
	if execute([]string{"__complete", "run", "rollout", ""}, &out, &out); strings.Contains(out.String(), "restart") {
		t.Errorf("a second scenario is offered:\n%s", out.String())
	}
}

// --version says what the program is, as the command does.
func TestVersionFlag(t *testing.T) {
	var flag, command bytes.Buffer
	if code := execute([]string{"--version"}, &flag, &flag); code != exitPass || !strings.Contains(flag.String(), " go1.") || !strings.Contains(flag.String(), "sha256 ") {
		t.Errorf("exit %d: %s", code, flag.String())
	}
	if execute([]string{"version"}, &command, &command); flag.String() != command.String() {
		t.Errorf("--version says %s, version %s", flag.String(), command.String())
	}
}

// The nearest flag is found for an unknown one, whatever words the error has around it, and for nothing else.
func TestSuggestedFlag(t *testing.T) {
	c := &cobra.Command{Use: "hitless"}
	c.Flags().Int("rate", 0, "")
	for _, test := range []struct {
		arg  string
		want string // what is added to the error; empty for none
	}{{"--rat=3", "--rate?"}, {"--completely-different", "`hitless --help`"}, {"-r", ""}, {"--rate=x", ""}, {"--rate", ""}} {
		err := fmt.Errorf("reading the flags: %w", c.ParseFlags([]string{test.arg}))
		got := suggestFlag(c, err)
		if added := strings.TrimPrefix(got.Error(), err.Error()); (got != err) != (test.want != "") || !strings.Contains(added, test.want) {
			t.Errorf("%s: %v", test.arg, got)
		}
	}
}
