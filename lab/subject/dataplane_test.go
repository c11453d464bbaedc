package subject

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hitless/hitless/record"
)

func TestParseDataPlane(t *testing.T) {
	for text, want := range map[string]string{
		"cilium@1.15.19":  "cilium@v1.15.19",
		"cilium@v1.15.19": "cilium@v1.15.19",
		"cilium@1.15.19?enable-k8s-terminating-endpoint=false&debug=true": "cilium@v1.15.19?debug=true&enable-k8s-terminating-endpoint=false",
	} {
		s, err := Parse(text)
		if err != nil || s.String() != want || s.Name != "cilium" || s.Exec == nil {
			t.Errorf("%s: %s, %v", text, s, err)
		}
		again, err := Parse(s.String())
		if err != nil || again.String() != s.String() {
			t.Errorf("%s is read as %s, %v", s, again, err)
		}
	}
	for text, want := range map[string]string{
		"cilium@1.14.0":                        "cilium@v1.15.19",
		"cilium":                               "cilium@VERSION",
		"cilium@1.15.19?devices=eth1":          "the lab sets it",
		"cilium@1.15.19?k8s-kubeconfig-path=x": "the lab sets it",
		"cilium@1.15.19?debug":                 "no flag",
		"cilium@1.15.19/ebpf":                  "hitless can build",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// A flag of the name replaces the one that hitless gives, and is given once.
func TestFlagsOfADataPlane(t *testing.T) {
	s, err := Parse("cilium@1.15.19?enable-k8s-terminating-endpoint=false")
	if err != nil {
		t.Fatal(err)
	}
	var given []string
	for _, arg := range s.Exec.Args {
		if strings.HasPrefix(arg, "--enable-k8s-terminating-endpoint=") {
			given = append(given, arg)
		}
	}
	if !slices.Equal(given, []string{"--enable-k8s-terminating-endpoint=false"}) {
		t.Errorf("the flags are %q", given)
	}
}

// The version says what its program lacks; the name on the command line does not.
func TestAVersionSaysWhatItLacks(t *testing.T) {
	for _, s := range DataPlanes() {
		lacks := strings.Contains(s.Version, "without BGP")
		if lacks != strings.HasPrefix(s.Version, "v1.20.") {
			t.Errorf("%s has the version %q", s, s.Version)
		}
		if strings.Contains(s.String(), "without") {
			t.Errorf("the name %s", s)
		}
	}
}

// The guest gets the description without the recipe, and knows the subject by the same names.
func TestADataPlaneInThePlan(t *testing.T) {
	s, err := Parse("cilium@1.20.2?debug=true")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(s.Exec)
	if err != nil {
		t.Fatal(err)
	}
	var e Exec
	if err := json.Unmarshal(text, &e); err != nil {
		t.Fatal(err)
	}
	got := FromExec(e)
	if got.String() != s.String() || got.Version != s.Version || got.Flags != s.Flags || got.Exec.Recipe != nil {
		t.Errorf("the guest has %+v of %+v", got, s)
	}
}

// Follow takes folders without what is left out, and exactly the manifests of the recipe.
func TestFollow(t *testing.T) {
	sources := t.TempDir()
	for name, text := range map[string]string{
		"bpf/a.c": "a", "bpf/lib/b.h": "b", "bpf/tests/c.c": "c",
		"crds/v2/one.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n", "crds/v2/two.yaml": "not read", "crds/v2/embed.go": "package v2",
	} {
		file := filepath.Join(sources, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	e := Exec{Subject: "x@v1.0.0", Recipe: &Recipe{Folders: []Folder{{From: "bpf", To: "/var/lib/x", Left: []string{"tests"}}}, Objects: "crds", Manifests: []string{"one.yaml"}}}
	if err := e.Follow(t.Context(), sources); err != nil {
		t.Fatal(err)
	}
	var to []string
	for _, f := range e.Pack.Files {
		to = append(to, f.To)
	}
	if !slices.Equal(to, []string{"/var/lib/x/a.c", "/var/lib/x/lib/b.h"}) || len(e.Objects) != 1 || len(e.Pack.Objects) != 1 {
		t.Errorf("files %q, objects %v", to, e.Objects)
	}
	e.Recipe.Manifests = append(e.Recipe.Manifests, "missing.yaml")
	e.Objects = nil
	if err := e.Follow(t.Context(), sources); err == nil || !strings.Contains(err.Error(), "missing.yaml") {
		t.Errorf("without a manifest: %v", err)
	}
}

// Options with which the lab cannot start Cilium are refused before the run.
func TestWhatADataPlaneLacks(t *testing.T) {
	s, err := Parse("cilium@1.15.19")
	if err != nil {
		t.Fatal(err)
	}
	var lack *LackError
	if err := s.CheckFamily(record.DualStack); !errors.As(err, &lack) {
		t.Errorf("dual stack: %v", err)
	}
	if err := s.CheckFamily(record.IPv4); err != nil {
		t.Error(err)
	}
	if !s.Exec.NeedsGroups() {
		t.Error("it would run without control groups, and its socket load balancer would serve all of this machine")
	}
	if err := s.CheckFallback("off"); err != nil {
		t.Errorf("1.15 switches terminating endpoints off by a flag: %v", err)
	}
	newer, err := Parse("cilium@1.20.2")
	if err != nil {
		t.Fatal(err)
	}
	if err := newer.CheckFallback("off"); err == nil {
		t.Error("1.20 has no flag for terminating endpoints")
	}
}
