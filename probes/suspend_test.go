//go:build linux

package probes

import (
	"testing"
	"time"
)

// Only a suspension changes the value, which starts at the boot.
func TestSuspendedTime(t *testing.T) {
	first, err := Suspended()
	if err != nil {
		t.Fatal(err)
	}
	second, err := Suspended()
	if err != nil || first < 0 || (second-first).Abs() > time.Minute {
		t.Errorf("suspended for %v, then %v: %v", first, second, err)
	}
}
