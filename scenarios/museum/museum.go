// Package museum is the catalogue of historical bugs that lost traffic: for each the scenario that brings it out and its
// signature, a pure function of a run's record. It runs nothing, and it does not judge a subject: a run may fail for other
// reasons than the bug that was looked for.
package museum

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/scenarios"
)

// Entry is one bug. Adding one is a value in All and one signature.
type Entry struct {
	ID       string // k8s-85643: where it was reported, and its number there; a name when nobody has reported it
	Title    string // one line: what loses traffic when
	Affected string // versions that have the bug
	Fixed    string // the version, and the change if it is known
	Scenario string
	Set      map[string]string // parameters of the scenario that the bug needs; the others keep their defaults
	// Timelines says that the signature sees for itself whether all that the bug needs was done, so that it can judge what a
	// timeline did as well.
	Timelines bool
	// Signature looks for the bug in the record of a run of the scenario that can be trusted.
	Signature func(r *Record) Finding
}

// All lists the entries by their ids.
func All() []Entry {
	return []Entry{modeSwitch(), k8s122740(), k8s139628(), k8s71071(), k8s71515(), k8s85643(), k8s92019()}
}

// Find returns the entry of that id; the error lists the known ones.
func Find(id string) (Entry, error) {
	var ids []string
	for _, e := range All() {
		if e.ID == id {
			return e, nil
		}
		ids = append(ids, e.ID)
	}
	return Entry{}, fmt.Errorf("unknown bug %q; the museum has %s", id, strings.Join(ids, ", "))
}

// Record is what a signature is judged from.
type Record struct {
	Report *reports.Report
	Events []record.Event  // with their attributes, in order of time
	Open   map[string]bool // pods to which connections were open, and answered, before the scenario began
	Moves  []Move          // of the flow of a udp-sticky lane
	Flow   Answered        // that flow
}

// Move is an answer from another pod than the one before it.
type Move struct {
	At       time.Duration // when the datagram was sent
	From, To string        // pods
}

// Answered says when the first and the last datagrams were sent that were answered; both are 0 when none was.
type Answered struct{ First, Last time.Duration }

// Open reads the record of a run.
func Open(h *record.History) (*Record, error) {
	report, err := reports.Build(h)
	if err != nil {
		return nil, err
	}
	r := &Record{Report: report}
	for e, err := range h.Events() {
		if err != nil {
			return nil, fmt.Errorf("reading the events: %w", err)
		}
		r.Events = append(r.Events, e)
	}
	slices.SortStableFunc(r.Events, func(x, y record.Event) int { return cmp.Compare(x.At, y.At) })
	return r, r.readAttempts(h)
}

// readAttempts finds the pods to which connections were open, and those that answered a flow of datagrams.
func (r *Record) readAttempts(h *record.History) error {
	r.Open = map[string]bool{}
	long, sticky, scenario := map[uint16]bool{}, map[uint16]bool{}, r.Report.Run.Duration
	for _, e := range r.Events {
		switch b := e.Body.(type) {
		case record.Lane:
			switch {
			case b.Control:
			case b.Protocol == "tcp-long":
				long[b.ID] = true
			case b.Protocol == "udp-sticky":
				sticky[b.ID] = true
			}
		case record.Phase:
			if e.Object == "scenario" {
				scenario = e.At.Seconds()
			}
		}
	}
	if len(long)+len(sticky) == 0 {
		return nil
	}
	pod := ""
	for a, err := range h.Attempts() {
		if err != nil {
			return fmt.Errorf("reading the attempts: %w", err)
		}
		if long[a.Lane] && a.Class == record.OK && a.Start.Seconds() < scenario {
			r.Open[a.Backend] = true
		}
		if sticky[a.Lane] && a.Class == record.OK {
			if pod != "" && a.Backend != pod {
				r.Moves = append(r.Moves, Move{a.Start, pod, a.Backend})
			}
			if pod = a.Backend; r.Flow.First == 0 {
				r.Flow.First = a.Start
			}
			r.Flow.Last = a.Start
		}
	}
	return nil
}

// Answer says whether a bug was seen.
type Answer string

const (
	// Seen means that the run shows the bug's signature.
	Seen Answer = "seen"
	// NotSeen means that the run had the occasion, would have seen the bug, and did not.
	NotSeen Answer = "not seen"
	// CannotTell means that the run says nothing of the bug.
	CannotTell Answer = "cannot tell"
)

// ExitCode is that of a command that looked for bugs: 1 when any was seen, else 3 when any run cannot tell, else 0.
func ExitCode(answers ...Answer) int {
	switch {
	case slices.Contains(answers, Seen):
		return 1
	case slices.ContainsFunc(answers, func(a Answer) bool { return a != NotSeen }):
		return 3
	}
	return 0
}

// Finding is an answer and the sentences that say why.
type Finding struct {
	Answer  Answer
	Reasons []string
}

func cannotTell(format string, args ...any) Finding {
	return Finding{CannotTell, []string{fmt.Sprintf(format, args...)}}
}

// Judge looks for the bug in a record. A run that cannot be trusted, or that is not the entry's scenario with the
// entry's parameters, cannot tell.
func (e Entry) Judge(r *Record) Finding {
	if v := r.Report.Verdict; v != reports.Pass && v != reports.Fail {
		return Finding{CannotTell, append([]string{"the run is " + string(v)}, r.Report.Reasons...)}
	}
	if s := r.Report.Run.Scenario; s != e.Scenario && (s != scenarios.ReplayName || !e.Timelines) {
		return cannotTell("the run is of the scenario %s; %s needs %s", r.Report.Run.Scenario, e.ID, e.Scenario)
	}
	for _, key := range slices.Sorted(maps.Keys(e.Set)) {
		if got := r.Report.Run.Parameters[key]; got != e.Set[key] {
			return cannotTell("the run has %s=%s; %s needs %s=%s", key, got, e.ID, key, e.Set[key])
		}
	}
	return e.Signature(r)
}

// outagesOn are those of the measured lanes on the path over a node.
func (r *Record) outagesOn(node string) (found []reports.OutageReport) {
	for _, l := range r.Report.Lanes {
		for _, o := range l.Outages {
			if o.Node == node {
				found = append(found, o)
			}
		}
	}
	return found
}

// bare is the name of a Service without its namespace.
func bare(service string) string { return service[strings.LastIndex(service, "/")+1:] }

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func fromSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
