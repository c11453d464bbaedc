package subject

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/hitless/hitless/reports"
)

// The two ways in which proxies begin a line of their logs: kube-proxy's (klog, whose time is local and has no year), and that
// of Go's slog, which the bundled proxier's is.
var (
	klogLine = regexp.MustCompile(`^([IWEF])(\d{4} \d\d:\d\d:\d\d\.\d{6}) +\d+ (.+)$`)
	slogLine = regexp.MustCompile(`^time="?([^" ]+)"? level=(\w+) (.+)$`)
)

// klogLevels are the levels as slog calls them.
var klogLevels = map[string]string{"I": "info", "W": "warning", "E": "error", "F": "error"}

// deletion is what kube-proxy in ipvs mode says when its graceful termination deletes a real server (graceful_termination.go; at
// the default verbosity from 1.12.2 on).
var deletion = regexp.MustCompile(`^graceful_termination\.go:\d+\] Deleting rs: (\S+)/(?:TCP|UDP)/(\S+)$`)

const (
	// What a proxy says near failures, and how much of it is worth keeping: a flood says the same thing again and again, and the
	// log itself is in the run's folder.
	linesASecond  = 10
	linesOfAProxy = 1000
)

// RecordSaid adds to the record what the proxies' logs tell of their tables: the kernel tells nobody when a real server is
// deleted, and to keep asking for the table would wake the machine up all the time. What else they say at instants that are near
// a failure is recorded as it is, up to ten lines in a second and a thousand in all of each proxy. Call it once, at the end.
func (f *Fleet) RecordSaid(near func(time.Duration) bool) error {
	now, at := time.Now(), f.cfg.Now()
	for _, node := range f.cfg.Net.Nodes {
		file := f.cfg.Procs.LogFile(logName(node.Name))
		data, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading the log of the proxy of %s: %w", node.Name, err)
		}
		s := sayings{node: node.Name, file: filepath.Base(file), near: near, now: now, at: at, kept: map[time.Duration]int{}}
		for line := range strings.Lines(string(data)) {
			if e, is := s.event(strings.TrimSpace(line)); is {
				f.cfg.Recorder.Event(e)
			}
		}
		if e, is := s.rest(); is {
			f.cfg.Recorder.Event(e)
		}
	}
	return nil
}

// sayings reads a proxy's log; now, the time of the day, is at in the run.
type sayings struct {
	node, file string
	near       func(time.Duration) bool
	now        time.Time
	at         time.Duration

	kept  map[time.Duration]int // lines, by the second
	all   int
	left  int           // lines that were too many
	since time.Duration // when the first of those was said
}

// event is what a line becomes in the record, if anything.
func (s *sayings) event(line string) (reports.Event, bool) {
	t, level, text, is := parseLine(line, s.now)
	e := reports.Event{At: s.at - s.now.Sub(t), Node: s.node}
	if !is || e.At < 0 {
		return e, false
	}
	if m := deletion.FindStringSubmatch(text); m != nil {
		e.Kind, e.Object, e.Text = reports.EventKernel, m[2], fmt.Sprintf("the proxy of %s deleted %s from %s, as its log says", s.node, m[2], m[1])
		e.Attrs = map[string]string{"table": "ipvs", "change": "removed", "service": m[1], "backend": m[2]}
		return e, true
	}
	if !s.near(e.At) {
		return e, false
	}
	if second := e.At.Truncate(time.Second); s.kept[second] < linesASecond && s.all < linesOfAProxy {
		s.kept[second]++
		s.all++
		e.Kind, e.Object, e.Text = reports.EventLog, "proxy", fmt.Sprintf("the proxy of %s: %s", s.node, text)
		e.Attrs = map[string]string{"program": "proxy", "level": level}
		return e, true
	}
	if s.left++; s.left == 1 {
		s.since = e.At
	}
	return e, false
}

// rest tells of the lines that were too many.
func (s *sayings) rest() (reports.Event, bool) {
	return reports.Event{At: s.since, Kind: reports.EventLog, Node: s.node, Object: "proxy",
		Text:  fmt.Sprintf("the proxy of %s said more near failures from here on: %d lines are in logs/%s alone", s.node, s.left, s.file),
		Attrs: map[string]string{"program": "hitless", "level": "info"}}, s.left > 0
}

// parseLine takes a line of a log apart. A time without a year is the last one that is not in the future.
func parseLine(line string, now time.Time) (t time.Time, level, text string, is bool) {
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
