package verify

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// Result is what a capture says about a run.
type Result struct {
	Run     Run           `json:"run"`
	Lanes   []*LaneResult `json:"lanes"`
	Skipped []SkippedLane `json:"skipped,omitempty"`
	Loop    *Loop         `json:"loop,omitempty"`
	// Conntrack is nil where the record has no lookups of verified attempts, Counters where the run kept none.
	Conntrack *Conntrack        `json:"conntrack,omitempty"`
	Counters  *Counters         `json:"counters,omitempty"`
	Findings  []Finding         `json:"findings"` // the first maxFindings
	More      int               `json:"more,omitempty"`
	Lost      map[string]uint64 `json:"lost,omitempty"`    // packets that the capture lost, by place
	Missing   []string          `json:"missing,omitempty"` // what the run should have and does not; set by the caller too

	captured bool            // packets were compared
	counted  record.Counters // of the packets
}

// Run identifies the run, with the report's totals of its measured lanes.
type Run struct {
	Command  string           `json:"command"`
	Verdict  analysis.Verdict `json:"verdict"`
	Attempts int              `json:"attempts"`
	Dropped  int              `json:"dropped"`
	Delayed  int              `json:"delayed"`
	// Failures are those of the measured lanes by kind. Older results do not have them.
	Failures      *[]analysis.Failures `json:"failures,omitempty"`
	InputsSha256  string               `json:"inputsSha256"`
	ProgramSha256 string               `json:"programSha256,omitempty"`
	Kernel        *record.Kernel       `json:"kernel,omitempty"`
	ControlPlane  string               `json:"controlPlane,omitempty"`
	// HistorySha256 and Made are set by the caller, who knows the folder of the run.
	HistorySha256 string       `json:"historySha256,omitempty"`
	Made          *record.Made `json:"made,omitempty"` // nil where the folder does not tell
}

// NewResult is the result of a run before anything was compared.
func NewResult(h *record.History, report *analysis.Report) *Result {
	return &Result{Run: runOf(h, report), Lanes: []*LaneResult{}, Findings: []Finding{}}
}

func runOf(h *record.History, r *analysis.Report) Run {
	failures := append([]analysis.Failures{}, r.Failures()...)
	return Run{Failures: &failures, Command: h.Run.Command, Verdict: r.Verdict, Attempts: r.Totals.Attempts, Dropped: r.Totals.Dropped, Delayed: r.Totals.Delayed,
		InputsSha256: h.Run.InputsSha256, ProgramSha256: h.Run.ProgramSha256, Kernel: &h.Run.Kernel, ControlPlane: h.Run.ControlPlane}
}

// maxFindings bounds the list of findings; the rest is counted.
const maxFindings = 100

// LaneResult compares a lane's attempts with its connections.
type LaneResult struct {
	Name      string                `json:"name"`
	Control   bool                  `json:"control,omitempty"` // of the self-test, and not measured
	Attempts  int                   `json:"attempts"`
	Record    map[string]int        `json:"record"`           // attempts by outcome, as the record has them
	Packets   map[string]int        `json:"packets"`          // as the packets have them
	Unstarted int                   `json:"unstarted"`        // without a connection, by a fault of the prober: class probe
	Undecided int                   `json:"undecided"`        // whose connection was open when the capture ended
	CutOff    int                   `json:"cutOff,omitempty"` // which the server ended after it had sent data: packets do not tell whether that was all
	Ties      int                   `json:"ties"`             // whose outcome or path the packets leave open: see docs/verify.md
	Unlocated int                   `json:"unlocated"`        // whose SYN passed no node's interface
	Paths     map[string]*PathCount `json:"paths"`            // by node, from the packets where they tell
}

// PathCount counts the attempts over a node.
type PathCount struct {
	Attempts int `json:"attempts"`
	Dropped  int `json:"dropped"`
}

// SkippedLane is a lane that packets cannot verify.
type SkippedLane struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// Kind is the kind of a disagreement.
type Kind string

// The kinds of disagreement.
const (
	NoPackets    Kind = "no packets"   // an attempt without a connection
	OtherOutcome Kind = "outcome"      // record and packets differ in how an attempt went
	OtherTime    Kind = "time"         // an attempt is charged to another time
	OtherPath    Kind = "path"         // an attempt went over another node
	Unrecorded   Kind = "not recorded" // a connection without an attempt
	OtherReport  Kind = "report"       // the report's numbers are not those of the packets
	OtherLoop    Kind = "loop"         // curl failed where the report has no outage
	OtherKernel  Kind = "kernel"       // connection tracking or counters differ from the packets
)

// Finding is a disagreement, with the evidence of both sides.
type Finding struct {
	Kind    Kind    `json:"kind"`
	Lane    string  `json:"lane,omitempty"` // empty for a request of curl, and for counters of the client
	Attempt *uint64 `json:"attempt,omitempty"`
	At      float64 `json:"at"` // seconds of the run; 0 for one about the whole lane
	Text    string  `json:"text"`
}

func (r *Result) add(f Finding) {
	if len(r.Findings) == maxFindings {
		r.More++
		return
	}
	r.Findings = append(r.Findings, f)
}

// Doubt is why the capture proves nothing; empty if it does.
func (r *Result) Doubt() string {
	for _, place := range slices.Sorted(maps.Keys(r.Lost)) {
		if n := r.Lost[place]; n > 0 {
			return fmt.Sprintf("the capture lost %s at %s: nothing is proved; repeat the run with a lower rate", units.Plural(int(n), "packet"), place)
		}
	}
	switch {
	case len(r.Missing) > 0:
		return "the folder of the run has no " + strings.Join(r.Missing, " and no ") + ": what it would show was not compared"
	case r.Loop != nil && r.Loop.Requests == 0:
		return "curl made no request: no lane was measured for a second"
	case (r.captured || r.Loop == nil) && !slices.ContainsFunc(r.Lanes, func(l *LaneResult) bool { return !l.Control }):
		return "packets can verify no measured lane of this run"
	}
	return ""
}

// Agrees reports whether record, report and packets agree in everything that was compared.
func (r *Result) Agrees() bool { return r.Doubt() == "" && len(r.Findings) == 0 }

func newLaneResult(l *lane) *LaneResult {
	return &LaneResult{Name: l.Name, Control: l.Control, Attempts: len(l.attempts), Record: map[string]int{}, Packets: map[string]int{}, Paths: map[string]*PathCount{}}
}

func (r *LaneResult) count(a *record.Attempt, s sight) {
	if o := outcomeOf(a.Class); o != "" {
		r.Record[string(o)]++
	}
	if s.outcome != "" {
		r.Packets[string(s.outcome)]++
	}
	p := r.Paths[s.node]
	if p == nil {
		p = &PathCount{}
		r.Paths[s.node] = p
	}
	p.Attempts++
	if s.dropped(a) {
		p.Dropped++
	}
}

// WriteText writes the result for a terminal.
func (r *Result) WriteText(w io.Writer) error {
	var b strings.Builder
	for _, l := range r.Lanes {
		l.writeText(&b)
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(&b, "lane %s: not verified, because %s\n", s.Name, s.Why)
	}
	if r.Conntrack != nil {
		r.Conntrack.writeText(&b)
	}
	if r.Counters != nil {
		r.Counters.writeText(&b)
	}
	if r.Loop != nil {
		r.Loop.writeText(&b)
	}
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "DISAGREEMENT (%s) %s: %s\n", f.Kind, f.place(), f.Text)
	}
	if r.More > 0 {
		fmt.Fprintf(&b, "and %s\n", units.Plural(r.More, "more disagreement"))
	}
	switch doubt := r.Doubt(); {
	case doubt != "":
		fmt.Fprintf(&b, "INCONCLUSIVE  %s\n", doubt)
	case len(r.Findings) > 0:
		fmt.Fprintf(&b, "DISAGREES  %s with the record and its report\n", units.Plural(len(r.Findings)+r.More, "disagreement"))
	default:
		b.WriteString("AGREES  " + strings.Join(r.agreed(), "; ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// agreed says what was compared.
func (r *Result) agreed() (texts []string) {
	if len(r.Lanes) > 0 {
		texts = append(texts, "packets, record and report have the same outcomes, seconds, paths and outages")
	}
	if r.Conntrack != nil || r.Counters != nil {
		texts = append(texts, "the kernels' own figures are those of the packets")
	}
	if r.Loop != nil {
		texts = append(texts, "each failure of curl lies in an outage of the report")
	}
	return texts
}

func (f Finding) place() string {
	switch {
	case f.Kind == OtherKernel && f.Lane == "":
		return "client"
	case f.Lane == "":
		return "request at " + units.At(f.At)
	case f.Attempt == nil:
		return "lane " + f.Lane
	}
	return fmt.Sprintf("lane %s, attempt %d at %s", f.Lane, *f.Attempt, units.At(f.At))
}

func (l *LaneResult) writeText(b *strings.Builder) {
	fmt.Fprintf(b, "lane %s: %s\n", l.Name, units.Plural(l.Attempts, "attempt"))
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "  outcome\trecord\tpackets\t\n")
	all := maps.Clone(l.Record)
	maps.Copy(all, l.Packets)
	for _, o := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(t, "  %s\t%s\t%s\t\n", o, units.Thousands(l.Record[o]), units.Thousands(l.Packets[o]))
	}
	_ = t.Flush() // a Builder does not fail
	for _, node := range slices.Sorted(maps.Keys(l.Paths)) {
		if node != "" {
			fmt.Fprintf(b, "  over %s: %s attempts, %s dropped\n", node, units.Thousands(l.Paths[node].Attempts), units.Thousands(l.Paths[node].Dropped))
		}
	}
	for _, note := range []struct {
		n    int
		text string
	}{{l.Unstarted, "had no connection, by a fault of the prober"}, {l.Undecided, "were open when the capture ended: the record's outcome counts"},
		{l.CutOff, "were ended by the server after it had sent data: the record's outcome counts"},
		{l.Ties, "ended within 20 ms of a deadline, or began while the load balancer's members changed: the record counts"},
		{l.Unlocated, "passed no node that was captured: the record's path counts"}} {
		if note.n > 0 {
			fmt.Fprintf(b, "  %s %s\n", units.Thousands(note.n), note.text)
		}
	}
}

// String lists the connection's packets.
func (c *connection) String() string {
	text := fmt.Sprintf("%s to %s, SYN at ", c.client, c.server)
	for i, t := range c.syns {
		if i > 0 {
			text += " and "
		}
		text += at(t)
	}
	for _, e := range []struct {
		what string
		at   time.Duration
	}{{"SYN-ACK", c.accepted}, {"RST in answer", c.refused}, {"ICMP error", c.icmpAt}, {"RST of the server", c.reset}, {"FIN of the server", c.finished}, {"end by the client", c.ended}} {
		if e.at != 0 {
			text += fmt.Sprintf(", %s at %s", e.what, at(e.at))
		}
	}
	if c.accepted != 0 {
		text += fmt.Sprintf(", %d bytes from the server", c.answer)
	}
	return text
}
