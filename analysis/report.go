package analysis

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// Version is the version of report.json; schema.json beside the code describes it.
const Version = 1

// Verdict is what a run says about its subject.
type Verdict string

const (
	// Pass means that the loss is within the budget and that the measurement can be trusted.
	Pass Verdict = "pass"
	// Fail means that the loss exceeds the budget.
	Fail Verdict = "fail"
	// Invalid means that the measurement cannot be trusted, or that the event never happened.
	Invalid Verdict = "invalid"
	// Skipped means that the run was not made, with a reason.
	Skipped Verdict = "skipped"
)

// ExitCode is what a program that judges a run exits with: 0 pass, 1 fail, 2 skipped, 3 invalid.
func (v Verdict) ExitCode() int {
	switch v {
	case Pass:
		return 0
	case Fail:
		return 1
	case Skipped:
		return 2
	}
	return 3
}

// Report is report.json. Times are seconds from the start of the run; other units stand in the field's name.
// It is a pure function of a history (and, when judged again, of a budget).
type Report struct {
	SchemaVersion  int            `json:"schemaVersion"`
	Verdict        Verdict        `json:"verdict"`
	Reasons        []string       `json:"reasons"` // sentences; the first tells pass and fail in numbers
	Run            ReportRun      `json:"run"`
	Subject        record.Subject `json:"subject"`
	DetectionFloor DetectionFloor `json:"detectionFloor"`
	Totals         Totals         `json:"totals"`
	Lanes          []LaneReport   `json:"lanes"`
	Events         []ReportEvent  `json:"events"`
	Unexplained    Unexplained    `json:"unexplained"`
	Controls       []LaneReport   `json:"controls"` // lanes that prove the detector or are other evidence; never part of totals
	// Recovery is the recovery check; nil in a record that has none, as of older versions.
	Recovery *RecoveryReport `json:"recovery,omitempty"`
	// Early says when and why the run ended before its end; nil for a complete run.
	Early *EarlyReport `json:"early,omitempty"`
	// NextSteps are what a reader can do: where to look, the version that fixes a known bug, and a run with the defaults.
	NextSteps []string `json:"nextSteps,omitempty"`
	// Made is when and with what the run was made. Only results that are kept have it: a report depends on the record alone.
	Made *record.Made `json:"made,omitempty"`
	// Excused are the losses that the scenario made unavoidable. Totals count them; the verdict does not.
	Excused []ExcusedReport `json:"excused,omitempty"`
}

// ReportRun says what was run.
type ReportRun struct {
	Scenario     string            `json:"scenario"`
	Parameters   map[string]string `json:"parameters"`
	Seed         int64             `json:"seed"`
	Kernel       record.Kernel     `json:"kernel"`
	Clock        string            `json:"clock"`
	Duration     float64           `json:"duration"` // seconds
	InputsSha256 string            `json:"inputsSha256"`
	// ProgramSha256 is of hitless. It and ControlPlane are empty where the record does not have them.
	ProgramSha256 string `json:"programSha256,omitempty"`
	ControlPlane  string `json:"controlPlane,omitempty"` // kube or replay; a live one's version
	// Nodes is the number of nodes of the cluster; 0 where the record does not name them.
	Nodes int `json:"nodes,omitempty"`
	// Programs is record.ProgramsReleased or empty.
	Programs string `json:"programs,omitempty"`
	// Tools are record.Run.Tools: packages of the guest's tools that are others than the pinned ones.
	Tools string `json:"tools,omitempty"`
}

// DetectionFloor is the smallest outage that the run has proved to see.
type DetectionFloor struct {
	Ms       *float64     `json:"ms"`               // null until proved: the larger of the smallest fault found and two gaps of the slowest lane
	NodeMs   *float64     `json:"nodeMs,omitempty"` // the same of one node, if it is larger: see nodeFloor
	Injected []float64    `json:"injected"`         // durations in ms of the faults injected to prove the detector, in order of time
	Found    []float64    `json:"found"`            // those of them that were found
	Faults   []KnownFault `json:"faults"`           // the same one by one, in order of time
	// Proofs is how many times the detector was to be proved, and ProvedUntil the end of the last proof up to which all were good. They are
	// in reports of runs with several proofs.
	Proofs      int      `json:"proofs,omitempty"`
	ProvedUntil *float64 `json:"provedUntil,omitempty"`
}

// KnownFault is a fault that was injected to prove the detector.
type KnownFault struct {
	Fault string  `json:"fault"` // drop, refuse, reset or misroute
	Lane  string  `json:"lane"`  // the control lane that had to see it
	Node  string  `json:"node"`  // the only node that it was on; empty for all
	Ms    float64 `json:"ms"`
	Found bool    `json:"found"` // with its class, node and bounds
}

// Totals are over all measured lanes. attempts = ok + delayed + dropped + byClass.probe.
type Totals struct {
	Attempts int            `json:"attempts"`
	OK       int            `json:"ok"`
	Delayed  int            `json:"delayed"`
	Dropped  int            `json:"dropped"`
	ByClass  map[string]int `json:"byClass"` // all classes, also those with none
}

// LaneReport is what one lane saw.
type LaneReport struct {
	Name             string         `json:"name"`
	Role             string         `json:"role"`   // measured, proof (of the detector), RoleFresh, RolePod or RoleUnserved
	Beside           string         `json:"beside"` // the lane that it is evidence for; empty when it is not for one
	Client           string         `json:"client"`
	Target           string         `json:"target"`
	Protocol         string         `json:"protocol"`
	Policy           string         `json:"policy"`
	Rate             float64        `json:"rate"` // attempts per second
	Attempts         int            `json:"attempts"`
	OK               int            `json:"ok"`
	Delayed          int            `json:"delayed"`
	Dropped          int            `json:"dropped"`
	DroppedPerSecond []int          `json:"droppedPerSecond"` // entry i: intended from second i of the run up to i+1
	Latency          Latency        `json:"latency"`
	Slow             *SlowReport    `json:"slow,omitempty"` // of measured lanes of new connections
	Paths            []PathReport   `json:"paths"`
	Outages          []OutageReport `json:"outages"`
	Fleet            *FleetReport   `json:"fleet,omitempty"` // of the lane of a fleet's worker
}

// FleetReport is what is known of a worker in the cluster that probed by itself.
type FleetReport struct {
	Worker  string      `json:"worker"`
	Node    string      `json:"node"`
	ClockMs float64     `json:"clockMs"` // how far its clock was off at most; times of this lane are true to within it
	Gaps    []GapReport `json:"gaps"`
}

// GapReport is a time in which attempts were made, or may have been, that are not in the record.
type GapReport struct {
	From float64 `json:"from"`
	To   float64 `json:"to"`
	Text string  `json:"text"`
}

// OutagesOn counts the outages on the path over a node.
func (l LaneReport) OutagesOn(node string) int {
	n := 0
	for _, o := range l.Outages {
		if o.Node == node {
			n++
		}
	}
	return n
}

// Latency is in seconds, from the intended start until the correct answer was complete, of ok and delayed attempts.
type Latency struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// PathReport is a lane's traffic over one node; the node is empty where no load balancer chose one.
type PathReport struct {
	Node     string `json:"node"`
	Attempts int    `json:"attempts"`
	Dropped  int    `json:"dropped"`
}

// OutageReport is a maximal interval of failed (dropped or delayed) attempts on one path.
type OutageReport struct {
	From    float64        `json:"from"` // intended start of the first failed attempt
	To      float64        `json:"to"`   // and of the last
	LowerMs float64        `json:"lowerMs"`
	UpperMs float64        `json:"upperMs"`
	Classes map[string]int `json:"classes"` // failed attempts by class; only classes that occur
	Node    string         `json:"node"`
	Backend string         `json:"backend"` // that answered the failed attempts, or else the last good one before
	Fresh   FreshReport    `json:"fresh"`
	Pods    []PodReport    `json:"pods"` // that could have answered, and were asked at their own addresses meanwhile
	Cause   CauseReport    `json:"cause"`
	// Edges are the steps from the cause to the first failure, and from the last failure's end; the clauses of the cause refer to them.
	Edges []EdgeReport `json:"edges,omitempty"`
	// Chosen are the backends that the kernel gave the failed attempts, where it was asked; the most frequent first.
	Chosen []ChosenReport `json:"chosen,omitempty"`
}

// FreshReport is what became of the new connections that were tried at the moments at which established ones failed.
type FreshReport struct {
	Tried   int            `json:"tried"`
	Classes map[string]int `json:"classes"` // by outcome; only classes that occur
}

// Failed is how many attempts failed in the outage.
func (o OutageReport) Failed() int {
	n := 0
	for _, k := range o.Classes {
		n += k
	}
	return n
}

// PodReport is what a pod said at its own address while an outage lasted.
type PodReport struct {
	Pod    string `json:"pod"`
	Node   string `json:"node"`
	Tried  int    `json:"tried"`
	Failed int    `json:"failed"` // dropped or delayed
}

// CauseReport is the event that explains an outage best. Event is empty when none does.
type CauseReport struct {
	Event   string  `json:"event"` // kind and state, for example "pod terminating"
	Text    string  `json:"text"`
	AfterMs float64 `json:"afterMs"` // from the event to the outage's first failed attempt
	// Kind is the cause without names and times, equal for all outages with the same cause.
	Kind string `json:"kind"`
	// Ended is how the outage ended; it is the last part of Text. Empty for an outage that ended by itself.
	Ended string `json:"ended,omitempty"`
}

// Why is the text without how the outage ended.
func (c CauseReport) Why() string { return strings.TrimSuffix(c.Text, "; "+c.Ended) }

// ReportEvent is an event of the run as readers need it.
type ReportEvent struct {
	At     float64     `json:"at"`
	Kind   record.Kind `json:"kind"`
	Node   string      `json:"node"`
	Object string      `json:"object"`
	Text   string      `json:"text"`
}

// EventKinds returns the kinds of the events that a report lists, in a fixed order. Lanes are a part of their own, and flows and
// choices are evidence about attempts.
func EventKinds() []record.Kind {
	return slices.DeleteFunc(record.Kinds(), func(k record.Kind) bool {
		return k == record.KindLane || k == record.KindFlows || k == record.KindChoice
	})
}

// Unexplained counts the failed attempts of measured lanes that no event explains.
type Unexplained struct {
	Count int     `json:"count"`
	Share float64 `json:"share"` // of all failed attempts, 0 to 1
}

// Build computes the report of a history. It is pure: the same history gives the same report, anywhere and at any time.
// Errors are only for histories that cannot be read at all; a damaged one gives an invalid report that says what is missing.
func Build(h *record.History) (*Report, error) {
	a, err := New(h)
	if err != nil {
		return nil, Unreadable(h, err)
	}
	return a.Report(), nil
}

// Unreadable explains why there is no report. Of a record that is not trusted in any case it is a record.DamageError.
func Unreadable(h *record.History, err error) error {
	if why := h.Distrust(); why != "" {
		return &record.DamageError{Folder: filepath.Dir(h.Dir()), Reason: fmt.Sprintf("%s; nothing of it can be read: %v", why, err)}
	}
	return fmt.Errorf("building the report of %s: %w (nothing of this record can be read: copy the whole folder again, or repeat the run)", h.Dir(), err)
}

// SkippedReport is the report of a run that was not made, with the reason as a sentence.
func SkippedReport(run record.Run, reason string) *Report {
	a := newAnalysis(run)
	r := a.facts(proof{})
	r.Verdict, r.Reasons = Skipped, []string{reason}
	return r
}

func (a *Analysis) Report() *Report {
	p := a.prove()
	r := a.facts(p)
	r.Early = a.earlyReport()
	r.Verdict, r.Reasons = a.judge(r, p)
	r.Reasons = append(r.Reasons, r.sealedOtherwise(a.seal)...)
	r.NextSteps = a.nextSteps(r)
	return r
}

// sealedOtherwise says how an intact seal differs from the report: another program has judged, or by another budget.
func (r *Report) sealedOtherwise(s *record.Seal) []string {
	if s == nil || s.Early != "" || s.Sealed == r.Sealed("") {
		return nil
	}
	return []string{fmt.Sprintf("the record is intact, and its seal has another outcome: %s, with %s, %s dropped, %s delayed; this report is by another program or another budget",
		s.Verdict, units.Plural(s.Attempts, "attempt"), units.Thousands(s.Dropped), units.Thousands(s.Delayed))}
}

// Sealed is the outcome that a seal fixes. early is why the run ended early, or empty.
func (r *Report) Sealed(early string) record.Sealed {
	return record.Sealed{Verdict: string(r.Verdict), Early: early, Attempts: r.Totals.Attempts, Dropped: r.Totals.Dropped, Delayed: r.Totals.Delayed}
}

// facts is the report without its verdict.
func (a *Analysis) facts(p proof) *Report {
	r := &Report{SchemaVersion: Version, Subject: a.Run.Subject, Lanes: []LaneReport{}, Controls: []LaneReport{},
		Events: []ReportEvent{}, Totals: Totals{ByClass: map[string]int{}},
		Run: ReportRun{Scenario: a.Run.Scenario, Parameters: a.Run.Parameters, Seed: a.Run.Seed, Kernel: a.Run.Kernel,
			Clock: a.Run.Clock, Duration: units.Seconds(a.End), InputsSha256: a.Run.InputsSha256, ProgramSha256: a.Run.ProgramSha256, ControlPlane: a.Run.ControlPlane, Nodes: len(a.Run.Nodes), Programs: a.Run.Programs, Tools: a.Run.Tools}}
	if r.Run.Parameters == nil {
		r.Run.Parameters = map[string]string{}
	}
	for _, c := range record.Classes() {
		r.Totals.ByClass[c.String()] = 0
	}
	for _, l := range a.Measured() {
		r.Lanes = append(r.Lanes, a.laneReport(l))
		a.addTotals(r, l)
	}
	for _, l := range a.controls() {
		r.Controls = append(r.Controls, a.laneReport(l))
	}
	if failed := r.Totals.Dropped + r.Totals.Delayed; failed > 0 {
		r.Unexplained.Share = float64(int(float64(r.Unexplained.Count)/float64(failed)*1e4+0.5)) / 1e4
	}
	for _, e := range a.Events {
		if e.Kind() != record.KindLane {
			r.Events = append(r.Events, ReportEvent{At: units.Seconds(e.At), Kind: e.Kind(), Node: e.Node, Object: e.Object, Text: e.Text})
		}
	}
	r.DetectionFloor, r.Recovery, r.Excused = p.report(), a.recoveryReport(), a.excusedReports()
	if ms := units.Millis(a.nodeFloor()); r.DetectionFloor.Ms != nil && ms > *r.DetectionFloor.Ms {
		r.DetectionFloor.NodeMs = &ms
	}
	return r
}

func (a *Analysis) addTotals(r *Report, l *Lane) {
	for i := range l.Records {
		r.Totals.ByClass[l.Records[i].Class.String()] += int(l.Records[i].N)
	}
	last := r.Lanes[len(r.Lanes)-1]
	r.Totals.Attempts += last.Attempts
	r.Totals.OK += last.OK
	r.Totals.Delayed += last.Delayed
	r.Totals.Dropped += last.Dropped
	for _, o := range l.Outages {
		if o.cause.suspect == nil {
			r.Unexplained.Count += o.failed
		}
	}
}

func (p *proof) report() DetectionFloor {
	d := DetectionFloor{Injected: []float64{}, Found: []float64{}, Faults: []KnownFault{}}
	for _, in := range p.injections {
		ms := units.Millis(in.to - in.from)
		d.Injected = append(d.Injected, ms)
		d.Faults = append(d.Faults, KnownFault{Fault: in.fault, Lane: in.lane.Name, Node: in.node, Ms: ms, Found: in.found != nil})
		if in.found != nil {
			d.Found = append(d.Found, ms)
		}
	}
	if p.proved {
		ms := units.Millis(p.floor)
		d.Ms = &ms
	}
	if len(p.rounds) > 1 {
		at := units.Seconds(p.provedUntil())
		d.Proofs, d.ProvedUntil = len(p.rounds), &at
	}
	return d
}

func (a *Analysis) laneReport(l *Lane) LaneReport {
	r := LaneReport{Name: l.Name, Role: l.roleWord(), Beside: l.Beside, Client: l.Client, Target: l.Target, Protocol: l.Protocol, Policy: l.Policy, Rate: l.Rate,
		Attempts: l.attempts, DroppedPerSecond: make([]int, (a.End+time.Second-1)/time.Second), Paths: []PathReport{},
		Outages: []OutageReport{}, Fleet: l.fleet.report(l.Node)}
	paths, slowest := make([]PathReport, len(a.Nodes)), l.folded.slowest
	latencies := l.folded.latency.Append(make([]record.Weighted, 0, len(l.Records)))
	for i := range l.Records {
		rec := &l.Records[i]
		path := &paths[rec.Node]
		path.Attempts += int(rec.N)
		switch {
		case rec.Class == record.OK:
			r.OK += int(rec.N)
		case rec.Class == record.Delayed:
			r.Delayed++
		case rec.Class.Dropped():
			r.Dropped++
			path.Dropped++
			r.DroppedPerSecond[rec.Intended/time.Second]++
		}
		if took := time.Duration(rec.late) + time.Duration(rec.total)*time.Microsecond; !rec.bucket() && (rec.Class == record.OK || rec.Class == record.Delayed) {
			latencies = append(latencies, record.Weighted{Value: took, N: 1})
			slowest = max(slowest, took)
		}
	}
	r.Latency = Latency{P50: units.Seconds(record.QuantileOf(latencies, 0.5)), P99: units.Seconds(record.QuantileOf(latencies, 0.99)), Max: units.Seconds(slowest)}
	r.Slow = a.slowReport(l)
	for i := range paths {
		if paths[i].Node = a.Nodes[i]; paths[i].Attempts > 0 {
			r.Paths = append(r.Paths, paths[i])
		}
	}
	slices.SortFunc(r.Paths, func(x, y PathReport) int { return strings.Compare(x.Node, y.Node) })
	for _, o := range l.Outages {
		r.Outages = append(r.Outages, a.outageReport(o))
	}
	return r
}

func (a *Analysis) outageReport(o *Outage) OutageReport {
	r := OutageReport{From: units.Seconds(o.from), To: units.Seconds(o.to), LowerMs: units.MillisDown(o.lower), UpperMs: units.MillisUp(o.upper),
		Classes: map[string]int{}, Node: a.Nodes[o.node], Backend: a.Backends[o.backend()].Name, Fresh: a.freshBeside(o).report(),
		Pods: podReports(a.podsBeside(o))}
	for c, n := range o.classes {
		r.Classes[c.String()] = n
	}
	told := a.explained(o)
	r.Cause.Text, r.Cause.Ended, r.Cause.Kind = told.text(), told.ended(), a.kindText(o)
	r.Edges, r.Chosen = told.edges, a.chosenReport(o)
	if s := o.cause.suspect; s != nil {
		r.Cause.Event, r.Cause.AfterMs = s.event, units.Millis(o.cause.after)
	}
	return r
}

// Schema is the JSON Schema (2020-12) of report.json.
//
//go:embed schema.json
var Schema []byte

// WriteJSON writes report.json: indented, fields in their fixed order, keys of maps sorted, with a newline at the end.
func WriteJSON(w io.Writer, r *Report) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(r); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// Read reads a report.json of a version that this program knows.
func Read(file string) (*Report, error) {
	data, err := record.ReadFile(os.DirFS(filepath.Dir(file)), filepath.Base(file))
	if err != nil {
		return nil, fmt.Errorf("reading the report: %w", err)
	}
	return Parse(data, file)
}

// Parse reads a report.json of a version that this program knows; file is its name in errors.
func Parse(data []byte, file string) (*Report, error) {
	var r Report
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("reading the report %s: %w (`hitless report` makes it again from the history)", file, err)
	}
	if r.SchemaVersion != Version {
		return nil, fmt.Errorf("the report %s has version %d; this program reads version %d", file, r.SchemaVersion, Version)
	}
	return &r, nil
}
