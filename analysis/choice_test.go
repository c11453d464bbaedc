package analysis

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// The twins: what was chosen for other attempts is not an outage's, and no rule's age is told of a table that nobody looked at.
func TestWhatWasChosenForOthersIsNotTold(t *testing.T) {
	s := recordtest.StaleLab(10*time.Second, 5*time.Millisecond)
	s.Events = slices.DeleteFunc(s.Events, func(e recordtest.Event) bool { return e.Kind == record.KindKernelTable })
	first, asked := true, 0
	s.Choose(func(int) (string, string, bool) {
		defer func() { first = false }()
		return "node-2", "10.244.2.7:8080", first
	})
	for i := range s.Events {
		if s.Events[i].Kind == record.KindChoice {
			asked++
		}
	}
	for _, a := range s.Attempts[:50] { // good ones
		s.Event(a.Start, record.KindChoice, "node-2", "x", "chosen", "lane", "0", "seq", strconv.FormatUint(a.Seq, 10), "backend", "10.244.9.9:8080")
	}
	o := reportOf(t, s).Lanes[0].Outages[0]
	if want := []ChosenReport{{Backend: "10.244.2.7:8080", Pod: "web-1", Attempts: 1}}; asked != 1 || gocmp.Diff(want, o.Chosen) != "" {
		t.Errorf("%d were asked about, chosen is %+v", asked, o.Chosen)
	}
	for _, key := range []string{"lane", "seq", "backend"} {
		damaged := recordtest.StaleLab(10*time.Second, 5*time.Millisecond)
		damaged.Choose(func(int) (string, string, bool) { return "node-2", "10.244.2.7:8080", true })
		for i := range damaged.Events {
			if damaged.Events[i].Kind == record.KindChoice {
				damaged.Events[i].Attrs[key] = "x"
			}
		}
		if r := reportOf(t, damaged); r.Verdict != Invalid {
			t.Errorf("%s=x: verdict %s", key, r.Verdict)
		}
	}
}

// A dead pod among several that the kernel goes on to give connections to explains each of the outages, however long that
// lasts and whatever happens elsewhere meanwhile; without the kernel's word nobody knows.
func TestTheDeadPodThatTheKernelChoseIsTheCause(t *testing.T) {
	died, goesOn := 8*time.Second, 20*time.Second
	stale := func(asked bool) *Report {
		s := recordtest.StaleLab(died, 5*time.Millisecond)
		s.Events = slices.DeleteFunc(s.Events, func(e recordtest.Event) bool { return e.Kind == record.KindKernelTable || e.Kind == record.KindLane })
		s.Attempts, s.Faults = nil, nil
		for from := died; from < died+goesOn; from += 400 * time.Millisecond {
			s.Faults = append(s.Faults, recordtest.Fault{AnyLane: true, Node: "node-2", From: from, To: from + 30*time.Millisecond, Class: record.ConnectTimeout})
		}
		s.Pod(recordtest.Pod{Name: "web-3", Node: "node-3", Address: "10.244.3.8", Service: "default/web", Ready: 2 * time.Second,
			Terminating: died + 3*time.Second, Gone: died + 5*time.Second})
		s.Probe(recordtest.Lane{ID: 0, Name: "web", Target: recordtest.WebAddress, Rate: 100, From: 3 * time.Second, To: 30 * time.Second})
		s.Choose(func(int) (string, string, bool) { return "node-2", "10.244.2.7:8080", asked })
		return reportOf(t, s)
	}
	named := func(r *Report) (right int) {
		for _, o := range r.Lanes[0].Outages {
			if o.Cause.Event == "pod exited" && strings.HasPrefix(o.Cause.Text, "pod web-1 ") {
				right++
			}
		}
		return right
	}
	r := stale(true)
	if n := len(r.Lanes[0].Outages); n < 45 || named(r) != n || r.Unexplained.Count > 0 {
		t.Errorf("%d of %d outages have the dead pod's end as their cause; unexplained %+v", named(r), n, r.Unexplained)
	}
	if r := stale(false); named(r) == len(r.Lanes[0].Outages) {
		t.Error("the same is told without the kernel's word")
	}
}

// Of two dead pods that the same outages meet, each explains what comes when the other is met no more.
func TestEachDeadPodThatTheKernelChoseGoesOn(t *testing.T) {
	const died, parted = 8 * time.Second, 20 * time.Second
	s := recordtest.StaleLab(died, 5*time.Millisecond)
	s.Events = slices.DeleteFunc(s.Events, func(e recordtest.Event) bool { return e.Kind == record.KindKernelTable || e.Kind == record.KindLane })
	s.Attempts, s.Faults = nil, nil
	for from := died; from < parted; from += 400 * time.Millisecond {
		s.Faults = append(s.Faults, recordtest.Fault{AnyLane: true, Node: "node-2", From: from, To: from + 30*time.Millisecond, Class: record.ConnectTimeout})
	}
	s.Pod(recordtest.Pod{Name: "web-3", Node: "node-2", Address: "10.244.2.8", Service: "default/web", Ready: 2 * time.Second, Gone: died + time.Second})
	s.Probe(recordtest.Lane{ID: 0, Name: "web", Target: recordtest.WebAddress, Rate: 100, From: 3 * time.Second, To: 30 * time.Second})
	failed := 0
	for _, a := range s.Attempts {
		if a.Class != record.OK {
			failed++
		}
	}
	s.Choose(func(i int) (string, string, bool) {
		if address := "10.244.2.7:8080"; i%2 == 0 && i < failed-12 {
			return "node-2", address, true
		}
		return "node-2", "10.244.2.8:8080", true
	})
	outages := reportOf(t, s).Lanes[0].Outages
	for _, o := range outages {
		if o.Cause.Event != podExited {
			t.Errorf("the outage at %v that met %+v has the cause %+v", o.From, o.Chosen, o.Cause)
		}
	}
	last := outages[len(outages)-1]
	if len(last.Chosen) != 1 || !strings.HasPrefix(last.Cause.Text, "pod web-3 ") {
		t.Errorf("the last one met %+v and has the cause %+v", last.Chosen, last.Cause)
	}
}

// An address goes from pod to pod. Who had it when the kernel chose it is told and is the cause, not who has it at the end of the run
// or had it before; and an end that is told late does not give it back.
func TestThePodThatHadTheAddressWhenTheKernelChoseIt(t *testing.T) {
	died, goesOn := 10*time.Second, 8*time.Second
	s := recordtest.StaleLab(died, 5*time.Millisecond)
	s.Events = slices.DeleteFunc(s.Events, func(e recordtest.Event) bool { return e.Kind == record.KindKernelTable || e.Kind == record.KindLane })
	s.Attempts, s.Faults = nil, nil
	for from := died; from < died+goesOn; from += 400 * time.Millisecond {
		s.Faults = append(s.Faults, recordtest.Fault{AnyLane: true, Node: "node-2", From: from, To: from + 30*time.Millisecond, Class: record.ConnectTimeout})
	}
	at := func(at time.Duration, name, state string) {
		s.Event(at, record.KindPod, "node-2", name, "pod "+name+" is "+state, "state", state, "pod", name, "node", "node-2", "ip", "10.244.2.7")
	}
	at(100*time.Millisecond, "web-0", "created")
	at(300*time.Millisecond, "web-0", "exited")
	at(600*time.Millisecond, "web-0", "removed")
	at(25*time.Second, "web-9", "created")
	at(25*time.Second+time.Millisecond, "web-1", "removed")
	at(26*time.Second, "web-9", "ready")
	s.Pod(recordtest.Pod{Name: "web-3", Node: "node-3", Address: "10.244.3.8", Service: "default/web", Ready: 2 * time.Second,
		Terminating: died + 3*time.Second, Gone: died + 5*time.Second})
	s.Probe(recordtest.Lane{ID: 0, Name: "web", Target: recordtest.WebAddress, Rate: 100, From: 3 * time.Second, To: 30 * time.Second})
	s.Choose(func(int) (string, string, bool) { return "node-2", "10.244.2.7:8080", true })
	all := outages(t, reportOf(t, s))
	if len(all) < 15 {
		t.Fatalf("%d outages", len(all))
	}
	for _, o := range all {
		if len(o.Chosen) != 1 || o.Chosen[0].Pod != "web-1" || o.Cause.Event != podExited || !strings.HasPrefix(o.Cause.Text, "pod web-1 ") {
			t.Errorf("the outage at %v met %+v and has the cause %+v", o.From, o.Chosen, o.Cause)
		}
	}
}
