//go:build !(linux && amd64)

package main

import (
	"bytes"
	"runtime"
	"strings"
	"testing"
)

// Where no lab can run, its commands say in one line what is missing, and do nothing.
func TestOtherPlatformsHaveNoLab(t *testing.T) {
	t.Setenv("HITLESS_CACHE", t.TempDir())
	t.Chdir(t.TempDir())
	for _, words := range []string{"run rollout", "run rollout --kernel host", "compare restart --subject bundled --subject kube-proxy@v1.37.1/ipvs",
		"soak --for 1h --seeds 1..1", "lab up", "doctor --install"} {
		var out, text bytes.Buffer
		code := execute(strings.Fields(words), &out, &text)
		line := strings.TrimSpace(text.String())
		if code != exitUsage || strings.Contains(line, "\n") || !strings.Contains(line, runtime.GOOS+"/"+runtime.GOARCH) || !strings.HasPrefix(line, "hitless: ") {
			t.Errorf("hitless %s: exit code %d after\n%s", words, code, text.String())
		}
	}
	var out, text bytes.Buffer
	if code := execute([]string{"doctor"}, &out, &text); code != exitUsage || strings.Count(out.String(), "\n") != 1 || !strings.Contains(out.String(), "a lab needs Linux on amd64") {
		t.Errorf("the doctor: exit code %d after\n%s%s", code, out.String(), text.String())
	}
}
