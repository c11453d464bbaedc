//go:build !(linux && amd64)

package main

import (
	"bytes"
	"runtime"
	"strings"
	"testing"
)

// Where a lab cannot run on this machine's kernel, one line says so and what to do, and nothing is done.
func TestOtherPlatformsHaveNoLabOnTheirKernel(t *testing.T) {
	t.Setenv("HITLESS_CACHE", t.TempDir())
	t.Chdir(t.TempDir())
	commands := []string{"run rollout --kernel host", "lab up"}
	if runtime.GOOS == "windows" {
		commands = append(commands, "run rollout", "compare restart --subject bundled --subject kube-proxy@v1.37.1/ipvs", "soak --for 1h --seeds 1..1", "doctor --install")
	}
	for _, words := range commands {
		var out, text bytes.Buffer
		code := execute(strings.Fields(words), &out, &text)
		line := strings.TrimSpace(text.String())
		if code != exitUsage || strings.Contains(line, "\n") || !strings.Contains(line, runtime.GOOS+"/"+runtime.GOARCH) || !strings.HasPrefix(line, "hitless: ") {
			t.Errorf("hitless %s: exit code %d after\n%s", words, code, text.String())
		}
	}
}

// A lab in a VM needs a program for guests, and the doctor says where to get it.
func TestOtherPlatformsNeedAProgramForGuests(t *testing.T) {
	t.Setenv("HITLESS_CACHE", t.TempDir())
	var out, text bytes.Buffer
	code := execute([]string{"doctor"}, &out, &text)
	if code != exitUsage || runtime.GOOS != "windows" && !strings.Contains(out.String(), "hitless-linux-amd64") {
		t.Errorf("the doctor: exit code %d after\n%s%s", code, out.String(), text.String())
	}
}
