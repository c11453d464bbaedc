package testfiles

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// loopbacks are the addresses of this process that tests use now.
var loopbacks struct {
	sync.Mutex
	used [250]bool
}

// Loopback returns a loopback address that no other test uses until this one ends, so that its ports are free.
func Loopback(t testing.TB) string {
	t.Helper()
	loopbacks.Lock()
	defer loopbacks.Unlock()
	for i, used := range loopbacks.used {
		if used {
			continue
		}
		loopbacks.used[i] = true
		t.Cleanup(func() {
			loopbacks.Lock()
			defer loopbacks.Unlock()
			loopbacks.used[i] = false
		})
		return fmt.Sprintf("127.%d.%d.%d", 64+os.Getpid()>>8&0x3f, os.Getpid()&0xff, 1+i)
	}
	panic(fmt.Sprintf("tests use all %d loopback addresses of this process", len(loopbacks.used)))
}
