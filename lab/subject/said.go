package subject

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/hitless/hitless/reports"
)

// deletion is the line with which kube-proxy in ipvs mode says that its graceful termination deletes a real server
// (graceful_termination.go; at the default verbosity from 1.12.2 on).
var deletion = regexp.MustCompile(`^I(\d{4} \d\d:\d\d:\d\d\.\d{6}) +\d+ graceful_termination\.go:\d+\] Deleting rs: (\S+)/(?:TCP|UDP)/(\S+)$`)

// RecordSaid adds to the record what the proxies' logs tell of their tables: the kernel tells nobody when a real server is
// deleted, and to keep asking for the table would wake the machine up all the time. Call it once, at the end.
func (f *Fleet) RecordSaid() error {
	now, at := time.Now().UTC(), f.cfg.Now()
	for _, node := range f.cfg.Net.Nodes {
		data, err := os.ReadFile(f.cfg.Procs.LogFile(logName(node.Name)))
		if err != nil {
			return fmt.Errorf("reading the log of the proxy of %s: %w", node.Name, err)
		}
		for line := range strings.Lines(string(data)) {
			if e, is := said(node.Name, strings.TrimSpace(line), now, at); is {
				f.cfg.Recorder.Event(e)
			}
		}
	}
	return nil
}

// said reads a line of a proxy's log; now, the time of the day, is at in the run. The line has no year: it is the last one
// that is not in the future.
func said(node, line string, now time.Time, at time.Duration) (reports.Event, bool) {
	m := deletion.FindStringSubmatch(line)
	if m == nil {
		return reports.Event{}, false
	}
	t, err := time.Parse("2006 0102 15:04:05.000000", fmt.Sprintf("%d %s", now.Year(), m[1]))
	if err != nil {
		return reports.Event{}, false
	}
	if t.After(now) {
		t = t.AddDate(-1, 0, 0)
	}
	e := reports.Event{At: at - now.Sub(t), Kind: reports.EventKernel, Node: node, Object: m[3],
		Text:  fmt.Sprintf("the proxy of %s deleted %s from %s, as its log says", node, m[3], m[2]),
		Attrs: map[string]string{"table": "ipvs", "change": "removed", "service": m[2], "backend": m[3]}}
	return e, e.At >= 0
}
