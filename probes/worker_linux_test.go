//go:build !portable

package probes

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
)

// A worker without descriptors for its engine ends with all of its goroutines; else the bubble panics.
func TestWorkerWithoutAnEngineEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: limit.Max}); err != nil {
			t.Fatal(err)
		}
		err := Work(t.Context(), strings.NewReader(`{"base":1,"seed":1}`), io.Discard)
		if again := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); again != nil {
			t.Fatal(again)
		}
		if err == nil {
			t.Error("it has an engine")
		}
	})
}
