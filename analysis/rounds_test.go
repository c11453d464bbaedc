package analysis

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// kindOfFault is what a proof of these tests injects: each fault for 100 ms, with what it does to attempts.
type kindOfFault struct {
	fault    record.ProofFault
	at       time.Duration // in the proof
	tcp, udp record.Class
}

const proofFor = 4 * time.Second

var kindsOfFaults = []kindOfFault{
	{record.ProofDrop, 500 * time.Millisecond, record.Delayed, record.ReplyTimeout},
	{record.ProofRefuse, 1200 * time.Millisecond, record.Refused, record.Rejected},
	{record.ProofReset, 1900 * time.Millisecond, record.Reset, 0},
	{record.ProofDropOnNode, 2600 * time.Millisecond, record.Delayed, record.ReplyTimeout},
	{record.ProofMisroute, 3300 * time.Millisecond, record.Misrouted, record.Misrouted},
}

// proving is a record in the making with proofs of kinds of lanes.
type proving struct {
	*recordtest.Lab
	kinds []string
	last  uint16 // lane
}

// proof is a proof from an instant on, with a control lane of new connections and one of each kind. Lanes of a kind in blind meet no fault
// of the given kind.
func (p *proving) proof(number int, from time.Duration, blind map[string]record.ProofFault) {
	tell := func(at time.Duration, state string) {
		p.Event(at, record.KindProof, "", "proof", "proof "+state, "state", state, "number", strconv.Itoa(number), "kinds", strings.Join(p.kinds, ","))
	}
	tell(from, "begin")
	kinds := slices.Compact(append([]string{record.ProtocolNew}, p.kinds...))
	if slices.Contains(kinds, record.ProtocolSticky) {
		kinds = slices.Insert(kinds, 1, record.ProtocolFresh)
	}
	for i, kind := range kinds {
		p.last++
		name := fmt.Sprintf("canary-%s-%d", kind, number)
		for _, f := range kindsOfFaults {
			class := f.tcp
			if strings.HasPrefix(kind, "udp") {
				class = f.udp
			}
			p.inject(f, fmt.Sprintf("%d-%s-%s", number, f.fault, kind), name, kind, kinds[:i], from+f.at)
			if record.Sees(kind, f.fault) && blind[kind] != f.fault {
				fault := recordtest.Fault{Lane: p.last, From: from + f.at, To: from + f.at + 100*time.Millisecond, Class: class}
				if f.fault == record.ProofDropOnNode {
					fault.Node = "node-1"
				}
				p.Faults = append(p.Faults, fault)
			}
		}
		p.Probe(recordtest.Lane{ID: p.last, Name: name, Target: recordtest.CanaryAddress, Rate: 100, From: from + 3*time.Millisecond, To: from + proofFor,
			Control: true, Protocol: kind})
	}
	tell(from+proofFor, "end")
}

// inject tells of a fault on the path of the canary once for each transport, and of wrong answers for each lane.
func (p *proving) inject(f kindOfFault, id, lane, kind string, told []string, at time.Duration) {
	udp := func(kind string) bool { return strings.HasPrefix(kind, "udp") }
	attrs := []string{"fault", string(f.fault), "id", id, "lane", lane, "control", "true"}
	node := ""
	switch {
	case f.fault == record.ProofMisroute && !record.Sees(kind, f.fault):
		return
	case f.fault == record.ProofMisroute:
	case slices.ContainsFunc(told, func(k string) bool { return udp(k) == udp(kind) }), udp(kind) && f.fault == record.ProofReset:
		return
	default:
		attrs = append(attrs, "target", recordtest.CanaryAddress.String())
	}
	if f.fault == record.ProofDropOnNode {
		node, attrs[1] = "node-1", string(record.ProofDrop)
	}
	for state, edge := range map[string]time.Duration{"begin": at, "end": at + 100*time.Millisecond} {
		p.Event(edge, record.KindFault, node, id, id+" "+state, append(slices.Clone(attrs), "state", state)...)
	}
}

// newProving is a rollout that measures lanes of these kinds, without a proof yet, and with the given losses of its lane of new connections.
func newProving(losses []time.Duration, kinds ...string) *proving {
	o := recordtest.Rollout{Seed: 11, Fallback: true, Rollouts: 3, NoProof: true}
	p := &proving{Lab: o.Lab(), kinds: kinds, last: 20}
	for _, e := range slices.Clone(p.Events) { // the load balancer forwards UDP too
		if e.Kind == record.KindMembership {
			attrs := map[string]string{"protocol": "udp"}
			for k, v := range e.Attrs {
				if k != "protocol" {
					attrs[k] = v
				}
			}
			e.Attrs = attrs
			p.Events = append(p.Events, e)
		}
	}
	for _, at := range losses {
		p.Faults = append(p.Faults, recordtest.Fault{Lane: 10, From: at, To: at + 300*time.Millisecond, Class: record.ConnectTimeout})
	}
	for i, kind := range kinds {
		p.Probe(recordtest.Lane{ID: 10 + uint16(i), Name: kind, Target: recordtest.WebAddress, Rate: 100, From: recordtest.BaselineAt + 3*time.Millisecond, To: o.EndAt(), Protocol: kind})
	}
	return p
}

// Each kind of lane must see each fault that it can see. Where a single one is not found, the run is invalid, and the reason names both.
func TestEachKindOfLaneIsProved(t *testing.T) {
	for _, k := range record.LaneKinds() {
		kind := k.Protocol
		p := newProving(nil, kind)
		p.proof(1, recordtest.ProofAt, nil)
		r := reportOf(t, p.Lab)
		if r.Verdict != Pass {
			t.Errorf("lanes of kind %s: %s %q", kind, r.Verdict, r.Reasons)
		}
		for _, f := range record.ProofFaults() {
			p := newProving(nil, kind)
			p.proof(1, recordtest.ProofAt, map[string]record.ProofFault{kind: f})
			r := reportOf(t, p.Lab)
			want, fault := Pass, strings.TrimSuffix(string(f), " on one node")
			if record.Sees(kind, f) {
				want = Invalid
			}
			told := slices.ContainsFunc(r.Reasons, func(s string) bool {
				return strings.Contains(s, "the injected "+fault+" of 100 ms") && strings.Contains(s, "lanes of kind "+kind+" did not see it")
			})
			if r.Verdict != want || told != (want == Invalid) {
				t.Errorf("%s without the %s: %s %q, want %s", kind, f, r.Verdict, r.Reasons, want)
			}
		}
	}
}

// The one flow of a lane may go over the node of a fault, or over another: neither makes the run invalid. The same loss without a fault does.
func TestAFlowMayMeetTheFaultOfItsNode(t *testing.T) {
	for _, c := range []struct {
		at    time.Duration // in the proof
		alarm bool
	}{{2600 * time.Millisecond, false}, {2800 * time.Millisecond, true}} {
		p := newProving(nil, record.ProtocolSticky)
		sticky := p.last + 3 // after those of new connections and new flows
		from := recordtest.ProofAt + c.at
		for _, node := range recordtest.NodeNames { // wherever it goes
			p.Faults = append(p.Faults, recordtest.Fault{Lane: sticky, Node: node, From: from, To: from + 100*time.Millisecond, Class: record.ReplyTimeout})
		}
		p.proof(1, recordtest.ProofAt, nil)
		var path string
		for _, a := range p.Attempts {
			if a.Lane == sticky && a.Class == record.OK {
				path = a.Node
			}
		}
		for i := range p.Events { // the fault is on that node
			if e := &p.Events[i]; e.Kind == record.KindFault && e.Node != "" && strings.Contains(e.Object, "udp") {
				e.Node = path
			}
		}
		r := reportOf(t, p.Lab)
		if alarm := strings.Contains(strings.Join(r.Reasons, "\n"), "a false alarm: control lane canary-udp-sticky"); alarm != c.alarm {
			t.Errorf("a loss %s after the begin of the proof is a false alarm: %t, want %t: %q", c.at, alarm, c.alarm, r.Reasons)
		}
	}
}

// A kind of lane that a run measures and does not prove makes it invalid. A record of a program that did not prove each kind is as good as
// it was.
func TestAKindWithoutAControlLaneIsInvalid(t *testing.T) {
	for _, kind := range []string{record.ProtocolLong, record.ProtocolReuse, record.ProtocolFresh, record.ProtocolSticky, record.ProtocolDial} {
		p := newProving(nil, record.ProtocolNew)
		p.Probe(recordtest.Lane{ID: 15, Name: kind, Target: recordtest.WebAddress, Rate: 100, From: recordtest.BaselineAt + 3*time.Millisecond, To: 120 * time.Second, Protocol: kind})
		p.proof(1, recordtest.ProofAt, nil)
		r := reportOf(t, p.Lab)
		if r.Verdict != Invalid || !strings.Contains(strings.Join(r.Reasons, "\n"), "had no control lane of kind "+kind) {
			t.Errorf("%s: %s %q", kind, r.Verdict, r.Reasons)
		}
		p.Events = slices.DeleteFunc(p.Events, func(e recordtest.Event) bool { return e.Kind == record.KindProof })
		if r := reportOf(t, p.Lab); r.Verdict != Pass {
			t.Errorf("an older record with %s: %s %q", kind, r.Verdict, r.Reasons)
		}
	}
}

// The floor is that of the kind whose shortest fault is the longest.
func TestTheFloorIsThatOfTheWorstKind(t *testing.T) {
	p := newProving(nil, record.ProtocolNew, record.ProtocolLong)
	p.proof(1, recordtest.ProofAt, nil)
	for i := range p.Events { // new connections also find a fault of 20 ms
		if e := &p.Events[i]; e.Kind == record.KindFault && e.Attrs["fault"] == "refuse" && e.Attrs["state"] == "end" {
			e.At -= 80 * time.Millisecond
		}
	}
	for i := range p.Attempts {
		a := &p.Attempts[i]
		if a.Class == record.Refused && a.Intended > recordtest.ProofAt+1220*time.Millisecond {
			a.Class = record.OK
		}
	}
	r := reportOf(t, p.Lab)
	if r.Verdict != Pass || r.DetectionFloor.Ms == nil || *r.DetectionFloor.Ms != 100 {
		t.Errorf("%s %q with the floor %v, want the 100 ms of tcp-long", r.Verdict, r.Reasons, r.FloorText())
	}
}

// A later proof that is not good ends what the run has measured: losses before it count, and later ones say nothing.
func TestALaterProofThatFailsInvalidatesWhatFollows(t *testing.T) {
	const (
		second = 45 * time.Second
		third  = 80 * time.Second
	)
	blind := map[string]record.ProofFault{record.ProtocolNew: record.ProofRefuse}
	unmade := func(p *proving, number int, at time.Duration) {
		p.Event(at, record.KindProof, "", "proof", "the canary did not answer", "state", string(record.ProofUnmade), "number", strconv.Itoa(number), "kinds", "tcp-new")
	}
	for _, c := range []struct {
		name   string
		losses []time.Duration
		proofs func(p *proving)
		want   Verdict
		until  time.Duration // of the last good proof
	}{
		{"all proofs are good", nil, func(p *proving) { p.proof(2, second, nil); p.proof(3, third, nil) }, Pass, third},
		{"the second misses a fault", nil, func(p *proving) { p.proof(2, second, blind); p.proof(3, third, nil) }, Invalid, recordtest.ProofAt},
		{"the third misses a fault", nil, func(p *proving) { p.proof(2, second, nil); p.proof(3, third, blind) }, Invalid, second},
		{"the third misses a fault after a loss that was proved", []time.Duration{30 * time.Second}, func(p *proving) { p.proof(2, second, nil); p.proof(3, third, blind) }, Fail, second},
		{"the third misses a fault after a loss that was not proved", []time.Duration{60 * time.Second}, func(p *proving) { p.proof(2, second, nil); p.proof(3, third, blind) }, Invalid, second},
		{"a loss after good proofs", []time.Duration{60 * time.Second}, func(p *proving) { p.proof(2, second, nil); p.proof(3, third, nil) }, Fail, third},
		{"the subject fails while the third misses a fault", []time.Duration{third + time.Second}, func(p *proving) { p.proof(2, second, nil); p.proof(3, third, blind) }, Fail, second},
		{"the third cannot be made", nil, func(p *proving) { p.proof(2, second, nil); unmade(p, 3, third) }, Invalid, second},
		{"the third cannot be made after a loss", []time.Duration{60 * time.Second}, func(p *proving) { p.proof(2, second, nil); unmade(p, 3, third) }, Fail, second},
	} {
		p := newProving(c.losses, record.ProtocolNew)
		p.proof(1, recordtest.ProofAt, nil)
		c.proofs(p)
		r := reportOf(t, p.Lab)
		until := (c.until + proofFor).Seconds()
		if r.Verdict != c.want || r.DetectionFloor.Proofs != 3 || r.DetectionFloor.ProvedUntil == nil || *r.DetectionFloor.ProvedUntil != until {
			t.Errorf("%s: %s %q with %+v, want %s, proved until %v s", c.name, r.Verdict, r.Reasons, r.DetectionFloor, c.want, until)
		}
		told := strings.Contains(strings.Join(r.Reasons, "\n"), fmt.Sprintf("the detector is proved until +%.3f s", until))
		if want := c.until != third; told != want {
			t.Errorf("%s: the reasons tell until when the detector is proved: %t, want %t: %q", c.name, told, want, r.Reasons)
		}
		if text := fmt.Sprintf("in 3 proofs, proved until +%.3f s", until); !strings.Contains(r.ProofText(), text) {
			t.Errorf("%s: the self-test is told as %q, which lacks %q", c.name, r.ProofText(), text)
		}
	}
}

// After a reset a lane that keeps its connection stays on another node, and fails on the first one only in the next reset. That is two
// outages, and no false alarm. A loss between them is one.
func TestALaneThatKeepsItsConnectionSeesEachReset(t *testing.T) {
	for _, alarm := range []bool{false, true} {
		p := newProving(nil, record.ProtocolReuse)
		reuse := p.last + 2
		again := kindOfFault{record.ProofReset, 3700 * time.Millisecond, record.Reset, 0}
		p.inject(again, "again", "canary-tcp-new-1", record.ProtocolNew, nil, recordtest.ProofAt+again.at)
		for _, lane := range []uint16{reuse - 1, reuse} {
			p.Faults = append(p.Faults, recordtest.Fault{Lane: lane, From: recordtest.ProofAt + again.at, To: recordtest.ProofAt + again.at + 100*time.Millisecond, Class: record.Reset})
		}
		if alarm {
			p.Faults = append(p.Faults, recordtest.Fault{Lane: reuse, From: recordtest.ProofAt + 2500*time.Millisecond, To: recordtest.ProofAt + 2600*time.Millisecond, Class: record.Reset})
		}
		p.proof(1, recordtest.ProofAt, nil)
		var kept *record.Attempt
		for i := range p.Attempts {
			if a := &p.Attempts[i]; a.Lane == reuse && a.Class == record.OK {
				if kept == nil {
					kept = a
				}
				a.Source, a.Backend, a.Node = kept.Source, kept.Backend, kept.Node
			}
		}
		r := reportOf(t, p.Lab)
		if told := strings.Contains(strings.Join(r.Reasons, "\n"), "a false alarm"); told != alarm || (r.Verdict == Pass) == alarm {
			t.Errorf("a control lane with a loss besides the injected faults: %t; verdict %s %q", alarm, r.Verdict, r.Reasons)
		}
	}
}

// The run records the begin and the end of a lane of wrong answers a few milliseconds late. At a high rate that is several intervals, and
// makes the fault neither missed nor a false alarm. A lane that lasts longer than its fault has a false alarm.
func TestALaneOfWrongAnswersKnowsItsTimes(t *testing.T) {
	for _, c := range []struct {
		longer time.Duration
		found  bool
	}{{0, true}, {60 * time.Millisecond, false}} {
		p := newProving(nil, record.ProtocolNew)
		from, to := recordtest.ProofAt+4500*time.Millisecond, recordtest.ProofAt+4600*time.Millisecond
		p.proof(1, recordtest.ProofAt+200*time.Millisecond, nil)
		p.Faults = append(p.Faults, recordtest.Fault{Lane: 60, From: 0, To: time.Hour, Class: record.Misrouted})
		p.Late = func() time.Duration { return 0 }
		p.Probe(recordtest.Lane{ID: 60, Name: "wrong", Target: recordtest.WebAddress, Rate: 1000, From: from, To: to + c.longer, Control: true})
		for state, at := range map[string]time.Duration{"begin": from + 3*time.Millisecond, "end": to - 3*time.Millisecond} {
			p.Event(at, record.KindFault, "", "wrong", "wrong "+state, "fault", "misroute", "id", "wrong", "lane", "wrong", "control", "true", "state", state)
		}
		r := reportOf(t, p.Lab)
		i := slices.IndexFunc(r.DetectionFloor.Faults, func(f KnownFault) bool { return f.Lane == "wrong" })
		if i < 0 || r.DetectionFloor.Faults[i].Found != c.found || (r.Verdict == Pass) != c.found {
			t.Errorf("a lane that lasts %s longer: %s %q", c.longer, r.Verdict, r.Reasons)
		}
	}
}
