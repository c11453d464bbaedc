package verify

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// A lab whose measured lane has losses of all classes that packets tell, each for 300 ms on all nodes.
var lost = []record.Class{record.ConnectTimeout, record.Refused, record.Rejected, record.Unreachable, record.Reset, record.Closed, record.ReplyTimeout, record.Delayed}

func losing() *recordtest.Lab {
	s := recordtest.DropOnNode2(false)
	s.Faults = nil
	for i, class := range lost {
		from := 30*time.Second + time.Duration(2*i)*time.Second
		s.Faults = append(s.Faults, recordtest.Fault{Lane: 0, From: from, To: from + 300*time.Millisecond, Class: class})
	}
	s.Probe(recordtest.Lane{ID: 0, Name: "web", Target: recordtest.WebAddress, Rate: 100, From: 5 * time.Second, To: 60 * time.Second})
	return s
}

// captured is the capture of all attempts of a lab, as its truth has them.
func captured(t *testing.T, s *recordtest.Lab) *wire {
	t.Helper()
	w := newWire(t, recordtest.NodeNames...)
	for i := range s.Attempts {
		a := &s.Attempts[i]
		target := recordtest.WebAddress
		w.connect(a, target, s.Services[target].Choose(a.Source, target, a.Start))
	}
	return w
}

func verified(t *testing.T, s *recordtest.Lab, packets *bytes.Reader) *Result {
	t.Helper()
	h := s.Write(t)
	report, err := analysis.Build(h)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Verify(h, report, packets)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestPacketsOfAnHonestRecordAgree(t *testing.T) {
	s := losing()
	r := verified(t, s, captured(t, s).capture(0))
	if !r.Agrees() {
		var b strings.Builder
		_ = r.WriteText(&b)
		t.Fatal(b.String())
	}
	for _, class := range lost {
		if n := r.Lanes[0].Packets[string(outcomeOf(class))]; n < 20 {
			t.Errorf("%d attempts with the outcome %s by the packets, want those of 300 ms", n, outcomeOf(class))
		}
	}
}

// Probers that are broken on purpose, as records of what they would have written.
func TestBrokenProbersAreFound(t *testing.T) {
	failed := func(a record.Attempt) bool { return a.Class.Dropped() }
	for name, test := range map[string]struct {
		want  Kind
		spoil func(s *recordtest.Lab)
	}{
		"discards one failed attempt in fifty": {Unrecorded, func(s *recordtest.Lab) {
			n := 0
			s.Attempts = slices.DeleteFunc(s.Attempts, func(a record.Attempt) bool {
				if failed(a) {
					n++
				}
				return failed(a) && n%50 == 0
			})
		}},
		"charges an attempt to the wrong second": {OtherTime, func(s *recordtest.Lab) {
			i := slices.IndexFunc(s.Attempts, failed)
			s.Attempts[i].Intended -= time.Second
		}},
		"shifts an attempt by a second": {NoPackets, func(s *recordtest.Lab) {
			i := slices.IndexFunc(s.Attempts, failed)
			s.Attempts[i].Intended -= time.Second
			s.Attempts[i].Start -= time.Second
		}},
		"reports a reset as a timeout": {OtherOutcome, func(s *recordtest.Lab) {
			i := slices.IndexFunc(s.Attempts, func(a record.Attempt) bool { return a.Class == record.Reset })
			s.Attempts[i].Class = record.ReplyTimeout
		}},
		"reports a refusal as an answer": {OtherOutcome, func(s *recordtest.Lab) {
			i := slices.IndexFunc(s.Attempts, func(a record.Attempt) bool { return a.Class == record.Refused })
			s.Attempts[i].Class = record.OK
		}},
		"reports a delay as an answer in time": {OtherOutcome, func(s *recordtest.Lab) {
			i := slices.IndexFunc(s.Attempts, func(a record.Attempt) bool { return a.Class == record.Delayed })
			s.Attempts[i].Class = record.OK
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := losing()
			packets := captured(t, s).capture(0)
			test.spoil(s)
			r := verified(t, s, packets)
			if r.Agrees() || !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Kind == test.want }) {
				t.Errorf("%.2000v are the findings, want one of kind %q", r.Findings, test.want)
			}
		})
	}
}

func TestOtherPathsAreFound(t *testing.T) {
	s := losing()
	w := newWire(t, recordtest.NodeNames...)
	for i := range s.Attempts {
		w.connect(&s.Attempts[i], recordtest.WebAddress, "node-3")
	}
	r := verified(t, s, w.capture(0))
	if !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Kind == OtherPath }) {
		t.Errorf("%.2000v are the findings, want other paths", r.Findings)
	}
}

// A report that does not have what the record has.
func TestOtherNumbersInTheReportAreFound(t *testing.T) {
	for name, change := range map[string]func(l *analysis.LaneReport){
		"the dropped attempts":      func(l *analysis.LaneReport) { l.Dropped = 0 },
		"the delayed attempts":      func(l *analysis.LaneReport) { l.Delayed++ },
		"the attempts":              func(l *analysis.LaneReport) { l.Attempts++ },
		"a second":                  func(l *analysis.LaneReport) { l.DroppedPerSecond[len(l.DroppedPerSecond)-1]++ },
		"a path":                    func(l *analysis.LaneReport) { l.Paths[0].Dropped-- },
		"an outage that is missing": func(l *analysis.LaneReport) { l.Outages = l.Outages[1:] },
		"the end of an outage":      func(l *analysis.LaneReport) { l.Outages[0].To += 0.01 },
		"fewer seconds":             func(l *analysis.LaneReport) { l.DroppedPerSecond = l.DroppedPerSecond[:31] },
		"a length that the attempts around it do not allow": func(l *analysis.LaneReport) { l.Outages[0].UpperMs += 1e3 },
		"a length beyond that of its failures":              func(l *analysis.LaneReport) { l.Outages[0].LowerMs = l.Outages[0].UpperMs },
		"two outages of a node as one": func(l *analysis.LaneReport) {
			first := &l.Outages[0]
			i := 1 + slices.IndexFunc(l.Outages[1:], func(o analysis.OutageReport) bool { return o.Node == first.Node })
			for class, n := range l.Outages[i].Classes {
				first.Classes[class] += n
			}
			first.To, first.UpperMs = l.Outages[i].To, (l.Outages[i].To-first.From)*1e3+20
			l.Outages = slices.Delete(l.Outages, i, i+1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := losing()
			h, packets := s.Write(t), captured(t, s).capture(0)
			report, err := analysis.Build(h)
			if err != nil {
				t.Fatal(err)
			}
			change(&report.Lanes[0])
			r, err := Verify(h, report, packets)
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Findings) == 0 || r.Findings[0].Kind != OtherReport {
				t.Errorf("%.2000v are the findings, want one about the report", r.Findings)
			}
		})
	}
}

func TestACaptureThatLostPacketsProvesNothing(t *testing.T) {
	s := losing()
	if r := verified(t, s, captured(t, s).capture(1)); r.Doubt() == "" || r.Agrees() {
		t.Errorf("a capture that lost a packet agrees: %+v", r)
	}
}

func TestCapturesThatCannotBeRead(t *testing.T) {
	s := losing()
	h := s.Write(t)
	report, err := analysis.Build(h)
	if err != nil {
		t.Fatal(err)
	}
	whole := captured(t, s).out.Bytes()
	for name, data := range map[string][]byte{"empty": nil, "text": []byte("no capture"), "cut": whole[:len(whole)/2], "without packets": newWire(t).capture0()} {
		if r, err := Verify(h, report, bytes.NewReader(data)); err == nil && r.Agrees() {
			t.Errorf("a capture that is %s agrees", name)
		}
	}
}

func (w *wire) capture0() []byte {
	w.capture(0)
	return w.out.Bytes()
}
