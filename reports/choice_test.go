package reports

import (
	"bytes"
	"cmp"
	"html"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/hitless/hitless/record"
)

// choose tells for failed attempts what the kernel had chosen; of the attempts for which backend says nothing, nobody asked.
func (s *lab) choose(backend func(failed int) (node, address string, asked bool)) {
	slices.SortFunc(s.attempts, func(x, y record.Attempt) int { return cmp.Compare(x.Seq, y.Seq) })
	n := 0
	for _, a := range s.attempts {
		if a.Class == record.OK {
			continue
		}
		if node, address, asked := backend(n); asked {
			s.event(a.Start+a.Total+time.Millisecond, record.KindChoice, node, a.Source.String(), "chosen", "lane", strconv.Itoa(int(a.Lane)),
				"seq", strconv.FormatUint(a.Seq, 10), "backend", address)
		}
		n++
	}
}

// Each failed attempt that the kernel was asked about is joined with the backend, its pod's life and the rule's age.
func TestWhatTheKernelChoseIsTold(t *testing.T) {
	s := staleLab(10*time.Second, 5*time.Millisecond)
	s.choose(func(i int) (string, string, bool) {
		switch {
		case i%2 == 1:
			return "", "", false
		case i < 4:
			return "", "", true
		}
		return "node-2", "10.244.2.7:8080", true
	})
	h, r, _ := s.built(t)
	o := r.Lanes[0].Outages[0]
	age := millis(time.Duration(o.From*1e9) - 2500*time.Millisecond)
	want := []ChosenReport{{Backend: "10.244.2.7:8080", Pod: "web-1", Attempts: (o.Failed()+1)/2 - 2, RuleAgeMs: &age}, {Attempts: 2}}
	if diff := gocmp.Diff(want, o.Chosen); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, e := range r.Events {
		if e.Kind == record.KindChoice {
			t.Fatalf("the report's events have one for each attempt: %+v", e)
		}
	}
	checkSchema(t, r)
	var page bytes.Buffer
	if err := WritePage(&page, r, h); err != nil {
		t.Fatal(err)
	}
	text := html.UnescapeString(page.String())
	for _, must := range []string{"<tr><td>10.244.2.7:8080</td><td>web-1, exited at +10.000 s</td><td>at least 7.50 s</td><td class=\"n\">" + strconv.Itoa(want[0].Attempts) + "</td></tr>",
		"<tr><td>none: no node had the connection</td><td></td><td></td><td class=\"n\">2</td></tr>"} {
		if !strings.Contains(text, must) {
			t.Errorf("the page lacks %s", must)
		}
	}
}

// The twins: what was chosen for other attempts is not an outage's, and no rule's age is told of a table that nobody looked at.
func TestWhatWasChosenForOthersIsNotTold(t *testing.T) {
	s := staleLab(10*time.Second, 5*time.Millisecond)
	s.events = slices.DeleteFunc(s.events, func(e record.Event) bool { return e.Kind() == record.KindKernelTable })
	first, asked := true, 0
	s.choose(func(int) (string, string, bool) {
		defer func() { first = false }()
		return "node-2", "10.244.2.7:8080", first
	})
	for i := range s.events {
		if s.events[i].Kind() == record.KindChoice {
			asked++
		}
	}
	for _, a := range s.attempts[:50] { // good ones
		s.event(a.Start, record.KindChoice, "node-2", "x", "chosen", "lane", "0", "seq", strconv.FormatUint(a.Seq, 10), "backend", "10.244.9.9:8080")
	}
	o := s.report(t).Lanes[0].Outages[0]
	if want := []ChosenReport{{Backend: "10.244.2.7:8080", Pod: "web-1", Attempts: 1}}; asked != 1 || gocmp.Diff(want, o.Chosen) != "" {
		t.Errorf("%d were asked about, chosen is %+v", asked, o.Chosen)
	}
	for _, key := range []string{"lane", "seq", "backend"} {
		damaged := staleLab(10*time.Second, 5*time.Millisecond)
		damaged.choose(func(int) (string, string, bool) { return "node-2", "10.244.2.7:8080", true })
		for i := range damaged.events {
			if damaged.events[i].Kind() == record.KindChoice {
				damaged.events[i].Attrs[key] = "x"
			}
		}
		if r := damaged.report(t); r.Verdict != Invalid {
			t.Errorf("%s=x: verdict %s", key, r.Verdict)
		}
	}
}

// A dead pod among several that the kernel goes on to give connections to explains each of the outages, however long that
// lasts and whatever happens elsewhere meanwhile; without the kernel's word nobody knows.
func TestTheDeadPodThatTheKernelChoseIsTheCause(t *testing.T) {
	died, goesOn := 8*time.Second, 20*time.Second
	stale := func(asked bool) *Report {
		s := staleLab(died, 5*time.Millisecond)
		s.events = slices.DeleteFunc(s.events, func(e record.Event) bool { return e.Kind() == record.KindKernelTable || e.Kind() == record.KindLane })
		s.attempts, s.faults = nil, nil
		for from := died; from < died+goesOn; from += 400 * time.Millisecond {
			s.faults = append(s.faults, fault{anyLane: true, node: "node-2", from: from, to: from + 30*time.Millisecond, class: record.ConnectTimeout})
		}
		s.pod(simPod{name: "web-3", node: "node-3", address: "10.244.3.8", service: "default/web", ready: 2 * time.Second,
			terminating: died + 3*time.Second, gone: died + 5*time.Second})
		s.probe(simLane{id: 0, name: "web", target: webAddress, rate: 100, from: 3 * time.Second, to: 30 * time.Second})
		s.choose(func(int) (string, string, bool) { return "node-2", "10.244.2.7:8080", asked })
		return s.report(t)
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
	s := staleLab(died, 5*time.Millisecond)
	s.events = slices.DeleteFunc(s.events, func(e record.Event) bool { return e.Kind() == record.KindKernelTable || e.Kind() == record.KindLane })
	s.attempts, s.faults = nil, nil
	for from := died; from < parted; from += 400 * time.Millisecond {
		s.faults = append(s.faults, fault{anyLane: true, node: "node-2", from: from, to: from + 30*time.Millisecond, class: record.ConnectTimeout})
	}
	s.pod(simPod{name: "web-3", node: "node-2", address: "10.244.2.8", service: "default/web", ready: 2 * time.Second, gone: died + time.Second})
	s.probe(simLane{id: 0, name: "web", target: webAddress, rate: 100, from: 3 * time.Second, to: 30 * time.Second})
	failed := 0
	for _, a := range s.attempts {
		if a.Class != record.OK {
			failed++
		}
	}
	s.choose(func(i int) (string, string, bool) {
		if address := "10.244.2.7:8080"; i%2 == 0 && i < failed-12 {
			return "node-2", address, true
		}
		return "node-2", "10.244.2.8:8080", true
	})
	outages := s.report(t).Lanes[0].Outages
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
	s := staleLab(died, 5*time.Millisecond)
	s.events = slices.DeleteFunc(s.events, func(e record.Event) bool { return e.Kind() == record.KindKernelTable || e.Kind() == record.KindLane })
	s.attempts, s.faults = nil, nil
	for from := died; from < died+goesOn; from += 400 * time.Millisecond {
		s.faults = append(s.faults, fault{anyLane: true, node: "node-2", from: from, to: from + 30*time.Millisecond, class: record.ConnectTimeout})
	}
	at := func(at time.Duration, name, state string) {
		s.event(at, record.KindPod, "node-2", name, "pod "+name+" is "+state, "state", state, "pod", name, "node", "node-2", "ip", "10.244.2.7")
	}
	at(100*time.Millisecond, "web-0", "created")
	at(300*time.Millisecond, "web-0", "exited")
	at(600*time.Millisecond, "web-0", "removed")
	at(25*time.Second, "web-9", "created")
	at(25*time.Second+time.Millisecond, "web-1", "removed")
	at(26*time.Second, "web-9", "ready")
	s.pod(simPod{name: "web-3", node: "node-3", address: "10.244.3.8", service: "default/web", ready: 2 * time.Second,
		terminating: died + 3*time.Second, gone: died + 5*time.Second})
	s.probe(simLane{id: 0, name: "web", target: webAddress, rate: 100, from: 3 * time.Second, to: 30 * time.Second})
	s.choose(func(int) (string, string, bool) { return "node-2", "10.244.2.7:8080", true })
	all := outages(t, s.report(t))
	if len(all) < 15 {
		t.Fatalf("%d outages", len(all))
	}
	for _, o := range all {
		if len(o.Chosen) != 1 || o.Chosen[0].Pod != "web-1" || o.Cause.Event != podExited || !strings.HasPrefix(o.Cause.Text, "pod web-1 ") {
			t.Errorf("the outage at %v met %+v and has the cause %+v", o.From, o.Chosen, o.Cause)
		}
	}
}

// Where the address changed hands within an outage, each of the two is told with the attempts that it was given.
func TestAnAddressThatChangesHandsWithinAnOutage(t *testing.T) {
	s := staleLab(10*time.Second, 5*time.Millisecond)
	s.event(12*time.Second, record.KindPod, "node-2", "web-9", "created", "state", "created", "pod", "web-9", "node", "node-2", "ip", "10.244.2.7")
	s.choose(func(int) (string, string, bool) { return "node-2", "10.244.2.7:8080", true })
	h, r, _ := s.built(t)
	o := r.Lanes[0].Outages[0]
	if len(o.Chosen) != 2 || o.Chosen[0].Pod != "web-9" || o.Chosen[1].Pod != "web-1" || o.Chosen[0].Attempts+o.Chosen[1].Attempts != o.Failed() {
		t.Errorf("%d failed, and met %+v", o.Failed(), o.Chosen)
	}
	var page bytes.Buffer
	if err := WritePage(&page, r, h); err != nil {
		t.Fatal(err)
	}
	for _, must := range []string{"<td>web-9</td>", "<td>web-1, exited at +10.000 s</td>"} {
		if !strings.Contains(html.UnescapeString(page.String()), must) {
			t.Errorf("the page lacks %s", must)
		}
	}
}
