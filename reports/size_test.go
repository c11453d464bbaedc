package reports

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

var (
	sizeRate = flag.Float64("size-rate", 20, "attempts per second of each of the ten lanes in the test of the page's size; 606 makes six million")
	sizeSay  = flag.Bool("size-say", false, "say how large the page was")
)

// The worst that a page can be asked to show: ten lanes over three nodes whose attempts have every fate in every second,
// for as many seconds as there are buckets, and more outages, events and pods than are drawn. More attempts add digits,
// and nothing else: -args -size-rate=606 -size-say makes the six millions.
func TestThePageStaysBelowFiveMegabytes(t *testing.T) {
	const length = 990 * time.Second
	s := newLab(4)
	s.late = func() time.Duration { return 0 }
	s.services[webAddress] = &service{name: "default/web", seed: 7}
	s.balance(webAddress, time.Second, nodeNames...)
	s.phase("baseline", 0)
	s.phase("scenario", 10*time.Second)
	s.phase("end", length)
	for i := range 60 {
		s.pod(simPod{name: fmt.Sprintf("web-5d9f7c8b4d-%05d", i), node: nodeNames[i%3], address: fmt.Sprintf("10.244.%d.%d", i%3, i+2), service: "default/web",
			ready: 2 * time.Second})
	}
	for i := range 5000 {
		at := 5*time.Second + time.Duration(i)*190*time.Millisecond
		s.step(fmt.Sprintf("step %d of very many", i), at, at+100*time.Millisecond)
		s.event(at, record.KindKernelChange, nodeNames[i%3], "ipvs", strings.Repeat("backend 10.244.1.9:8080 was removed ", 4), "change", "removed")
	}
	for lane := range uint16(10) {
		s.probe(simLane{id: lane, name: fmt.Sprintf("lane-%d", lane), target: webAddress, rate: *sizeRate, from: time.Duration(lane) * time.Millisecond, to: length})
	}
	fates := [...]record.Class{record.OK, record.Refused, record.OK, record.Delayed, record.Probe, record.OK, record.OK}
	for i := range s.attempts {
		a := &s.attempts[i]
		a.Class = fates[(a.Seq+a.Seq/7+a.Seq/49)%uint64(len(fates))]
		a.Backend = s.pods[(a.Seq*7+uint64(a.Lane))%60].name
		if a.Class != record.OK {
			a.Backend, a.Total = "", 400*time.Microsecond
		}
	}
	h := s.write(t)
	r, err := Build(h)
	if err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err := WritePage(&page, r, h); err != nil {
		t.Fatal(err)
	}
	if *sizeSay {
		t.Logf("%d attempts: %d bytes", len(s.attempts), page.Len())
	}
	if page.Len() >= 5e6 {
		t.Errorf("the page of %d attempts has %d bytes", len(s.attempts), page.Len())
	}
}

// Many outages and long texts leave the forms that others read short.
func TestSummariesStaySmallWhateverHappened(t *testing.T) {
	o := rolling{seed: 1, rollouts: 1}
	s := o.start(o.lab())
	long := strings.Repeat("a very long text | with <marks>, ", 8000)
	s.run.Subject.Name, s.run.Scenario = long, long
	s.event(40*time.Second, record.KindStep, "", "x", long, "state", "failed", "error", long)
	for range 200 {
		s.event(40*time.Second, record.KindGuard, "", "x", "conntrack is full")
	}
	r := s.report(t)
	one := r.Lanes[0].Outages[0]
	one.Cause.Text, one.Node = long, long
	r.Lanes[0].Outages = nil
	for i := range 100000 {
		one.From += float64(i)
		r.Lanes[0].Outages = append(r.Lanes[0].Outages, one)
	}
	var b bytes.Buffer
	if err := WriteMarkdown(&b, r, record.Origin{Command: "hitless run rollout"}); err != nil {
		t.Fatal(err)
	}
	if b.Len() >= 1<<20 || bytes.Count(b.Bytes(), []byte("\n")) >= 60 {
		t.Errorf("the summary has %d bytes in %d lines", b.Len(), bytes.Count(b.Bytes(), []byte("\n")))
	}
	b.Reset()
	if err := WriteJUnit(&b, r, record.Origin{}); err != nil {
		t.Fatal(err)
	}
	if err := WriteTerminal(io.Discard, r, record.Origin{}); err != nil {
		t.Fatal(err)
	}
}
