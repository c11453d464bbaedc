package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/timeline"
	"github.com/hitless/hitless/scenarios/values"
)

// The names of the control lanes and the pauses after faults. The lane canary-misrouted expects the canary's pods at the measured
// Service, so that each answer is misrouted.
const (
	canaryName     = "canary" // of its Deployment and Service, and of its lane of new connections
	misroutedName  = "misrouted"
	pauseAfterDrop = 2500 * time.Millisecond
	rest           = time.Second
)

// usualShortest is the length of the shortest drop of a run whose rate allows it. fastShortest is the same of a fast run.
const (
	usualShortest = 20 * time.Millisecond
	fastShortest  = 5 * time.Millisecond
)

// shortestFault is the length of a drop that is shorter than the usual ones; 0 for auto.
var shortestFault = newParameter("shortestFault", "auto", "length of the shortest fault that proves the detector, 1ms to 20ms, and at least two intervals of a lane; "+
	"auto: 20ms, and 5ms from 400 attempts per second on", func(text string) (time.Duration, error) {
	if text == "auto" {
		return 0, nil
	}
	d, err := values.Duration(time.Millisecond, usualShortest)(text)
	if err != nil {
		err = fmt.Errorf("%w, or auto", err)
	}
	return d, err
})

// proof is a known fault that a run must find on the control lanes that can see it.
type proof struct {
	kind     record.ProofFault
	For      time.Duration
	protocol string // of the lane that it is told for; tcp-new when empty
	node     string // the only node that it is on; empty for all

	family record.Family // of the lane
	number int           // of the proof in the run
}

// proofStep is faults that begin together.
type proofStep []proof

// proofs are the known faults of a proof with this number in the run, for each family in turn. None is shorter than two intervals of the
// canary, or it could fall between attempts; one on a single node lasts twelve intervals, because a node gets an attempt at least every five.
func (w *World) proofs(number int) []proofStep {
	var all []proofStep
	for _, f := range w.families() {
		for _, step := range w.proofsOnce() {
			for i := range step {
				step[i].family, step[i].number = f, number
			}
			all = append(all, step)
		}
	}
	return all
}

// proofsOnce are the known faults of one family. Faults for the additional kinds of lanes are beside those for new connections, so that
// a proof takes no longer with them.
func (w *World) proofsOnce() []proofStep {
	lasting := func(d time.Duration, gaps int) time.Duration { return max(d, time.Duration(gaps)*w.canaryInterval()) }
	var all []proofStep
	add := func(p proof) { all = append(all, proofStep{p}) }
	both := func(p proof) { // over TCP and, where the run uses it, over UDP
		step := proofStep{p}
		if w.speaksUDP() {
			p.protocol = record.ProtocolFresh
			step = append(step, p)
		}
		all = append(all, step)
	}
	usual := lasting(usualShortest, 2)
	if shortest := w.shortest(); shortest < usual {
		both(proof{kind: record.ProofDrop, For: shortest})
	}
	both(proof{kind: record.ProofDrop, For: usual})
	add(proof{kind: record.ProofDrop, For: lasting(200*time.Millisecond, 2)})
	if w.balancerKnown() {
		both(proof{kind: record.ProofRefuse, For: lasting(100*time.Millisecond, 2)})
		add(proof{kind: record.ProofReset, For: lasting(100*time.Millisecond, 2)})
	}
	if !w.terminated() && w.balancerKnown() { // HAProxy chooses nodes itself, so that no fault can be on a single one
		both(proof{kind: record.ProofDrop, For: lasting(200*time.Millisecond, 12), node: w.Nodes[0]})
	}
	if w.speaksUDP() {
		add(proof{kind: record.ProofDrop, For: lasting(200*time.Millisecond, 2), protocol: record.ProtocolFresh})
	}
	return append(all, w.misroutes(lasting(100*time.Millisecond, 4)))
}

// misroutes are wrong answers for each kind of lane that reads answers. Beside them is the shortest fault for kinds that see no drop:
// the canary's own lanes are idle then.
func (w *World) misroutes(length time.Duration) (step proofStep) {
	short := false
	for _, kind := range w.provedKinds() {
		if record.Sees(kind, record.ProofMisroute) {
			step = append(step, proof{kind: record.ProofMisroute, For: length, protocol: kind})
		}
		short = short || !record.Sees(kind, record.ProofDrop) && record.Sees(kind, record.ProofReset)
	}
	if short && w.balancerKnown() {
		step = append(step, proof{kind: record.ProofReset, For: w.shortest()})
	}
	return step
}

// provedKinds are the protocols of the control lanes: new connections, and the others that the run measures.
func (w *World) provedKinds() []string {
	kinds := []string{record.ProtocolNew}
	for _, k := range w.measuredKinds() {
		if !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// measuredKinds are the protocols of the measured lanes, those of parameters and those of the scenario's own, in their fixed order.
func (w *World) measuredKinds() []string {
	return slices.DeleteFunc(timeline.Protocols(), func(p string) bool {
		return !slices.Contains(w.Params.laneNames(), p) && !slices.Contains(w.run.ownKinds, p)
	})
}

// shortest is the length of the shortest faults.
func (w *World) shortest() time.Duration {
	least := 2 * w.canaryInterval()
	switch d := shortestFault.Of(w.Params); {
	case d > 0:
		return d
	case least <= fastShortest:
		return fastShortest
	}
	return max(usualShortest, least)
}

// checkShortest refuses a fault that could fall between two attempts at the rate.
func (p Params) checkShortest(rate float64) error {
	rate = max(rate, proofRate)
	if d := shortestFault.Of(p); d > 0 && 2/rate > d.Seconds() {
		return fmt.Errorf("%s is shorter than two intervals of %g attempts per second, and could fall between two attempts; give %g attempts per second (--rate, of a soak "+
			"--probe-every), or a longer fault", p.given(shortestFault.Parameter), rate, 2/d.Seconds())
	}
	return nil
}

// rest is the pause after a step: a dropped SYN is sent again after one second.
func (s proofStep) rest() time.Duration {
	if slices.ContainsFunc(s, func(p proof) bool { return p.kind == record.ProofDrop }) {
		return pauseAfterDrop
	}
	return rest
}

// String names the first fault, and the lanes of the others that are like it.
func (s proofStep) String() string {
	first := s[0]
	lanes := []string{first.onLane()}
	var others []string
	for _, p := range s[1:] {
		if p.kind == first.kind && p.For == first.For {
			lanes = append(lanes, p.onLane())
		} else {
			others = append(others, fmt.Sprintf(", %s for %s on %s", p.kind, p.For, p.onLane()))
		}
	}
	text := fmt.Sprintf("%s for %s on %s", first.kind, first.For, strings.Join(lanes, " and "))
	if first.node != "" {
		text += " over " + first.node
	}
	return text + strings.Join(others, "")
}

// onLane is the name of the control lane that the fault is told for. A name is used once in a record.
func (p proof) onLane() string {
	return p.family.Named(controlName(p.protocol, p.kind == record.ProofMisroute, p.number))
}

// controlName is the name of the control lane of a protocol, or of the one with wrong answers, in a proof.
func controlName(protocol string, misrouted bool, number int) string {
	name := canaryName
	if misrouted {
		name += "-" + misroutedName
	}
	switch {
	case protocol == record.ProtocolFresh && !misrouted:
		name += "-udp"
	case protocol != "" && protocol != record.ProtocolNew:
		name += "-" + protocol
	}
	if number > 1 {
		name += fmt.Sprintf("-%d", number)
	}
	return name
}

// proofRate is the least rate of the canary: a slower lane could not find short faults. It is no higher, so that the
// canary is not harder to run than the measured lane.
const proofRate = 20

func (w *World) canaryRate() float64 { return max(w.Rate, proofRate) }

// canaryInterval is the time between two attempts of a control lane.
func (w *World) canaryInterval() time.Duration {
	return time.Duration(float64(time.Second) / w.canaryRate())
}
