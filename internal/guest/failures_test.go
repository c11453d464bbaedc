//go:build linux

package guest

import (
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

func TestNearAFailure(t *testing.T) {
	f := newFailures()
	if f.near(10 * time.Second) {
		t.Error("nothing failed yet")
	}
	f.add(record.Attempt{Start: 10500 * time.Millisecond, Total: 3 * time.Second})
	for at, want := range map[time.Duration]bool{
		0: false, 7900 * time.Millisecond: false, 8500 * time.Millisecond: true, 12 * time.Second: true,
		15500 * time.Millisecond: true, 16 * time.Second: false,
	} {
		if f.near(at) != want {
			t.Errorf("near(%v) is not %v", at, want)
		}
	}
}
