package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/results"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
)

// rollingDir has a run of hack/upstream-rolling-update.sh: the lines of the suite, and what hitless counted.
const rollingDir = "docs/results/upstream-rolling-update"

// rollingRun is what upstream's rolling-update spec and hitless counted on the same run. Times are seconds since the start of the watch.
type rollingRun struct {
	updates  []rollingUpdate
	failures []float64 // of upstream's requests: when each ended
	hitless  results.BesideUpstream
}

// takeRollingRun copies the results of hack/upstream-rolling-update.sh from a folder into rollingDir.
func takeRollingRun(top, from, proxy string) error {
	r, err := analysis.Read(filepath.Join(from, "watch", "report.json"))
	if err != nil {
		return err
	}
	log, err := os.ReadFile(filepath.Join(from, "upstream.log"))
	if err != nil {
		return err
	}
	at := slices.IndexFunc(r.Lanes, func(l analysis.LaneReport) bool { return strings.Contains(l.Name, "test-lb-rolling-update") })
	if at < 0 {
		return fmt.Errorf("%s: the report has no lane of upstream's Service", from)
	}
	l := r.Lanes[at]
	made, err := record.MadeIn(os.DirFS(filepath.Join(from, "watch")))
	if err != nil {
		return err
	}
	c := results.BesideUpstream{Proxy: proxy, Verdict: r.Verdict, Rate: l.Rate, Attempts: l.Attempts, Dropped: l.Dropped, Delayed: l.Delayed,
		DroppedPerSecond: l.DroppedPerSecond, Causes: map[string]int{}, ProgramSha256: r.Run.ProgramSha256, Kernel: r.Run.Kernel.String(),
		ControlPlane: r.Run.ControlPlane, Made: made}
	for _, o := range l.Outages {
		c.Causes[o.Cause.Kind] += o.Failed()
	}
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	to := filepath.Join(top, rollingDir)
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	return cache.WriteFiles(to, []cache.File{{Name: "hitless.json", Data: append(data, '\n')}, {Name: "upstream.log", Data: log}})
}

// rollingUpdate is one of the spec's updates, by upstream's own count.
type rollingUpdate struct {
	from, to         float64
	requests, failed int
	rate             string // of success
}

// upstreamTimeout is the time limit of upstream's requests, in seconds.
const upstreamTimeout = 5

func readRollingRun(top string) (r rollingRun, err error) {
	if r.hitless, err = results.ReadBeside(context.Background(), filepath.Join(top, rollingDir, "hitless.json")); err != nil {
		return r, err
	}
	log, err := os.ReadFile(filepath.Join(top, rollingDir, "upstream.log"))
	if err != nil {
		return r, err
	}
	if err := r.readUpstream(log); err != nil {
		return r, fmt.Errorf("%s: upstream.log: %w", rollingDir, err)
	}
	return r, nil
}

// readUpstream reads a line with the start of the watch (RFC 3339), and lines of the suite as klog writes them: "I1127 17:24:21.229874 …] text".
func (r *rollingRun) readUpstream(log []byte) error {
	lines := bufio.NewScanner(bytes.NewReader(log))
	if !lines.Scan() {
		return fmt.Errorf("it is empty")
	}
	began, err := time.Parse(time.RFC3339, strings.TrimPrefix(lines.Text(), "the watch began at "))
	if err != nil {
		return err
	}
	for lines.Scan() {
		head, text, _ := strings.Cut(lines.Text(), "] ")
		words := strings.Fields(head)
		if len(words) < 2 {
			return fmt.Errorf("no line of the suite: %q", lines.Text())
		}
		clock, err := time.Parse("2006 0102 15:04:05", fmt.Sprint(began.Year())+" "+words[0][1:]+" "+words[1])
		if err != nil {
			return err
		}
		if err := r.said(clock.Sub(began).Seconds(), text); err != nil {
			return fmt.Errorf("%q: %w", lines.Text(), err)
		}
	}
	if len(r.updates) == 0 {
		return fmt.Errorf("it has no rolling update")
	}
	if i := slices.IndexFunc(r.updates, func(u rollingUpdate) bool { return u.to == 0 }); i >= 0 {
		return fmt.Errorf("update %d has no count of its requests", i+1)
	}
	return lines.Err()
}

// said adds a line of the suite.
func (r *rollingRun) said(at float64, text string) (err error) {
	what, value, _ := strings.Cut(text, ": ")
	switch {
	case what == "Update daemon pods environment":
		r.updates = append(r.updates, rollingUpdate{from: at})
		return nil
	case strings.HasPrefix(what, "Got error testing for reachability"):
		r.failures = append(r.failures, at)
		return nil
	case len(r.updates) == 0:
		return fmt.Errorf("it is before the first update")
	}
	u := &r.updates[len(r.updates)-1]
	switch what {
	case "Load Balancer total HTTP requests":
		u.to = at
		u.requests, err = strconv.Atoi(value)
	case "Network errors", "HTTP errors":
		n, wrong := strconv.Atoi(value)
		u.failed, err = u.failed+n, wrong
	case "Success rate":
		u.rate = strings.Replace(value, "%", " %", 1)
	}
	return err
}

// dropped counts what hitless dropped during an update, and the seconds in which it did.
func (r *rollingRun) dropped(u rollingUpdate) (attempts, seconds int) {
	for i, n := range r.hitless.DroppedPerSecond {
		if n > 0 && i >= int(u.from) && i < int(u.to) {
			attempts, seconds = attempts+n, seconds+1
		}
	}
	return attempts, seconds
}

// rollingTable is a row for each update.
func rollingTable(top string) (string, error) {
	r, err := readRollingRun(top)
	if err != nil {
		return "", err
	}
	var t strings.Builder
	t.WriteString("| update | length | upstream: requests | failed | successful | hitless: attempts | dropped | successful | seconds with drops |\n" +
		"|---|---|---|---|---|---|---|---|---|\n")
	for i, u := range r.updates {
		dropped, seconds := r.dropped(u)
		attempts := (u.to - u.from) * r.hitless.Rate
		fmt.Fprintf(&t, "| %d | %.0f s | %s | %d | %s | %s | %s | %.2f %% | %d |\n", i+1, u.to-u.from, units.Thousands(u.requests), u.failed, u.rate,
			units.Thousands(int(attempts)), units.Thousands(dropped), 100*(1-float64(dropped)/attempts), seconds)
	}
	fmt.Fprintf(&t, "\nThe verdict of hitless is %s: of %s attempts, %s were dropped and %s delayed.\n\n| cause | failed attempts |\n|---|---|\n",
		r.hitless.Verdict, units.Thousands(r.hitless.Attempts), units.Thousands(r.hitless.Dropped), units.Thousands(r.hitless.Delayed))
	for _, cause := range slices.SortedFunc(maps.Keys(r.hitless.Causes), func(a, b string) int {
		return cmp.Or(r.hitless.Causes[b]-r.hitless.Causes[a], strings.Compare(a, b))
	}) {
		fmt.Fprintf(&t, "| %s | %s |\n", cause, units.Thousands(r.hitless.Causes[cause]))
	}
	return t.String(), nil
}

// rollingPicture has a bar for each client, and the attempts that hitless dropped in each second.
func rollingPicture(top string) (reports.Picture, error) {
	r, err := readRollingRun(top)
	if err != nil {
		return reports.Picture{}, err
	}
	first, last := r.updates[0], r.updates[len(r.updates)-1]
	p := reports.Picture{Title: "upstream's rolling-update spec and hitless on the same run, " + r.hitless.Proxy, From: first.from - 10, To: last.to + 5,
		Zero: first.from, Dropped: r.hitless.DroppedPerSecond}
	failed := 0
	for i, u := range r.updates {
		failed += u.failed
		p.Events = append(p.Events, reports.PictureEvent{At: u.from, Text: fmt.Sprintf("update %d: %s", i+1, u.rate)})
	}
	upstream, hitless := reports.PicturePath{Name: "upstream"}, reports.PicturePath{Name: "hitless"}
	for _, at := range r.failures {
		upstream.Outages = append(upstream.Outages, reports.PictureOutage{From: at - upstreamTimeout, To: at})
	}
	for i, n := range r.hitless.DroppedPerSecond {
		if n > 0 {
			hitless.Outages = append(hitless.Outages, reports.PictureOutage{From: float64(i), To: float64(i + 1)})
		}
	}
	p.Paths = []reports.PicturePath{upstream, hitless}
	p.Summary = []string{
		fmt.Sprintf("upstream: one client; %d requests failed, and it waited up to %d s for each; it demands 95 %% of each update", failed, upstreamTimeout),
		fmt.Sprintf("hitless: %g attempts per second, whatever fails; %s dropped", r.hitless.Rate, units.Thousands(r.hitless.Dropped)),
	}
	return p, nil
}
