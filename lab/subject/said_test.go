package subject

import (
	"testing"
	"time"
)

func TestSaid(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 5, 0, 0, time.UTC)
	const line = "I0101 00:01:27.741309     114 graceful_termination.go:173] Deleting rs: 203.0.113.10:80/TCP/10.244.1.2:8080"
	e, is := said("node-1", line, now, 297*time.Second)
	if !is || e.At != 84741309*time.Microsecond || e.Node != "node-1" || e.Attrs["service"] != "203.0.113.10:80" ||
		e.Attrs["backend"] != "10.244.1.2:8080" || e.Attrs["change"] != "removed" {
		t.Errorf("%v, %+v", is, e)
	}
	for name, other := range map[string]string{
		"another line of the same file":    "I0101 00:01:27.741237     114 graceful_termination.go:160] Trying to delete rs: 203.0.113.10:80/TCP/10.244.1.2:8080",
		"no time":                          "I0199 00:01:27.741309     114 graceful_termination.go:173] Deleting rs: 203.0.113.10:80/TCP/10.244.1.2:8080",
		"a time before the run":            "I1231 23:59:59.000000     114 graceful_termination.go:173] Deleting rs: 203.0.113.10:80/TCP/10.244.1.2:8080",
		"what another program might write": "Deleting rs: 203.0.113.10:80/TCP/10.244.1.2:8080",
	} {
		if e, is := said("node-1", other, now, 297*time.Second); is {
			t.Errorf("%s: %+v", name, e)
		}
	}
}
