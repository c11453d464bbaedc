package site

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/record"
)

// The command that repeats a run has the path of each file, as one word of a shell. The record's command has none.
func TestRepeatWorksFromAnyFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's a folder")
	file := filepath.Join(dir, "once1.yaml")
	o := LabOptions{Subject: "exec:" + file, ControlPlane: "kube", Kernel: "auto", Clock: "auto", Nodes: 3}
	run := Call{Verb: []string{"hitless run", "rollout"}, Seed: 7, DefaultNodes: 3}
	if got, want := o.Command(run, filepath.Base), "hitless run rollout --subject exec:once1.yaml --seed 7"; got != want {
		t.Errorf("the record has %q, want %q", got, want)
	}
	replay := run
	replay.Verb, replay.File = []string{"hitless replay"}, filepath.Join(dir, "a.timeline")
	for text, want := range map[string][]string{o.Repeat(run): {"exec:" + file}, o.Repeat(replay): {replay.File, "exec:" + file}} {
		words, err := exec.Command("sh", "-c", "printf '%s\\n' "+text).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range want {
			if !strings.Contains("\n"+string(words), "\n"+word+"\n") {
				t.Errorf("%s: no word %q in\n%s", text, word, words)
			}
		}
	}
	o.Subject, o.GuestKernel = "bundled", dir
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := o.Command(run, filepath.Base); !strings.HasSuffix(got, " --guest-kernel 'it'\\''s a folder'") {
		t.Errorf("the record has %q", got)
	}
	words, err := exec.Command("sh", "-c", "printf '%s\\n' "+o.Repeat(run)).Output()
	if err != nil || !strings.Contains(string(words), "\n--guest-kernel\n"+dir+"\n") {
		t.Errorf("no kernel %s in %s: %v", dir, words, err)
	}
	o.GuestKernel = vm.DefaultKernel
	if got := o.Command(run, filepath.Base); strings.Contains(got, "kernel") {
		t.Errorf("the default kernel gives %q", got)
	}
	if got := o.Repeat(run); got != "" {
		t.Errorf("a run without files has %q", got)
	}
}

// A file is one word of the command, whatever its name, and only its own word has its path.
func TestFilesOfARepeatAreQuoted(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"run", "it's one", "a b", "bundled", "seed"} {
		timeline, subject, budget := filepath.Join(dir, name), filepath.Join(dir, name+".yaml"), filepath.Join(dir, "b"+name)
		c := Call{Verb: []string{"hitless replay"}, File: timeline, BudgetFile: budget, SetOptions: []string{"k=" + name}, RateOption: []string{"--rate", "5"}, Seed: 7, DefaultNodes: 3}
		o := LabOptions{Subject: "exec:" + subject, ControlPlane: "kube", Nodes: 3}
		for text, path := range map[string]func(string) string{o.Command(c, filepath.Base): filepath.Base, o.Repeat(c): filepath.Clean} {
			want := []string{"hitless", "replay", path(timeline), "--subject", "exec:" + path(subject), "--seed", "7", "--rate", "5", "--budget", path(budget), "--set", "k=" + name}
			if got, err := record.SplitWords(text); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s has the words %q (%v), want %q", text, got, err, want)
			}
		}
	}
	live := &Cluster{Call: Call{Verb: []string{"hitless replay"}, File: filepath.Join(dir, "a b")}, live: LiveOptions{Kubeconfig: "f", Target: "nodePort", Fleet: &FleetOptions{}}}
	if got, want := live.command(), "hitless replay 'a b' --kubeconfig FILE --target nodePort"; got != want {
		t.Errorf("a live run has %q, want %q", got, want)
	}
}

// The command that repeats a run on a live cluster names the context of the kubeconfig, if the call did.
func TestTheCommandOfALiveRunNamesTheContext(t *testing.T) {
	for context, want := range map[string]string{"": "--kubeconfig FILE --target nodePort", "it's staging": `--kubeconfig FILE --context 'it'\''s staging' --target nodePort`} {
		c := &Cluster{Call: Call{Verb: []string{"hitless run", "quiet"}}, live: LiveOptions{Kubeconfig: "f", Context: context, Target: "nodePort", Fleet: &FleetOptions{}}}
		if got := c.command(); got != "hitless run quiet "+want {
			t.Errorf("with the context %q: %s", context, got)
		}
	}
}
