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
	"github.com/hitless/hitless/record/recordtest"
)

var (
	sizeRate = flag.Float64("size-rate", 20, "attempts per second of each of the ten lanes in the test of the page's size; 606 makes six million")
	sizeSay  = flag.Bool("size-say", false, "say how large the page was")
)

// The worst that a page can be asked to show: ten lanes over three nodes whose attempts have every fate in every second,
// for as many seconds as there are buckets, and more outages, events and pods than are drawn. More attempts add digits,
// and nothing else: -args -size-rate=606 -size-say makes the six millions.
func TestThePageStaysBelowFiveMegabytes(t *testing.T) {
	s := fullLab()
	_, html := pageFrom(t, s.Write(t))
	if *sizeSay {
		t.Logf("%d attempts: %d bytes", len(s.Attempts), len(html))
	}
	if len(html) >= maxPage {
		t.Errorf("the page of %d attempts has %d bytes", len(s.Attempts), len(html))
	}
}

const maxPage = 5_000_000

// fullLab is the worst that a page can be asked to show.
func fullLab() *recordtest.Lab {
	const length = 990 * time.Second
	s := recordtest.NewLab(4)
	s.Late = func() time.Duration { return 0 }
	s.Services[recordtest.WebAddress] = &recordtest.Service{Name: "default/web", Seed: 7}
	s.Balance(recordtest.WebAddress, time.Second, recordtest.NodeNames...)
	s.Phase("baseline", 0)
	s.Phase("scenario", 10*time.Second)
	s.Phase("end", length)
	for i := range 60 {
		s.Pod(recordtest.Pod{Name: fmt.Sprintf("web-5d9f7c8b4d-%05d", i), Node: recordtest.NodeNames[i%3], Address: fmt.Sprintf("10.244.%d.%d", i%3, i+2), Service: "default/web",
			Ready: 2 * time.Second})
	}
	for i := range 5000 {
		at := 5*time.Second + time.Duration(i)*190*time.Millisecond
		s.Step(fmt.Sprintf("step %d of very many", i), at, at+100*time.Millisecond)
		s.Event(at, record.KindKernelChange, recordtest.NodeNames[i%3], "ipvs", strings.Repeat("backend 10.244.1.9:8080 was removed ", 4), "change", "removed")
	}
	for lane := range uint16(10) {
		s.Probe(recordtest.Lane{ID: lane, Name: fmt.Sprintf("lane-%d", lane), Target: recordtest.WebAddress, Rate: *sizeRate, From: time.Duration(lane) * time.Millisecond, To: length})
	}
	fates := [...]record.Class{record.OK, record.Refused, record.OK, record.Delayed, record.Probe, record.OK, record.OK}
	for i := range s.Attempts {
		a := &s.Attempts[i]
		a.Class = fates[(a.Seq+a.Seq/7+a.Seq/49)%uint64(len(fates))]
		a.Backend = s.Pods[(a.Seq*7+uint64(a.Lane))%60].Name
		if a.Class != record.OK {
			a.Backend, a.Total = "", 400*time.Microsecond
		}
	}
	return s
}

// longSoak is a soak with an outage in each of its rollouts. At the rate of a soak an outage is a few attempts.
func longSoak(length time.Duration, outages int, rate float64) *recordtest.Lab {
	o := recordtest.Rollout{Seed: 1, Rollouts: outages, Every: length / time.Duration(outages), Rate: rate, NoProof: true}
	return o.Start(o.Lab())
}

// A soak of a week with hundreds of outages has a page as small as that of any run.
func TestTheSoakOfAWeekHasASmallPage(t *testing.T) {
	r, html := pageFrom(t, longSoak(7*24*time.Hour, 600, 0.5).Write(t))
	if n := len(r.AllOutages()); n < 500 || r.Run.Duration < 7*24*3600 {
		t.Fatalf("%d outages in %v s", n, r.Run.Duration)
	}
	if *sizeSay {
		t.Logf("%d attempts: %d bytes", r.Totals.Attempts, len(html))
	}
	if len(html) >= maxPage {
		t.Errorf("the page has %d bytes", len(html))
	}
}

// Many outages and long texts leave the forms that others read short.
func TestSummariesStaySmallWhateverHappened(t *testing.T) {
	o := recordtest.Rollout{Seed: 1, Rollouts: 1}
	s := o.Start(o.Lab())
	long := strings.Repeat("a very long text | with <marks>, ", 8000)
	s.Run.Subject.Name, s.Run.Scenario = long, long
	s.Event(40*time.Second, record.KindStep, "", "x", long, "state", "failed", "error", long)
	for range 200 {
		s.Event(40*time.Second, record.KindGuard, "", "x", "conntrack is full")
	}
	r := reportOf(t, s)
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
