package reports

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hitless/hitless/record"
)

const (
	longID  = 5
	lostAt  = scenarioAt + 20*time.Second // only one node is in the balancer's table then
	lostFor = 200 * time.Millisecond
)

// losingLong is a run whose lane of connections that stay open loses some for a while, in the given way, beside the lane of
// new ones of every run.
func losingLong(class record.Class) *lab {
	o := rolling{seed: 3, fallback: true, rollouts: 1}
	s := o.lab()
	s.faults = append(s.faults, fault{lane: longID, from: lostAt, to: lostAt + lostFor, class: class})
	s = o.start(s)
	s.probe(simLane{id: longID, name: "tcp-long", target: webAddress, rate: 100, from: baselineAt + 7*time.Millisecond, to: o.endAt(), protocol: record.ProtocolLong})
	return s
}

// fresh declares the lane of the new connections that are tried when one of tcp-long fails, and makes those with the given
// outcomes, the first at an instant and then one each 20 ms.
func (s *lab) fresh(at time.Duration, outcomes ...record.Class) {
	s.event(time.Second, record.KindLane, "", "tcp-long-fresh", "lane tcp-long-fresh", "id", strconv.Itoa(longID+1), "name", "tcp-long-fresh", "client", "client",
		"target", webAddress.String(), "protocol", "tcp-new", "policy", "fresh", "close", "fin", "rate", "100", "dialMs", "3000", "replyMs", "1000",
		"control", "true", "role", record.RoleFresh, "beside", "tcp-long")
	for i, class := range outcomes {
		start := at + time.Duration(i)*20*time.Millisecond
		a := s.attempt(simLane{id: longID + 1, target: webAddress}, s.services[webAddress], uint64(i), start)
		a.Start = start
		if class != record.OK {
			a = failedAttempt(record.Attempt{Lane: a.Lane, Seq: a.Seq, Intended: start, Start: start, Source: a.Source}, class)
		}
		s.attempts = append(s.attempts, a)
	}
}

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
		{"reset alone", record.Reset, lostAt, []record.Class{record.OK, record.OK, record.OK}, FreshReport{3, map[string]int{"ok": 3}},
			"established connections were reset, and all of 3 new ones at those moments were answered at once"},
		{"one", record.Reset, lostAt + 50*time.Millisecond, []record.Class{record.OK}, FreshReport{1, map[string]int{"ok": 1}},
			"the established connection was reset, and a new one at that moment was answered at once"},
		{"stalled alone", record.Stalled, lostAt, []record.Class{record.OK, record.OK}, FreshReport{2, map[string]int{"ok": 2}},
			"established connections were stalled, and all of 2 new ones at those moments were answered at once"},
		{"an outage", record.ReplyTimeout, lostAt, []record.Class{record.ConnectTimeout, record.ConnectTimeout}, FreshReport{2, map[string]int{"connect-timeout": 2}},
			"established connections were silent, and nothing answered 2 new ones at those moments either (2 connect-timeout)"},
		{"refused", record.Reset, lostAt, []record.Class{record.Refused}, FreshReport{1, map[string]int{"refused": 1}},
			"the established connection was reset, and nothing answered a new one at that moment either (1 refused)"},
		{"some of both", record.Reset, lostAt, []record.Class{record.Delayed, record.OK}, FreshReport{2, map[string]int{"ok": 1, "delayed": 1}},
			"only 1 of 2 new ones at those moments got an answer at once (1 delayed)"},
		{"late", record.Reset, lostAt, []record.Class{record.Delayed}, FreshReport{1, map[string]int{"delayed": 1}},
			"the established connection was reset, and a new one at that moment got an answer late (1 delayed)"},
		{"none at once", record.Stalled, lostAt, []record.Class{record.Delayed, record.ConnectTimeout}, FreshReport{2, map[string]int{"delayed": 1, "connect-timeout": 1}},
			"established connections were stalled, and none of 2 new ones at those moments got an answer at once (1 delayed, 1 connect-timeout)"},
		{"none was tried", record.Reset, lostAt, nil, FreshReport{0, map[string]int{}}, ""},
		{"those long before say nothing", record.Reset, lostAt - 2*time.Second, []record.Class{record.OK, record.OK}, FreshReport{0, map[string]int{}}, ""},
		{"nor those long after", record.Reset, lostAt + 6*time.Second, []record.Class{record.OK, record.OK}, FreshReport{0, map[string]int{}}, ""},
		{"the probe's own fault says nothing", record.Reset, lostAt, []record.Class{record.Probe}, FreshReport{0, map[string]int{}}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := losingLong(test.class)
			s.fresh(test.at, test.outcomes...)
			r := s.report(t)
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

// What a fresh connection meets is no loss of its own, and no reason not to trust a run: with them, without them and with
// many failed ones everything else of the report is the same.
func TestFreshConnectionsAreNotCountedTwice(t *testing.T) {
	without := losingLong(record.Reset).report(t)
	with := losingLong(record.Reset)
	with.fresh(lostAt, record.ConnectTimeout, record.Refused, record.Reset, record.Probe, record.OK)
	r := with.report(t)
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
	lost := losingLong(record.Reset)
	lost.fresh(lostAt, record.OK, record.OK, record.OK)
	lost.attempts = append(lost.attempts[:len(lost.attempts)-2], lost.attempts[len(lost.attempts)-1])
	if r := lost.report(t); r.Verdict != Invalid || !strings.Contains(strings.Join(r.Reasons, "\n"), "lane tcp-long-fresh lost records") {
		t.Errorf("a fresh connection that is missing from the record: %s %q", r.Verdict, r.Reasons)
	}
}

// A connection that dies while nobody waits on it is told by the next attempt on it; the fresh one was tried before that.
func TestAFreshConnectionBeforeItsOutageCounts(t *testing.T) {
	s := losingLong(record.Reset)
	s.fresh(lostAt-80*time.Millisecond, record.OK)
	for i := range s.events {
		if s.events[i].Kind() == record.KindLane && s.events[i].Object == "tcp-long" {
			s.events[i].Attrs["connections"] = "12"
		}
	}
	if o := longOutages(s.report(t))[0]; o.Fresh.Tried != 1 {
		t.Errorf("a connection of twelve was silent for up to 120 ms; the fresh one 80 ms before its outage is not counted: %+v", o.Fresh)
	}
}
