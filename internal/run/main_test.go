//go:build !lab

package run_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain has more tests run side by side than there are processors: those of live runs spend their time in the pauses of the probes.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
