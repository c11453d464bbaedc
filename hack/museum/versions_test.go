package main

import (
	"path/filepath"
	"testing"

	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/scenarios/museum"
)

// The versions of a bug are known when a version without it is a neighbour of the oldest and of the newest with it.
func TestVersionsOfABugAreKnown(t *testing.T) {
	for name, c := range map[string]struct {
		bug       string
		seen, not []string
		known     bool
	}{
		"neighbours":               {"k8s-105657", []string{"v1.19.16", "v1.22.3"}, []string{"v1.18.0", "v1.22.17"}, true},
		"the next minor version":   {"k8s-105657", []string{"v1.19.0", "v1.22.3"}, []string{"v1.18.0", "v1.23.0"}, true},
		"none older":               {"k8s-105657", []string{"v1.22.3"}, []string{"v1.22.17"}, false},
		"an older one far away":    {"k8s-105657", []string{"v1.22.3"}, []string{"v1.18.0", "v1.22.17"}, false},
		"a newer one far away":     {"k8s-105657", []string{"v1.22.3"}, []string{"v1.21.0", "v1.24.0"}, false},
		"the oldest that is built": {"k8s-105657", []string{"v1.11.0", "v1.22.3"}, []string{"v1.22.17"}, true},
		"the newest that is built": {"k8s-59976", []string{"v1.11.0", "v1.37.1"}, nil, true},
		"the oldest of its mode":   {"k8s-139516", []string{"v1.29.0", "v1.36.3"}, []string{"v1.37.0"}, true},
		"no answer":                {"k8s-105657", nil, nil, false},
	} {
		e, err := museum.Find(c.bug)
		if err != nil {
			t.Fatal(err)
		}
		bad, err := subject.Parse(e.Bad.Subject)
		if err != nil {
			t.Fatal(err)
		}
		of := func(version, mode string) run.BugResult {
			return run.BugResult{Subject: subject.Spec{Name: bad.Name, Version: version, Mode: mode}.String()}
		}
		specimens, others := &file{}, &file{}
		for _, v := range c.seen {
			b := of(v, bad.Mode)
			b.Answer = museum.Seen
			specimens.Bad = append(specimens.Bad, b)
		}
		for _, v := range c.not {
			b := of(v, bad.Mode)
			b.Answer = museum.NotSeen
			others.Good = append(others.Good, b)
		}
		for _, v := range []string{"v1.21.0", "v1.23.0"} { // of another mode, which tells nothing
			b := of(v, "userspace")
			b.Answer = museum.NotSeen
			others.Good = append(others.Good, b)
		}
		if known := bounded(e, bad, specimens, others); known != c.known {
			t.Errorf("%s: known %t, want %t", name, known, c.known)
		}
	}
}

// A search runs the version that the museum names too, and its answer stays where the specimens are.
func TestASearchKeepsOtherVersionsOnly(t *testing.T) {
	e, err := museum.Find("k8s-134147")
	if err != nil {
		t.Fatal(err)
	}
	f := &file{path: filepath.Join(t.TempDir(), "bug.json")}
	older, newer := task{e, other, museum.Specimen{Subject: "kube-proxy@v1.33.0/ipvs"}, 1}, task{e, other, museum.Specimen{Subject: "kube-proxy@v1.35.0/ipvs"}, 1}
	if err := f.keep(e, []run.BugResult{resultOf(tasksOf(e, 1)[0], museum.Seen), resultOf(older, museum.Seen), resultOf(newer, museum.NotSeen)}); err != nil {
		t.Fatal(err)
	}
	if len(f.Bad) != 1 || len(f.Good) != 1 || !f.has(older, "") || !f.has(newer, "") {
		t.Errorf("%+v", f.Answers)
	}
	again, err := open(f.path)
	if err != nil || len(again.subjects()) != 2 {
		t.Errorf("the file has %q: %v", again.subjects(), err)
	}
}
