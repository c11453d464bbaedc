package suites

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

func TestFailedRunHasNoReport(t *testing.T) {
	f := &Future{done: make(chan struct{}), err: errors.New("the guest ended early")}
	close(f.done)
	if _, _, err := f.finished(); !errors.Is(err, f.err) {
		t.Errorf("got %v", err)
	}
}

// A run is finished only with a report that is valid, agrees with the history, and explains the losses.
func TestAFinishedRunHasACheckedReport(t *testing.T) {
	o := recordtest.Failing()
	history := o.Start(o.Lab()).Write(t)
	for name, test := range map[string]struct {
		change func(r *analysis.Report)
		want   string
	}{
		"as it is":            {func(*analysis.Report) {}, ""},
		"invalid":             {func(r *analysis.Report) { r.Verdict = analysis.Invalid }, "is invalid"},
		"one attempt more":    {func(r *analysis.Report) { r.Totals.Attempts++ }, "attempts"},
		"losses of no reason": {func(r *analysis.Report) { r.Unexplained.Share = 1 }, "events explain 0.0 %"},
	} {
		r, err := analysis.Build(history)
		if err != nil {
			t.Fatal(err)
		}
		test.change(r)
		f := &Future{done: make(chan struct{}), result: &run.Result{Report: r, Dir: filepath.Dir(history.Dir())}}
		close(f.done)
		if _, _, err := f.finished(); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

func TestCheckLossless(t *testing.T) {
	for name, test := range map[string]struct {
		verdict analysis.Verdict
		totals  analysis.Totals
		want    bool
	}{
		"no loss":               {analysis.Pass, analysis.Totals{Attempts: 9}, true},
		"one dropped":           {analysis.Fail, analysis.Totals{Attempts: 9, Dropped: 1}, false},
		"within the budget":     {analysis.Pass, analysis.Totals{Attempts: 9, Delayed: 1}, false},
		"failed without a loss": {analysis.Fail, analysis.Totals{Attempts: 9}, false},
		"skipped":               {analysis.Skipped, analysis.Totals{}, false},
	} {
		if err := CheckLossless(&analysis.Report{Verdict: test.verdict, Totals: test.totals}); (err == nil) != test.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFindLaneAndEventTime(t *testing.T) {
	pod := func(at float64, node, text string) analysis.ReportEvent {
		return analysis.ReportEvent{At: at, Kind: record.KindPod, Node: node, Text: text}
	}
	r := &analysis.Report{Lanes: []analysis.LaneReport{{Name: "tcp-new"}, {Name: "tcp-long", Attempts: 7}}, Events: []analysis.ReportEvent{
		pod(1, "node-1", "pod web-1 ready"), {At: 2, Kind: record.KindProxy, Node: "node-1", Text: "it is ready"},
		pod(3, "node-2", "pod web-2 ready"), pod(4, "node-1", "pod web-1 unready"), pod(5, "node-1", "pod web-1 ready")}}
	if l, err := FindLane(r, "tcp-long"); err != nil || l.Attempts != 7 {
		t.Errorf("got %+v and %v", l, err)
	}
	if l, err := FindLane(r, "udp-fresh"); err == nil {
		t.Errorf("got %+v, want an error", l)
	}
	if at, err := EventTime(r, 1, record.KindPod, "node-1", " ready"); err != nil || at != 5 {
		t.Errorf("got %v and %v, want 5", at, err)
	}
	if at, err := EventTime(r, 5, record.KindPod, "node-1", " ready"); err == nil {
		t.Errorf("got %v, want an error", at)
	}
}

func TestCheckExplained(t *testing.T) {
	r := &analysis.Report{Totals: analysis.Totals{Dropped: 100}, Lanes: []analysis.LaneReport{{Name: "tcp-new", Outages: []analysis.OutageReport{
		{From: 3, Node: "node-1", Cause: analysis.CauseReport{Event: "pod exited"}, Classes: map[string]int{"refused": 94}},
		{From: 7, Node: "node-2", Classes: map[string]int{"reset": 6}}}}}}
	for share, want := range map[float64]bool{0: true, 0.05: true, 0.06: false, 1: false} {
		r.Unexplained.Share = share
		err := CheckExplained(r)
		if (err == nil) != want {
			t.Errorf("%v unexplained: %v", share, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "+7.000 s") || strings.Contains(err.Error(), "+3.000 s")) {
			t.Errorf("the error does not list exactly the unexplained outages: %v", err)
		}
	}
}
