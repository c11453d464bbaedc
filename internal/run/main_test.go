//go:build !lab

package run_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain runs more tests in parallel than there are processors, because tests of live runs mostly wait.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
