package analysis

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/record"
)

// The roles of lanes; see LaneReport.
const (
	roleMeasured = "measured"
	roleProof    = "proof"
)

func (l *Lane) roleWord() string {
	switch {
	case l.Role != "":
		return l.Role
	case l.Control:
		return roleProof
	}
	return roleMeasured
}

// looks counts the new connections that were made because established ones failed during an outage.
type looks struct {
	tried   int
	classes map[record.Class]int
}

// lookSlack bounds the time between a failure and the start of the new connection, with the error of the clock.
const lookSlack = 5 * time.Millisecond

// freshBeside finds the new connections of an outage. A connection that dies while idle fails only at its next attempt, but the new
// connection starts at once. The window therefore begins one turn before the outage. If any new connection used the outage's own
// node, only those count.
func (a *Analysis) freshBeside(o *Outage) looks {
	i := slices.IndexFunc(a.Lanes, func(l *Lane) bool { return l.Role == record.RoleFresh && l.Beside == o.Lane.Name })
	if i < 0 {
		return looks{}
	}
	from := min(o.before, o.from-o.Lane.Interval*time.Duration(max(1, o.Lane.Connections))) - lookSlack
	var all, own looks
	fresh := a.Lanes[i]
	for _, r := range fresh.Records[fresh.RecordAt(from):] {
		if r.Start() > o.told+lookSlack {
			break
		}
		if r.Class == record.Probe {
			continue
		}
		all.add(r.Class)
		if r.Node == o.node {
			own.add(r.Class)
		}
	}
	if own.tried > 0 {
		return own
	}
	return all
}

func (s *looks) add(c record.Class) {
	if s.classes == nil {
		s.classes = map[record.Class]int{}
	}
	s.tried++
	s.classes[c]++
}

func (s looks) report() FreshReport {
	r := FreshReport{Tried: s.tried, Classes: map[string]int{}}
	for c, n := range s.classes {
		r.Classes[c.String()] = n
	}
	return r
}

// losses are clauses in the past tense for the ways in which established connections fail.
var losses = map[record.Class]string{record.Reset: "reset", record.Closed: "closed", record.ReplyTimeout: "silent", record.Stalled: "stalled", record.Misrouted: "answered wrongly", record.WrongAnswer: "answered wrongly"}

// dials are the classes of connections that were never established.
var dials = []record.Class{record.Refused, record.Rejected, record.Unreachable, record.ConnectTimeout}

// lost says what failed: connections that were open, or those that were to replace them.
func (s looks) lost(o *Outage) string {
	var how []string
	dialled := 0
	for _, c := range record.Classes() {
		if word := losses[c]; word != "" && o.classes[c] > 0 {
			how = append(how, word)
		}
		if slices.Contains(dials, c) {
			dialled += o.classes[c]
		}
	}
	switch {
	case dialled == o.failed && o.failed == 1:
		return "a connection could not be opened"
	case dialled == o.failed:
		return "connections could not be opened"
	}
	what, verb := "the established connection", " was "
	if s.tried > 1 {
		what, verb = "established connections", " were "
	}
	if len(how) == 0 {
		return what + " failed"
	}
	return what + verb + strings.Join(how, " or ")
}

// text is a clause without the time. It says whether only open connections failed, or new ones over the same path too.
func (s looks) text(o *Outage) string {
	what, news := s.lost(o), "a new one at that moment"
	if s.tried > 1 {
		news = fmt.Sprintf("%d new ones at those moments", s.tried)
	}
	good, late := s.classes[record.OK], s.classes[record.Delayed]
	switch {
	case good == s.tried && s.tried == 1:
		return what + ", and " + news + " was answered at once"
	case good == s.tried:
		return what + ", and all of " + news + " were answered at once"
	case good+late == 0:
		return what + ", and nothing answered " + news + " either" + s.failures()
	case s.tried == 1:
		return what + ", and " + news + " got an answer late" + s.failures()
	case good == 0:
		return what + ", and none of " + news + " got an answer at once" + s.failures()
	}
	return fmt.Sprintf("%s, and only %d of %s got an answer at once%s", what, good, news, s.failures())
}

// failures lists the classes other than ok, in brackets.
func (s looks) failures() string {
	var parts []string
	for _, c := range record.Classes() {
		if n := s.classes[c]; n > 0 && c != record.OK {
			parts = append(parts, fmt.Sprintf("%d %s", n, c))
		}
	}
	return " (" + strings.Join(parts, ", ") + ")"
}
