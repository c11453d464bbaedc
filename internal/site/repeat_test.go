package site

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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
	o.Subject = "bundled"
	if got := o.Repeat(run); got != "" {
		t.Errorf("a run without files has %q", got)
	}
}
