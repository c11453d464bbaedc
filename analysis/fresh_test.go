package analysis

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// longOutages are the outages of the lane that keeps connections.
func longOutages(r *Report) []OutageReport {
	for _, l := range r.Lanes {
		if l.Name == "tcp-long" {
			return l.Outages
		}
	}
	return nil
}

// The same losses of what was open, and what the new connections show: the connections were lost, or the way was.
func TestFreshConnectionsTellALostConnectionFromALostWay(t *testing.T) {
	for _, test := range []struct {
		name     string
		class    record.Class
		at       time.Duration
		outcomes []record.Class
		want     FreshReport
		says     string // in each cause
	}{
		{"reset alone", record.Reset, recordtest.LostAt, []record.Class{record.OK, record.OK, record.OK}, FreshReport{3, map[string]int{"ok": 3}},
			"established connections were reset, and all of 3 new ones at those moments were answered at once"},
		{"one", record.Reset, recordtest.LostAt + 50*time.Millisecond, []record.Class{record.OK}, FreshReport{1, map[string]int{"ok": 1}},
			"the established connection was reset, and a new one at that moment was answered at once"},
		{"stalled alone", record.Stalled, recordtest.LostAt, []record.Class{record.OK, record.OK}, FreshReport{2, map[string]int{"ok": 2}},
			"established connections were stalled, and all of 2 new ones at those moments were answered at once"},
		{"an outage", record.ReplyTimeout, recordtest.LostAt, []record.Class{record.ConnectTimeout, record.ConnectTimeout}, FreshReport{2, map[string]int{"connect-timeout": 2}},
			"established connections were silent, and nothing answered 2 new ones at those moments either (2 connect-timeout)"},
		{"nothing was open", record.Refused, recordtest.LostAt, []record.Class{record.Refused}, FreshReport{1, map[string]int{"refused": 1}},
			"connections could not be opened, and nothing answered a new one at that moment either (1 refused)"},
		{"refused", record.Reset, recordtest.LostAt, []record.Class{record.Refused}, FreshReport{1, map[string]int{"refused": 1}},
			"the established connection was reset, and nothing answered a new one at that moment either (1 refused)"},
		{"some of both", record.Reset, recordtest.LostAt, []record.Class{record.Delayed, record.OK}, FreshReport{2, map[string]int{"ok": 1, "delayed": 1}},
			"only 1 of 2 new ones at those moments got an answer at once (1 delayed)"},
		{"late", record.Reset, recordtest.LostAt, []record.Class{record.Delayed}, FreshReport{1, map[string]int{"delayed": 1}},
			"the established connection was reset, and a new one at that moment got an answer late (1 delayed)"},
		{"none at once", record.Stalled, recordtest.LostAt, []record.Class{record.Delayed, record.ConnectTimeout}, FreshReport{2, map[string]int{"delayed": 1, "connect-timeout": 1}},
			"established connections were stalled, and none of 2 new ones at those moments got an answer at once (1 delayed, 1 connect-timeout)"},
		{"none was tried", record.Reset, recordtest.LostAt, nil, FreshReport{0, map[string]int{}}, ""},
		{"those long before say nothing", record.Reset, recordtest.LostAt - 2*time.Second, []record.Class{record.OK, record.OK}, FreshReport{0, map[string]int{}}, ""},
		{"nor those long after", record.Reset, recordtest.LostAt + 6*time.Second, []record.Class{record.OK, record.OK}, FreshReport{0, map[string]int{}}, ""},
		{"the probe's own fault says nothing", record.Reset, recordtest.LostAt, []record.Class{record.Probe}, FreshReport{0, map[string]int{}}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := recordtest.LosingLong(test.class)
			s.Fresh(test.at, test.outcomes...)
			r := reportOf(t, s)
			checkSchema(t, r)
			outages := longOutages(r)
			if len(outages) != 1 {
				t.Fatalf("%d outages, want one: %+v", len(outages), outages)
			}
			o := outages[0]
			if diff := cmp.Diff(test.want, o.Fresh); diff != "" {
				t.Errorf("fresh connections (-want +got):\n%s", diff)
			}
			if said := strings.Contains(o.Cause.Text, "new one"); said != (test.says != "") || !strings.Contains(o.Cause.Text, test.says) {
				t.Errorf("the cause says %q, want %q in it", o.Cause.Text, test.says)
			}
		})
	}
}

// An attempt that was never connected says nothing about an established connection.
func TestADialIsNoEstablishedConnection(t *testing.T) {
	for _, c := range []struct {
		classes map[record.Class]int
		want    string
	}{
		{map[record.Class]int{record.ConnectTimeout: 1}, "a connection could not be opened, and a new one"},
		{map[record.Class]int{record.Refused: 1, record.Rejected: 2, record.Unreachable: 1}, "connections could not be opened, and a new one"},
		{map[record.Class]int{record.Refused: 1, record.Reset: 1}, "the established connection was reset, and a new one"},
		{map[record.Class]int{record.Refused: 1, record.Delayed: 1}, "the established connection failed, and a new one"},
	} {
		o := &Outage{classes: c.classes}
		for _, n := range c.classes {
			o.failed += n
		}
		if text := (looks{tried: 1, classes: map[record.Class]int{record.OK: 1}}).text(o); !strings.HasPrefix(text, c.want) {
			t.Errorf("%v: %q, want %q", c.classes, text, c.want)
		}
	}
}

// What a fresh connection meets is no loss of its own, and no reason not to trust a run: with them, without them and with
// many failed ones everything else of the report is the same.
func TestFreshConnectionsAreNotCountedTwice(t *testing.T) {
	without := reportOf(t, recordtest.LosingLong(record.Reset))
	with := recordtest.LosingLong(record.Reset)
	with.Fresh(recordtest.LostAt, record.ConnectTimeout, record.Refused, record.Reset, record.Probe, record.OK)
	r := reportOf(t, with)
	checkSchema(t, r)
	last := r.Controls[len(r.Controls)-1]
	if last.Role != record.RoleFresh || last.Beside != "tcp-long" || last.Attempts != 5 || last.Dropped != 3 {
		t.Errorf("the lane of the fresh connections is told as %+v", last)
	}
	if r.Lanes[0].Role != "measured" || r.Controls[0].Role != "proof" {
		t.Errorf("the other lanes are %s and %s, want measured and proof", r.Lanes[0].Role, r.Controls[0].Role)
	}
	if diff := cmp.Diff(without.Totals, r.Totals); diff != "" {
		t.Errorf("totals (-without +with):\n%s", diff)
	}
	if r.Verdict != Fail || without.Verdict != Fail || len(r.Reasons) != len(without.Reasons) {
		t.Errorf("%s %q; without them %s %q", r.Verdict, r.Reasons, without.Verdict, without.Reasons)
	}
	if diff := cmp.Diff(without.DetectionFloor, r.DetectionFloor); diff != "" {
		t.Errorf("the proof (-without +with):\n%s", diff)
	}
	// Numbers that are missing are still damage, as on every lane.
	lost := recordtest.LosingLong(record.Reset)
	lost.Fresh(recordtest.LostAt, record.OK, record.OK, record.OK)
	lost.Attempts = append(lost.Attempts[:len(lost.Attempts)-2], lost.Attempts[len(lost.Attempts)-1])
	if r := reportOf(t, lost); r.Verdict != Invalid || !strings.Contains(strings.Join(r.Reasons, "\n"), "lane tcp-long-fresh lost records") {
		t.Errorf("a fresh connection that is missing from the record: %s %q", r.Verdict, r.Reasons)
	}
}

// A connection that dies while nobody waits on it is told by the next attempt on it; the fresh one was tried before that.
func TestAFreshConnectionBeforeItsOutageCounts(t *testing.T) {
	s := recordtest.LosingLong(record.Reset)
	s.Fresh(recordtest.LostAt-80*time.Millisecond, record.OK)
	for i := range s.Events {
		if s.Events[i].Kind == record.KindLane && s.Events[i].Object == "tcp-long" {
			s.Events[i].Attrs["connections"] = "12"
		}
	}
	if o := longOutages(reportOf(t, s))[0]; o.Fresh.Tried != 1 {
		t.Errorf("a connection of twelve was silent for up to 120 ms; the fresh one 80 ms before its outage is not counted: %+v", o.Fresh)
	}
}
