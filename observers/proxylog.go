package observers

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/hitless/hitless/record"
)

// Line formats of proxies' logs: klog (kube-proxy; local time without a year) and Go's slog (bundled proxier).
var (
	klogLine = regexp.MustCompile(`^([IWEF])(\d{4} \d\d:\d\d:\d\d\.\d{6}) +\d+ (.+)$`)
	slogLine = regexp.MustCompile(`^time="?([^" ]+)"? level=(\w+) (.+)$`)
)

// klogLevels maps klog's levels to those of slog.
var klogLevels = map[string]string{"I": "info", "W": "warning", "E": "error", "F": "error"}

// deletion is the line that kube-proxy in ipvs mode logs when its graceful termination deletes a real server
// (graceful_termination.go; at the default verbosity since 1.12.2).
var deletion = regexp.MustCompile(`^graceful_termination\.go:\d+\] Deleting rs: (\S+)/(?:TCP|UDP)/(\S+)$`)

// Limits of recorded lines near failures. The log itself is in the history.
const (
	maxLinesPerSecond = 10
	maxLinesPerProxy  = 1000
	maxLineBytes      = 2000
)

// ProxyLog is the log file of one node's proxy, read at the end of a run.
type ProxyLog struct {
	Node string
	File string
	// NearFailure reports whether an instant of the run is near a failed attempt.
	NearFailure func(at time.Duration) bool
	// WallClock is the time of day at the instant Now of the run.
	WallClock time.Time
	Now       time.Duration
}

// Record records real-server deletions, of which IPVS sends no notifications, and lines near failures: at most 10 of a second
// and 1000 in all. Surplus lines are recorded as one event with their number. The error is that of reading the file.
func (l ProxyLog) Record(recorder record.Recorder) error {
	data, err := os.ReadFile(l.File)
	if err != nil {
		return fmt.Errorf("reading the log of the proxy of %s: %w", l.Node, err)
	}
	for _, e := range l.events(strings.Lines(string(data))) {
		recorder.Event(e)
	}
	return nil
}

// events returns the events of a log, with that of the surplus lines at the end.
func (l ProxyLog) events(lines func(yield func(string) bool)) (events []record.Event) {
	linesOfSecond, recorded, surplus, firstSurplus := map[time.Duration]int{}, 0, 0, time.Duration(0)
	for line := range lines {
		t, level, text, is := parseLogLine(strings.TrimSpace(line), l.WallClock)
		at := l.Now - l.WallClock.Sub(t)
		second := at.Truncate(time.Second)
		switch m := deletion.FindStringSubmatch(text); {
		case !is || at < 0:
		case m != nil:
			events = append(events, record.Event{At: at, Node: l.Node, Object: m[2],
				Text: fmt.Sprintf("the proxy of %s deleted %s from %s, by its log", l.Node, m[2], m[1]),
				Body: record.KernelChange{Table: record.TableIPVS, Change: record.BackendRemoved, Service: m[1], Backend: m[2]}})
		case !l.NearFailure(at):
		case linesOfSecond[second] < maxLinesPerSecond && recorded < maxLinesPerProxy:
			linesOfSecond[second]++
			recorded++
			events = append(events, record.Event{At: at, Node: l.Node, Object: "proxy",
				Text: fmt.Sprintf("the proxy of %s: %s", l.Node, l.cut(text)), Body: record.Log{Program: "proxy", Level: level}})
		default:
			if surplus++; surplus == 1 {
				firstSurplus = at
			}
		}
	}
	if surplus > 0 {
		events = append(events, record.Event{At: firstSurplus, Node: l.Node, Object: "proxy",
			Text: fmt.Sprintf("the proxy of %s logged more near failures from here on: %d lines are in logs/%s alone", l.Node, surplus, filepath.Base(l.File)),
			Body: record.Log{Program: "hitless", Level: "info"}})
	}
	return events
}

// cut shortens a long line, such as a whole ruleset that a proxy logs with its error.
func (l ProxyLog) cut(text string) string {
	if len(text) <= maxLineBytes {
		return text
	}
	return fmt.Sprintf("%s… (the rest is in logs/%s)", strings.ToValidUTF8(text[:maxLineBytes], ""), filepath.Base(l.File))
}

// parseLogLine splits a line of a log. A time without a year is the latest one that is not after now.
func parseLogLine(line string, now time.Time) (t time.Time, level, text string, is bool) {
	if m := slogLine.FindStringSubmatch(line); m != nil {
		t, err := time.Parse(time.RFC3339Nano, m[1])
		return t, strings.ToLower(m[2]), m[3], err == nil
	}
	m := klogLine.FindStringSubmatch(line)
	if m == nil {
		return t, "", "", false
	}
	t, err := time.ParseInLocation("2006 0102 15:04:05.000000", fmt.Sprintf("%d %s", now.Year(), m[2]), now.Location())
	if t.After(now) {
		t = t.AddDate(-1, 0, 0)
	}
	return t, klogLevels[m[1]], m[3], err == nil
}
