package site

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hitless/hitless/lab/vm"
)

// The command that repeats a run has the path of each file, as one word of a shell. The record's command has none.
func TestRepeatWorksFromAnyFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's a folder")
	file := filepath.Join(dir, "once1.yaml")
	o := LabOptions{Subject: "exec:" + file, ControlPlane: "kube", Kernel: "auto", Clock: "auto", Nodes: 3}
	run := Call{Verb: []string{"hitless run", "rollout"}, Seed: 7, DefaultNodes: 3}
	if got, want := o.Command(run), "hitless run rollout --subject exec:once1.yaml --seed 7"; got != want {
		t.Errorf("the record has %q, want %q", got, want)
	}
	replay := run
	replay.Verb, replay.File = []string{"hitless replay", "a.timeline"}, filepath.Join(dir, "a.timeline")
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
	if got := o.Command(run); !strings.HasSuffix(got, " --guest-kernel 'it'\\''s a folder'") {
		t.Errorf("the record has %q", got)
	}
	words, err := exec.Command("sh", "-c", "printf '%s\\n' "+o.Repeat(run)).Output()
	if err != nil || !strings.Contains(string(words), "\n--guest-kernel\n"+dir+"\n") {
		t.Errorf("no kernel %s in %s: %v", dir, words, err)
	}
	o.GuestKernel = vm.DefaultKernel
	if got := o.Command(run); strings.Contains(got, "kernel") {
		t.Errorf("the default kernel gives %q", got)
	}
	if got := o.Repeat(run); got != "" {
		t.Errorf("a run without files has %q", got)
	}
}

// The command that repeats a run on a live cluster names the context of the kubeconfig, if the call did.
func TestTheCommandOfALiveRunNamesTheContext(t *testing.T) {
	for context, want := range map[string]string{"": "--kubeconfig FILE --target nodeport", "it's staging": `--kubeconfig FILE --context 'it'\''s staging' --target nodeport`} {
		c := &Cluster{Call: Call{Verb: []string{"hitless run", "quiet"}}, live: LiveOptions{Kubeconfig: "f", Context: context, Target: "nodeport", Fleet: &FleetOptions{}}}
		if got := c.command(); got != "hitless run quiet "+want {
			t.Errorf("with the context %q: %s", context, got)
		}
	}
}
