package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hitless/hitless/reports/compare"
)

// Each committed comparison has the command of its script's row, so that a page does not show another run than the script makes.
func TestCommittedComparisonsAreThoseOfTheirScripts(t *testing.T) {
	for script, folder := range map[string]string{
		"results.sh": ".", "disruptions.sh": "disruptions", "dataplanes.sh": "dataplanes", "kernels.sh": "kernels", "museum-tried.sh": "museum-tried",
	} {
		files, err := committed(top, folder+"/*.json")
		if err != nil {
			t.Fatal(err)
		}
		rows := scriptRows(t, script)
		for _, file := range files {
			c, err := compare.Read(t.Context(), file)
			if err != nil {
				t.Fatal(err)
			}
			row, known := rows[strings.TrimSuffix(filepath.Base(file), ".json")]
			if !known {
				t.Errorf("%s: hack/%s has no such row", file, script)
				continue
			}
			if diff := cmp.Diff(row, comparisonOf(t, strings.Fields(c.Command))); diff != "" {
				t.Errorf("the command of %s differs from that of hack/%s (-script +file): %s", file, script, diff)
			}
		}
	}
}

// comparison is a command of `hitless compare`, independent of the order of its flags.
type comparison struct {
	Scenario   string
	Subjects   []string // the red twin is the last
	Kernels    []string
	Set, Flags map[string]string
}

// comparisonOf parses a command. The last of repeated flags counts.
func comparisonOf(t *testing.T, words []string) comparison {
	t.Helper()
	if len(words) < 3 || words[1] != "compare" || len(words)%2 == 0 {
		t.Fatalf("%q is not a comparison", words)
	}
	c := comparison{Scenario: words[2], Set: map[string]string{}, Flags: map[string]string{}}
	for i := 3; i < len(words); i += 2 {
		switch flag, value := words[i], words[i+1]; flag {
		case "--subject":
			c.Subjects = append(c.Subjects, value)
		case "--guest-kernel":
			c.Kernels = append(c.Kernels, value)
		case "--set":
			key, value, _ := strings.Cut(value, "=")
			c.Set[key] = value
		case "--out":
		default:
			c.Flags[flag] = value
		}
	}
	return c
}

// scriptRows returns the comparisons of a script in hack, by the names of its rows. The script runs with stand-ins for the programs that it calls.
func scriptRows(t *testing.T, name string) map[string]comparison {
	t.Helper()
	script, err := filepath.Abs(filepath.Join(top, "hack", name))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for file, text := range map[string]string{
		"bin/hitless": `case $1 in
build) printf 'kube-proxy\t%s\n' "$0" ;;
compare) echo hitless "$@" >> commands; while [ "$1" != --out ]; do shift; done; mkdir -p "$2"; echo > "$2/compare.json" ;;
results) cp "$3/compare.json" "$4" ;;
*) exit 2 ;;
esac
`, "bin/go": "mkdir -p out/zero-loss\n"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "bin"), 0o755), os.WriteFile(filepath.Join(dir, file), []byte("#!/bin/sh\n"+text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	run := exec.Command(script)
	run.Dir, run.Env = dir, append(os.Environ(), "GO="+filepath.Join(dir, "bin", "go"), "RUNS=", "SUBSET=", "STALE=", "FORCE=")
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
	commands, err := os.ReadFile(filepath.Join(dir, "commands"))
	if err != nil {
		t.Fatal(err)
	}
	rows, same := map[string]comparison{}, map[string]string{}
	for line := range strings.Lines(string(commands)) {
		words := strings.Fields(line)
		c := comparisonOf(t, words)
		name, asks := filepath.Base(words[slices.Index(words, "--out")+1]), fmt.Sprint(c)
		if other := same[asks]; other != "" {
			t.Errorf("%s and %s are one command: %s", name, other, line)
		}
		rows[name], same[asks] = c, name
	}
	return rows
}
