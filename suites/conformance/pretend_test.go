package conformance

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/internal/routing"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
	"github.com/hitless/hitless/reports"
)

// pretend makes the records of runs without a lab. faults are RUN:LANE for a lane that loses attempts for a second, and RUN:WORD LANE for one
// with another of losses; RUN:answered LANE, RUN:lost LANE and RUN:misrouted LANE for one while its Service is away; RUN:slow LANE for one that becomes slow and loses none; RUN:removal for a proxy that removes rules of another program;
// RUN:unused for one that does not use a pod that became ready, RUN:no pod for a run without such a pod, and RUN:no second pod for one with a
// restart without one; RUN:moved for one that moves the flow of datagrams, and RUN:nameless for one whose flow no known
// pod answers; RUN:early for a run that ends early; RUN:dead for one that ends before its first attempt, RUN:refused for an environment
// that cannot run, RUN:slow for a run that lasts until it is interrupted, and RUN:unserved for one whose Service gets no address. The fault
// "real" is for real runs.
func pretend(t testing.TB, faults []string) func(context.Context, run.Options) (*run.Result, error) {
	return func(ctx context.Context, o run.Options) (*run.Result, error) {
		name := filepath.Base(o.Out)
		if slices.Contains(faults, "real") { // a run that ends before it needs the program
			o.Program = os.Args[0]
			return run.Run(ctx, o)
		}
		has := func(word string) bool { return slices.Contains(faults, name+":"+word) }
		switch {
		case has("refused"):
			return nil, run.UsageError{Reason: os.ErrPermission}
		case has("dead"):
			return nil, &run.InvalidError{Reason: "bundled on node-1 did not become ready within 1m30s"}
		case has("unserved"):
			return pretendUnserved(t, o)
		case has("slow"):
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		o.Progress(progress.Event{Kind: progress.Measurement, Counts: progress.Counts{Attempts: 1}})
		if has("early") {
			return nil, &run.InvalidError{Reason: "the guest ended before its history was complete"}
		}
		return pretendRecord(t, o, has)
	}
}

// pretendUnserved makes the record of a run whose Service got no address.
func pretendUnserved(t testing.TB, o run.Options) (*run.Result, error) {
	lab := recordtest.NewLab(uint64(o.Seed))
	lab.Run.Scenario, lab.Run.Command = o.Scenario, "hitless run "+o.Scenario
	lab.Event(time.Second, record.KindSkipped, "", newLane, "the Service web got no address")
	if err := copyRecord(t, lab, o.Out); err != nil {
		return nil, err
	}
	report, origin, err := reports.Seal(o.Out, nil)
	if err != nil {
		return nil, err
	}
	return &run.Result{Dir: o.Out, Report: report, HistorySha256: origin.HistorySha256, Command: origin.Command}, nil
}

// losses are those of faulty lanes.
var losses = []struct {
	fault string // before the name of the lane
	lasts time.Duration
	times int
	class record.Class
}{
	{"", time.Second, 1, record.ConnectTimeout},
	{"long ", 4 * time.Second, 1, record.ConnectTimeout},
	{"endless ", time.Hour, 1, record.ConnectTimeout},
	{"often ", time.Second, 6, record.ConnectTimeout},
	{"misrouted ", time.Second, 1, record.Misrouted},
}

func pretendRecord(t testing.TB, o run.Options, fails func(lane string) bool) (*run.Result, error) {
	if o.Scenario == "routing" {
		return pretendChecks(t, o, fails)
	}
	if o.Scenario == "cost" {
		return pretendCosts(t, o, fails)
	}
	protocols := []string{newLane}
	if o.Set["lanes"] != "" {
		protocols = strings.Split(o.Set["lanes"], ",")
	} else if o.Scenario == "flap" {
		protocols = append(protocols, longLane)
	}
	made := recordtest.Rollout{Seed: uint64(o.Seed), Fallback: true, Rollouts: 1}
	lab := made.Lab()
	lab.Run.Scenario, lab.Run.Command = o.Scenario, "hitless run "+o.Scenario
	for i, protocol := range protocols {
		for _, loss := range losses {
			for n := range loss.times {
				if from := recordtest.ScenarioAt + 4*time.Second + time.Duration(n)*2*loss.lasts; fails(loss.fault + protocol) {
					lab.Faults = append(lab.Faults, recordtest.Fault{Lane: uint16(10 + i), From: from, To: from + loss.lasts, Class: loss.class})
				}
			}
		}
	}
	lab.Probe(recordtest.Lane{ID: 1, Name: "canary", Target: recordtest.CanaryAddress, Rate: 100, From: recordtest.BaselineAt, To: recordtest.ScenarioAt, Control: true})
	for i, protocol := range protocols {
		if fails("no " + protocol) {
			continue
		}
		lab.Probe(recordtest.Lane{ID: uint16(10 + i), Name: protocol, Target: recordtest.WebAddress, Rate: 20, From: recordtest.BaselineAt + 3*time.Millisecond, To: made.EndAt(), Protocol: protocol})
	}
	if fails("removal") {
		lab.Event(recordtest.ScenarioAt+time.Second, record.KindInterference, "node-1", "stale-allow", "removed", "state", "removed", "id", "node-1", "what", "the proxy removed rules")
	}
	if o.Set["change"] == "ready" && !fails("no pod") {
		readyMeanwhile(lab, fails("unused"))
		if fails("no second pod") {
			for _, state := range []string{"begin", "end"} {
				lab.Event(recordtest.ScenarioAt+2*time.Second, record.KindStep, "node-2", "restart the proxy of node-2", state, "state", state)
			}
		}
	}
	if o.Scenario == "recreate" || o.Scenario == "scale" {
		withoutService(lab, o.Scenario, protocols, fails)
	}
	for i := range lab.Attempts {
		a := &lab.Attempts[i]
		if lane := int(a.Lane) - 10; lane >= 0 && protocols[lane] == stickyLane && a.Class == record.OK {
			a.Backend = "web-kept"
			if fails("moved") && a.Intended > recordtest.ScenarioAt+5*time.Second {
				a.Backend = "web-other"
			}
			if fails("nameless") {
				a.Backend = ""
			}
		}
		if lane := int(a.Lane) - 10; lane >= 0 && fails("slow "+protocols[lane]) && a.Intended > recordtest.ScenarioAt {
			a.Connect, a.Total = a.Connect+400*time.Millisecond, a.Total+400*time.Millisecond
		}
	}
	if err := copyRecord(t, lab, o.Out); err != nil {
		return nil, err
	}
	report, origin, err := reports.Seal(o.Out, nil)
	if err != nil {
		return nil, err
	}
	return &run.Result{Dir: o.Out, Report: report, HistorySha256: origin.HistorySha256, Command: origin.Command}, nil
}

// withoutService takes the Service or its pods away for some seconds, in which the lanes are refused.
func withoutService(lab *recordtest.Lab, scenario string, protocols []string, fails func(string) bool) {
	from, to := recordtest.ScenarioAt+10*time.Second, recordtest.ScenarioAt+20*time.Second
	gone, back := "delete the Service", "create it again"
	if scenario == "scale" {
		gone, back = "scale to 0", "scale to 2"
	}
	if fails("no step") {
		gone = "another step"
	}
	for step, at := range map[string]time.Duration{gone: from, back: to} {
		for _, state := range []string{"begin", "end"} {
			lab.Event(at, record.KindStep, "", step, state, "state", state)
		}
	}
	lab.Excuse(record.PathAll, "", from, to+5*time.Second, 1, record.Refused, record.ReplyTimeout, record.ConnectTimeout)
	for i := range lab.Attempts {
		a := &lab.Attempts[i]
		lane := int(a.Lane) - 10
		if lane < 0 || a.Intended < from || a.Intended >= to || fails("answered "+protocols[lane]) {
			continue
		}
		switch a.Class, a.Connect, a.Backend = record.Refused, 0, ""; {
		case fails("lost " + protocols[lane]):
			a.Class = record.ReplyTimeout
		case fails("misrouted " + protocols[lane]):
			a.Class, a.Backend = record.Misrouted, "other"
		}
	}
}

// readyMeanwhile adds the restart of the proxy of node-1, in which the node's pod becomes ready: the one that answers afterwards, or another.
func readyMeanwhile(lab *recordtest.Lab, unused bool) {
	from, pod := recordtest.ScenarioAt+time.Second, "web-unused"
	for _, a := range lab.Attempts {
		if a.Lane == 10 && a.Node == "node-1" && a.Intended > from && !unused {
			pod = a.Backend
		}
	}
	for _, state := range []string{"begin", "end"} {
		lab.Event(from, record.KindStep, "node-1", "restart the proxy of node-1", state, "state", state)
		if state == "begin" {
			lab.Event(from, record.KindPod, "node-1", pod, "ready", "state", "ready", "pod", pod, "node", "node-1")
		}
	}
}

// pretendChecks makes the record of a run of routing. A faulty check sees no answer.
func pretendChecks(t testing.TB, o run.Options, fails func(check string) bool) (*run.Result, error) {
	lab := recordtest.NewLab(uint64(o.Seed))
	lab.Run.Scenario, lab.Run.Command = o.Scenario, "hitless run routing --set family="+o.Set["family"]
	for i, s := range Catalog() {
		if s.Run.Name != filepath.Base(o.Out) || fails("no "+s.check) {
			continue
		}
		got, seen := "a", "itself"
		if fails(s.check) {
			got, seen = "dropped", "node"
		} else if fails("kernel") {
			got = record.Unsupported
		}
		lab.Event(time.Duration(i)*time.Second, record.KindCheck, "node-1", s.check, s.check, "client", "c", "target", "tcp 10.96.0.1:80", "want", "a", "got", got, "source", "itself", "seen", seen)
	}
	if err := copyRecord(t, lab, o.Out); err != nil {
		return nil, err
	}
	sum, err := record.HistorySha256(o.Out)
	return &run.Result{Dir: o.Out, HistorySha256: sum}, err
}

// pretendCosts makes the record of a run of costs. A faulty cost grows with the number of Services, as that of a proxy that writes all
// of them with each change; of "few" changes there are too few.
func pretendCosts(t testing.TB, o run.Options, fails func(cost string) bool) (*run.Result, error) {
	lab := recordtest.NewLab(uint64(o.Seed))
	lab.Run.Scenario, lab.Run.Command = o.Scenario, "hitless run cost"
	for i, others := range []string{o.Set["few"], o.Set["many"]} {
		for change := range routing.CostChanges {
			if fails("few") && i == 1 && change == 0 {
				continue
			}
			took, cpu := "5000000", "900000"
			if i == 1 && change < 2 { // a garbage collection, which the median does not count
				took, cpu = "900000000", "900000000"
			}
			if fails("time") && i == 1 {
				took = "90000000"
			}
			if fails("CPU") && i == 1 {
				cpu = "9000000"
			}
			lab.Event(time.Duration(10*i+change)*time.Second, record.KindCost, "node-1", "changed", "a change", "others", others, "tookNs", took, "cpuNs", cpu)
		}
	}
	if err := copyRecord(t, lab, o.Out); err != nil {
		return nil, err
	}
	sum, err := record.HistorySha256(o.Out)
	return &run.Result{Dir: o.Out, HistorySha256: sum}, err
}

func copyRecord(t testing.TB, lab *recordtest.Lab, out string) error {
	written := lab.Write(t)
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	return os.CopyFS(filepath.Join(out, record.HistoryDir), os.DirFS(written.Dir()))
}
