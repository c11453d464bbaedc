package site

import (
	"errors"
	"strings"
	"testing"
)

// A lab runs on Linux on amd64. Elsewhere one line says what is missing and what runs instead.
func TestLabsNeedALinuxMachine(t *testing.T) {
	if err := checkPlatform("linux", "amd64"); err != nil {
		t.Error(err)
	}
	for _, other := range [][2]string{{"linux", "arm64"}, {"darwin", "arm64"}, {"darwin", "amd64"}, {"windows", "amd64"}} {
		err := checkPlatform(other[0], other[1])
		if !errors.As(err, new(UsageError)) || !strings.Contains(err.Error(), strings.Join(other[:], "/")) || !strings.Contains(err.Error(), "--kubeconfig") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v", other, err)
		}
	}
}
