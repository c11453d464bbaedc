package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hitless/hitless/analysis"
)

const upstreamLog = `the watch began at 2026-11-27T17:00:00Z
I1127 17:00:10.500000    5398 loadbalancer.go:1401] Update daemon pods environment: [{"name":"VERSION","value":"1"}]
I1127 17:00:20.000000    5398 loadbalancer.go:1371] Got error testing for reachability of http://203.0.113.11:80/echo?msg=hello: Get "x": timeout
I1127 17:01:10.500000    5398 loadbalancer.go:1453] Load Balancer total HTTP requests: 4000
I1127 17:01:10.500001    5398 loadbalancer.go:1454] Network errors: 1
I1127 17:01:10.500002    5398 loadbalancer.go:1455] HTTP errors: 2
I1127 17:01:10.500003    5398 loadbalancer.go:1456] Success rate: 99.93%
I1127 17:01:10.600000    5398 loadbalancer.go:1401] Update daemon pods environment: [{"name":"VERSION","value":"2"}]
I1127 17:02:10.500000    5398 loadbalancer.go:1453] Load Balancer total HTTP requests: 6000
`

func TestReadUpstream(t *testing.T) {
	var r rollingRun
	if err := r.readUpstream([]byte(upstreamLog)); err != nil {
		t.Fatal(err)
	}
	want := []rollingUpdate{{from: 10.5, to: 70.5, requests: 4000, failed: 3, rate: "99.93 %"}, {from: 70.6, to: 130.5, requests: 6000}}
	if diff := cmp.Diff(want, r.updates, cmp.AllowUnexported(rollingUpdate{})); diff != "" {
		t.Errorf("updates (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]float64{20}, r.failures); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
	for name, damaged := range map[string]string{
		"nothing":          "",
		"no start":         "I1127 17:00:10.500000 1 x.go:1] Update daemon pods environment: x\n",
		"no update":        "the watch began at 2026-11-27T17:00:00Z\n",
		"a count before":   "the watch began at 2026-11-27T17:00:00Z\nI1127 17:01:10.5 1 x.go:1] Network errors: 1\n",
		"no number":        upstreamLog + "I1127 17:02:10.500000 1 x.go:1] Network errors: some\n",
		"no line of klog":  upstreamLog + "hello\n",
		"no summary":       upstreamLog + "I1127 17:03:10.600000 1 x.go:1] Update daemon pods environment: x\n",
		"no time of a day": upstreamLog + "I1127 noon 1 x.go:1] Network errors: 1\n",
	} {
		if err := new(rollingRun).readUpstream([]byte(damaged)); err == nil {
			t.Errorf("%s: read without an error", name)
		}
	}
}

// An attempt that hitless dropped counts in the update during which it was dropped. Between updates it counts in none.
func TestDroppedDuringAnUpdate(t *testing.T) {
	var r rollingRun
	if err := r.readUpstream([]byte(upstreamLog)); err != nil {
		t.Fatal(err)
	}
	r.hitless.DroppedPerSecond = make([]int, 140)
	for second, n := range map[int]int{5: 7, 12: 30, 13: 20, 100: 4, 135: 9} {
		r.hitless.DroppedPerSecond[second] = n
	}
	type count struct{ Attempts, Seconds int }
	var got []count
	for _, u := range r.updates {
		attempts, seconds := r.dropped(u)
		got = append(got, count{attempts, seconds})
	}
	if diff := cmp.Diff([]count{{50, 2}, {4, 1}}, got); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

// The figures of hitless are those of the lane of upstream's Service. A report without one is not taken.
func TestTakeRollingRun(t *testing.T) {
	report, err := os.ReadFile(filepath.Join(top, picturedReport))
	if err != nil {
		t.Fatal(err)
	}
	pictured, err := analysis.Parse(report, picturedReport)
	if err != nil {
		t.Fatal(err)
	}
	dropped := pictured.Totals.Dropped
	if dropped == 0 {
		t.Fatal("the pictured report has no dropped connection")
	}
	for lane, taken := range map[string]bool{"loadbalancers-1/test-lb-rolling-update:80 at 203.0.113.11": true, "tcp-new": false} {
		from, to := t.TempDir(), t.TempDir()
		write := func(name, text string) {
			if err := os.WriteFile(filepath.Join(from, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Mkdir(filepath.Join(from, "watch"), 0o755); err != nil {
			t.Fatal(err)
		}
		write("upstream.log", upstreamLog)
		write("watch/report.json", strings.Replace(string(report), `"name": "tcp-new"`, `"name": "`+lane+`"`, 1))
		if err := takeRollingRun(to, from, "kube-proxy v1.25.3/iptables"); (err == nil) != taken {
			t.Errorf("lane %s: %v", lane, err)
		}
		r, err := readRollingRun(to)
		if (err == nil) != taken {
			t.Errorf("lane %s: %v", lane, err)
		}
		explained := 0
		for _, n := range r.hitless.Causes {
			explained += n
		}
		if taken && (r.hitless.Dropped != dropped || explained != dropped || len(r.updates) != 2) {
			t.Errorf("%+v", r)
		}
	}
}

// The results of a run replace the old ones together: who has an old file open reads it to its end.
func TestARollingRunIsTakenInOneStep(t *testing.T) {
	report, err := os.ReadFile(filepath.Join(top, picturedReport))
	if err != nil {
		t.Fatal(err)
	}
	from, to := t.TempDir(), t.TempDir()
	dir := filepath.Join(to, rollingDir)
	for name, text := range map[string]string{
		filepath.Join(from, "upstream.log"):         upstreamLog,
		filepath.Join(from, "watch", "report.json"): strings.Replace(string(report), `"name": "tcp-new"`, `"name": "x/test-lb-rolling-update"`, 1),
		filepath.Join(dir, "hitless.json"):          "old",
		filepath.Join(dir, "upstream.log"):          "old",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"hitless.json", "upstream.log"} {
		if err := os.Link(filepath.Join(dir, name), filepath.Join(to, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := takeRollingRun(to, from, "kube-proxy v1.25.3/iptables"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"hitless.json", "upstream.log"} {
		if text, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(text) != "old" {
			t.Errorf("%s was changed in its place: %q, %v", name, text, err)
		}
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) == "old" {
			t.Errorf("%s is not replaced: %v", name, err)
		}
	}
}
