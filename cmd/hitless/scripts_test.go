//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/testfiles"
)

// script runs a script of hack with these variables, and returns its exit code and output.
func script(t *testing.T, file string, variables ...string) (code int, text string) {
	t.Helper()
	cmd := exec.Command(file)
	cmd.Env = append(os.Environ(), variables...)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v: %s", file, err, out)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// played puts a program of that text into a folder.
func played(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(testfiles.Write(t, dir, name, []byte(text)), 0o755); err != nil {
		t.Fatal(err)
	}
}

// An interrupt ends a comparison of versions: the next scenario does not begin.
func TestInterruptsEndComparisonsOfVersions(t *testing.T) {
	for _, code := range []string{"130", "143"} {
		dir := t.TempDir()
		log := filepath.Join(dir, "log")
		played(t, filepath.Join(dir, "bin"), "hitless", "#!/bin/sh\necho $2 >>"+log+"\n[ $2 != restart ] || exit "+code+"\n")
		got, text := script(t, "../../hack/versions.sh", "HITLESS="+dir, "OLD=v1.36.1", "NEW=v1.37.1", "MODE=ipvs", "OUT="+dir)
		if calls, err := os.ReadFile(log); err != nil || string(calls) != "rollout\nrestart\n" || got != 130 && got != 143 || !strings.Contains(text, "interrupted") {
			t.Errorf("exit code %d after %q (%v):\n%s", got, calls, err, text)
		}
	}
}

// A variable that is missing is a wrong call, and no loss of connections.
func TestScriptsNameTheVariablesThatTheyLack(t *testing.T) {
	for file, words := range map[string]string{"gate.sh": "SCENARIO SUBJECT OUT", "versions.sh": "OLD NEW MODE"} {
		for _, missing := range strings.Fields(words) {
			variables := []string{"HITLESS=/nowhere"}
			for _, name := range strings.Fields(words) {
				if name != missing {
					variables = append(variables, name+"=x")
				}
			}
			variables = append(variables, missing+"=")
			if code, text := script(t, "../../hack/"+file, variables...); code != exitUsage || !strings.Contains(text, "set "+missing+",") {
				t.Errorf("%s without %s: exit code %d\n%s", file, missing, code, text)
			}
		}
	}
}
