package observers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// logEvents reads a log of a run that is 297 s old at five minutes past midnight.
func logEvents(near func(time.Duration) bool, lines ...string) []record.Event {
	l := ProxyLog{Node: "node-1", File: "logs/proxy-node-1.log", NearFailure: near, WallClock: time.Date(2026, 1, 1, 0, 5, 0, 0, time.UTC), Now: 297 * time.Second}
	return l.events(slices.Values(lines))
}

func never(time.Duration) bool { return false }

// Deletions of real servers are recorded at any time.
func TestDeletionsAreRecorded(t *testing.T) {
	const line = "I0101 00:01:27.741309     114 graceful_termination.go:173] Deleting rs: 203.0.113.10:80/TCP/10.244.1.2:8080"
	events := logEvents(never, line)
	if len(events) != 1 {
		t.Fatalf("%+v", events)
	}
	e := events[0]
	want := record.KernelChange{Table: record.TableIPVS, Change: record.BackendRemoved, Service: "203.0.113.10:80", Backend: "10.244.1.2:8080"}
	if e.Body != want || e.At != 84741309*time.Microsecond || e.Node != "node-1" {
		t.Errorf("%+v", e)
	}
	for name, other := range map[string]string{
		"another line of the same file":   "I0101 00:01:27.741237     114 graceful_termination.go:160] Trying to delete rs: 203.0.113.10:80/TCP/10.244.1.2:8080",
		"no time":                         "I0199 00:01:27.741309     114 graceful_termination.go:173] Deleting rs: 203.0.113.10:80/TCP/10.244.1.2:8080",
		"a time before the run":           "I1231 23:59:59.000000     114 graceful_termination.go:173] Deleting rs: 203.0.113.10:80/TCP/10.244.1.2:8080",
		"a line without a time and level": "Deleting rs: 203.0.113.10:80/TCP/10.244.1.2:8080",
	} {
		if events := logEvents(never, other); len(events) > 0 {
			t.Errorf("%s: %+v", name, events)
		}
	}
}

// Lines near failures are recorded with their own time and level; others are not.
func TestLinesNearFailuresAreRecorded(t *testing.T) {
	near := func(at time.Duration) bool { return at > 80*time.Second }
	events := logEvents(near,
		`I0101 00:01:00.000000     114 proxier.go:1] long before`,
		`E0101 00:01:27.741309     114 proxier.go:822] "Failed to sync" err="x"`,
		`time=2026-01-01T00:01:28.5Z level=WARN msg=refused service=default/web`,
		`time="2026-01-01T00:01:29Z" level=warning msg="Running modprobe ip_vs failed"`,
		`	goroutine 1 [running]:`,
		`time=yesterday level=INFO msg=x`)
	want := []struct {
		at          time.Duration
		level, text string
	}{
		{84741309 * time.Microsecond, "error", `the proxy of node-1: proxier.go:822] "Failed to sync" err="x"`},
		{85500 * time.Millisecond, "warn", "the proxy of node-1: msg=refused service=default/web"},
		{86 * time.Second, "warning", `the proxy of node-1: msg="Running modprobe ip_vs failed"`},
	}
	if len(events) != len(want) {
		t.Fatalf("%+v", events)
	}
	for i, w := range want {
		if e := events[i]; e.Body != (record.Log{Program: "proxy", Level: w.level}) || e.At != w.at || e.Text != w.text || e.Node != "node-1" {
			t.Errorf("%+v, want %+v", e, w)
		}
	}
}

// A line of any length is one short event, and no letter of it is cut in two.
func TestLongLinesAreCut(t *testing.T) {
	for name, long := range map[string]string{"letters of one byte": strings.Repeat("a", 2<<20), "letters of three bytes": strings.Repeat("€", 1<<20)} {
		events := logEvents(func(time.Duration) bool { return true }, "E0101 00:01:27.741309     114 "+long)
		if len(events) != 1 {
			t.Fatalf("%s: %d events", name, len(events))
		}
		text := strings.TrimPrefix(events[0].Text, "the proxy of node-1: ")
		kept, found := strings.CutSuffix(text, "… (the rest is in logs/proxy-node-1.log)")
		if !found || !strings.HasPrefix(long, kept) || len(kept) > maxLineBytes || len(kept) < maxLineBytes-2 {
			t.Errorf("%s: %d bytes are kept of %d: %.100q", name, len(kept), len(long), text)
		}
	}
	exact := strings.Repeat("a", maxLineBytes)
	if events := logEvents(func(time.Duration) bool { return true }, "E0101 00:01:27.741309     114 "+exact); !strings.HasSuffix(events[0].Text, ": "+exact) {
		t.Error("a line of just the limit is cut")
	}
}

// Lines above the limits are counted in one event.
func TestSurplusLinesAreCounted(t *testing.T) {
	var lines []string
	for i := range 280 { // 20 a second from +1 s on, of which 10 are kept
		lines = append(lines, fmt.Sprintf("W0101 00:00:%02d.%06d     114 proxier.go:1] again", 4+i/20, i%20))
	}
	for i := range 2000 {
		lines = append(lines, fmt.Sprintf("W0101 00:%02d:%02d.000000     114 proxier.go:1] again", 1+i/10/60, i/10%60))
	}
	events := logEvents(func(time.Duration) bool { return true }, lines...)
	last := events[len(events)-1]
	if len(events) != maxLinesPerProxy+1 || last.At != time.Second+10*time.Microsecond ||
		!strings.Contains(last.Text, fmt.Sprintf(" %d lines are in logs/proxy-node-1.log alone", 2280-maxLinesPerProxy)) {
		t.Errorf("%d events, the last one %+v", len(events), last)
	}
}
