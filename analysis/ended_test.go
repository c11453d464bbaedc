package analysis

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// endedAt is when the Service of the lane of ending is deleted.
const endedAt = 60 * time.Second

// ending is a run without loss, with a second lane that begins late and ends with its Service. Its last attempts, from an instant on, fail.
func ending(failsFrom time.Duration) *recordtest.Lab {
	s := recordtest.FleetLab(0)
	s.Faults = append(s.Faults, recordtest.Fault{Lane: 50, From: failsFrom, To: endedAt + time.Second, Class: record.Refused})
	s.Probe(recordtest.Lane{ID: 50, Name: "shop", Target: recordtest.WebAddress, Rate: 10, From: 40 * time.Second, To: endedAt})
	for key, value := range map[string]string{"joined": "true", "service": "default/web", "target": "198.51.100.7:80"} {
		s.Declared(50)[key] = value // behind a load balancer that hitless does not know
	}
	return s
}

// end records the deletion of the Service, which happened after an instant, and the end of the lane.
func end(s *recordtest.Lab, after time.Duration) {
	s.Event(endedAt, record.KindService, "", "default/web", "the Service default/web was deleted", "service", "default/web", "state", "deleted",
		"fromNs", strconv.Itoa(int(after)))
	s.Event(endedAt, record.KindLaneEnd, "", "shop", "its Service was deleted", "lane", "50", "reason", "deleted")
}

// A lane ends with its Service: that is no loss. What it lost in the moment before is the deletion's.
func TestLaneEndsWithItsService(t *testing.T) {
	for name, c := range map[string]struct {
		lost, away time.Duration // before the deletion was seen
		verdict    Verdict
		cause      string
	}{
		"nothing is lost":            {0, 0, Pass, ""},
		"the moment before is lost":  {300 * time.Millisecond, 0, Fail, "service deleted"},
		"while the API was away":     {20 * time.Second, 18 * time.Second, Fail, "service deleted"},
		"red twin: lost long before": {20 * time.Second, 0, Fail, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := ending(endedAt - c.lost)
			end(s, endedAt-c.away)
			r := reportOf(t, s)
			if r.Verdict != c.verdict {
				t.Fatalf("%s, want %s: %q", r.Verdict, c.verdict, r.Reasons)
			}
			for _, o := range r.AllOutages() {
				if o.Cause.Event != c.cause {
					t.Errorf("the cause of %+v is %q, want %q", o.OutageReport, o.Cause.Event, c.cause)
				}
			}
		})
	}
}

// The red twin: a lane that ends and nothing says why is no measurement.
func TestLaneThatEndsWithoutReasonIsInvalid(t *testing.T) {
	if r := reportOf(t, ending(endedAt)); r.Verdict != Invalid || !strings.Contains(strings.Join(r.Reasons, "\n"), "lane shop ended at") {
		t.Errorf("%s: %q", r.Verdict, r.Reasons)
	}
	s := ending(endedAt)
	s.Event(endedAt, record.KindLaneEnd, "", "shop", "its Service was deleted", "lane", "51", "reason", "deleted")
	if r := reportOf(t, s); r.Verdict != Invalid || !strings.Contains(strings.Join(r.Reasons, "\n"), "lane 51, which is not declared") {
		t.Errorf("%s: %q", r.Verdict, r.Reasons)
	}
}

// A lane whose Service changed before its first attempt was due leaves the run valid. The red twin had time for attempts and made none.
func TestLaneThatEndsBeforeItsFirstAttempt(t *testing.T) {
	for after, want := range map[time.Duration]Verdict{0: Pass, time.Second: Invalid} {
		s := ending(endedAt)
		s.Probe(recordtest.Lane{ID: 51, Name: "brief", Target: recordtest.WebAddress, Rate: 10, From: time.Second, To: time.Second})
		end(s, endedAt)
		s.Event(time.Second+after, record.KindLaneEnd, "", "brief", "its Service changed", "lane", "51", "reason", "changed")
		if r := reportOf(t, s); r.Verdict != want {
			t.Errorf("ended %v after its begin: %s, want %s: %q", after, r.Verdict, want, r.Reasons)
		}
	}
}

// A time without a record is never ok: without a loss the run is invalid, with one it has failed. Both name the time.
func TestMissingTimeOfAWatchIsNeverAPass(t *testing.T) {
	for _, lost := range []time.Duration{0, 10 * time.Second} {
		s := ending(endedAt - lost)
		s.State(50, s.Kill(50, 55*time.Second), endedAt)
		r := reportOf(t, s)
		want := map[bool]Verdict{false: Invalid, true: Fail}[lost > 0]
		if text := strings.Join(r.Reasons, "\n"); r.Verdict != want || !strings.Contains(text, "a gap in the record of lane shop from +54") {
			t.Errorf("lost %v: %s, want %s: %s", lost, r.Verdict, want, text)
		}
	}
}
