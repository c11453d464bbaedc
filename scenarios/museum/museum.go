// Package museum is the catalogue of historical proxy bugs that dropped connections. Each entry has the scenario that triggers the bug
// and its signature, a pure function of a run's record. A run can fail for other reasons, so a finding is not the subject's verdict.
package museum

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

// Entry is one bug. A new entry needs a value in All and a signature.
type Entry struct {
	ID       string // issue tracker and number, such as k8s-85643; a name when there is no issue
	Title    string // one line: what drops connections and when
	Affected string // versions that have the bug
	Fixed    string // the version, and the change if it is known
	Scenario string
	Set      map[string]string // parameters of the scenario that the bug needs; the others keep their defaults
	// Timelines reports whether the signature itself checks all steps that the bug needs. It can then judge the record of a timeline.
	Timelines bool
	// Signature searches a valid run of the scenario for the bug.
	Signature func(r *Record) Finding
}

// All returns the entries, sorted by id.
func All() []Entry {
	return []Entry{modeSwitch(), k8s122740(), k8s139628(), k8s71071(), k8s71515(), k8s85643(), k8s92019()}
}

// Find returns the entry with this id. The error lists the known ids.
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

// Record is a run's record as signatures use it.
type Record struct {
	Report *analysis.Report
	Events []record.Event  // sorted by time
	Open   map[string]bool // pods with an open connection that got a reply before the scenario
	Moves  []Move          // of the flow of a udp-sticky lane
	Flow   Answered        // of the same flow
}

// Move is a change of the pod that answers a flow.
type Move struct {
	At       time.Duration // when the datagram was sent
	From, To string        // pods
}

// Answered holds when the first and the last answered datagrams were sent. Both are 0 when none was answered.
type Answered struct{ First, Last time.Duration }

// Open reads the record of a run.
func Open(h *record.History) (*Record, error) {
	report, err := analysis.Build(h)
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

// readAttempts sets Open, Moves and Flow.
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

// Answer is the result of a search for a bug.
type Answer string

const (
	// Seen means that the run shows the bug's signature.
	Seen Answer = "seen"
	// NotSeen means that the run triggered the bug's conditions and could have detected it, but does not show its signature.
	NotSeen Answer = "not seen"
	// CannotTell means that the run is invalid, did not trigger the bug's conditions, or could not have detected it.
	CannotTell Answer = "cannot tell"
)

// ExitCode returns the exit code of a search for bugs: 1 when any was seen, else 3 when any run cannot tell, else 0.
func ExitCode(answers ...Answer) int {
	switch {
	case slices.Contains(answers, Seen):
		return 1
	case slices.ContainsFunc(answers, func(a Answer) bool { return a != NotSeen }):
		return 3
	}
	return 0
}

// Finding is an answer with its reasons.
type Finding struct {
	Answer  Answer
	Reasons []string
}

func cannotTell(format string, args ...any) Finding {
	return Finding{CannotTell, []string{fmt.Sprintf(format, args...)}}
}

// Judge searches a record for the bug. The answer is CannotTell for an invalid or skipped run, another scenario or other parameters.
func (e Entry) Judge(r *Record) Finding {
	if v := r.Report.Verdict; v != analysis.Pass && v != analysis.Fail {
		return Finding{CannotTell, append([]string{"the run is " + string(v)}, r.Report.Reasons...)}
	}
	if s := r.Report.Run.Scenario; s != e.Scenario && (s != scenarios.ReplayName || !e.Timelines) {
		return cannotTell("the run's scenario is %s; %s needs %s", r.Report.Run.Scenario, e.ID, e.Scenario)
	}
	for _, key := range slices.Sorted(maps.Keys(e.Set)) {
		if got := r.Report.Run.Parameters[key]; got != e.Set[key] {
			return cannotTell("the run has %s=%s; %s needs %s=%s", key, got, e.ID, key, e.Set[key])
		}
	}
	if at, lossy := r.lossBefore(); lossy {
		return cannotTell("the baseline is not clean: a measured lane lost connections at +%.3f s, before the scenario", at)
	}
	return e.Signature(r)
}

// lossBefore returns the time of the first outage of a measured lane before the scenario, in seconds. Such a fault may look like the bug.
func (r *Record) lossBefore() (at float64, lossy bool) {
	scenario := slices.IndexFunc(r.Events, func(e record.Event) bool { return e.Kind() == record.KindPhase && e.Object == "scenario" })
	if scenario < 0 {
		return 0, false
	}
	for _, l := range r.Report.Lanes {
		for _, o := range l.Outages {
			if o.From < r.Events[scenario].At.Seconds() {
				return o.From, true
			}
		}
	}
	return 0, false
}

// outagesOn returns the outages of the measured lanes on paths over a node.
func (r *Record) outagesOn(node string) (found []analysis.OutageReport) {
	for _, l := range r.Report.Lanes {
		for _, o := range l.Outages {
			if o.Node == node {
				found = append(found, o)
			}
		}
	}
	return found
}

// withoutNamespace returns the name of a Service without its namespace.
func withoutNamespace(service string) string { return service[strings.LastIndex(service, "/")+1:] }

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func fromSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
