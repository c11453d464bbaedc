package scenarios

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/timeline"
)

func proving(rate float64, set Params) *World {
	return &World{Site: siteOf(nil, nil).Offer(OwnLoadBalancer), Rate: rate, Nodes: []string{"node-1", "node-2", "node-3"}, Params: set}
}

// A fault that is shorter than two intervals can be between attempts, and would make the run invalid by chance.
func TestEveryLaneCanSeeTheProofs(t *testing.T) {
	for _, rate := range []float64{0.1, proofRate, 25, 50, 99, 100, 400, 5000} {
		w := proving(rate, Params{"lanes": strings.Join(timeline.Protocols(), ",")})
		for _, p := range slices.Concat(w.proofs(1)...) {
			least := 2
			if p.node != "" {
				least = 12
			}
			if p.For < time.Duration(least)*w.canaryInterval()-time.Microsecond {
				t.Errorf("at %g attempts a second, %s is less than %d gaps of %s", rate, proofStep{p}, least, w.canaryInterval())
			}
		}
	}
}

func TestEveryRunProvesItsDetector(t *testing.T) {
	for _, c := range []struct {
		name, lanes, balancer string
		rate                  float64
		want                  []string
	}{
		{"the default", "tcp-new", "passthrough", 100, []string{"drop for 20ms on canary", "drop for 200ms on canary", "refuse for 100ms on canary",
			"reset for 100ms on canary", "drop for 200ms on canary over node-1", "misroute for 100ms on canary-misrouted"}},
		{"a fast one", "tcp-new", "passthrough", 1000, []string{"drop for 5ms on canary", "drop for 20ms on canary", "drop for 200ms on canary",
			"refuse for 100ms on canary", "reset for 100ms on canary", "drop for 200ms on canary over node-1", "misroute for 100ms on canary-misrouted"}},
		{"with datagrams", "tcp-new,udp-sticky", "passthrough", 100, []string{"drop for 20ms on canary and canary-udp", "drop for 200ms on canary",
			"refuse for 100ms on canary and canary-udp", "reset for 100ms on canary", "drop for 200ms on canary and canary-udp over node-1",
			"drop for 200ms on canary-udp", "misroute for 100ms on canary-misrouted and canary-misrouted-udp-sticky"}},
		{"with open connections", "tcp-long,http-reuse", "passthrough", 100, []string{"drop for 20ms on canary", "drop for 200ms on canary", "refuse for 100ms on canary",
			"reset for 100ms on canary", "drop for 200ms on canary over node-1",
			"misroute for 100ms on canary-misrouted and canary-misrouted-tcp-long and canary-misrouted-http-reuse, reset for 20ms on canary"}},
		{"behind HAProxy", "tcp-new", "haproxy", 100, []string{"drop for 20ms on canary", "drop for 200ms on canary", "refuse for 100ms on canary",
			"reset for 100ms on canary", "misroute for 100ms on canary-misrouted"}},
	} {
		w := proving(c.rate, Params{"lanes": c.lanes, "loadBalancer": c.balancer})
		var got []string
		for _, step := range w.proofs(1) {
			got = append(got, step.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s proves\n%s\nwant\n%s", c.name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

// Each kind of lane that a run measures has a control lane of its own, and meets at least one fault there. A run without that kind has
// neither.
func TestEachMeasuredKindIsProved(t *testing.T) {
	for _, kind := range timeline.Protocols() {
		for _, lanes := range []string{kind, record.ProtocolNew} {
			w := worldOf("ipv4", lanes)
			w.Params["lanes"] = lanes
			of := func(l LaneSpec) bool { return l.Protocol == kind && l.Control }
			has := slices.ContainsFunc(slices.Concat(w.canaryLanes(1)...), of)
			if want := lanes == kind; has != want {
				t.Errorf("lanes=%s: a control lane of kind %s: %t, want %t", lanes, kind, has, want)
			}
			met := 0
			for _, p := range slices.Concat(w.proofs(1)...) {
				if record.Sees(kind, p.kind) {
					met++
				}
			}
			if lanes == kind && met == 0 {
				t.Errorf("no fault of a run with lanes=%s can be seen by %s", lanes, kind)
			}
		}
	}
}

// Control lanes of later proofs have other names, because a name is used once in a record.
func TestEachProofHasItsOwnLanes(t *testing.T) {
	seen := map[string]bool{}
	for number := 1; number <= 3; number++ {
		w := worldOf("dual", strings.Join(timeline.Protocols(), ","))
		for _, l := range slices.Concat(w.canaryLanes(number)...) {
			if seen[l.Name] {
				t.Errorf("proof %d starts the lane %s again", number, l.Name)
			}
			seen[l.Name] = true
		}
		for _, p := range slices.Concat(w.proofs(number)...) {
			if p.kind == record.ProofMisroute && seen[p.onLane()] {
				t.Errorf("proof %d starts the lane %s again", number, p.onLane())
			} else if p.kind == record.ProofMisroute {
				seen[p.onLane()] = true
			} else if !seen[p.onLane()] {
				t.Errorf("proof %d injects %s, whose lane does not run", number, proofStep{p})
			}
		}
	}
}

// More kinds of lanes have more faults, and their proof takes no longer.
func TestAProofTakesNoLongerWithMoreKinds(t *testing.T) {
	took := func(lanes string) (sum time.Duration) {
		for _, step := range proving(100, Params{"lanes": lanes}).proofs(1) {
			longest := time.Duration(0)
			for _, p := range step {
				longest = max(longest, p.For)
			}
			sum += longest + step.rest()
		}
		return sum
	}
	if one, more := took("tcp-new"), took("tcp-new,tcp-long,http-reuse"); one != more {
		t.Errorf("over TCP %s, with open connections %s", one, more)
	}
	if one, more := took("tcp-new,udp-fresh"), took(strings.Join(timeline.Protocols(), ",")); one != more {
		t.Errorf("with datagrams %s, with all kinds %s", one, more)
	}
}

// The shortest fault can be chosen as short as the rate allows; each kind of lane has a fault of that length.
func TestTheShortestFaultCanBeChosen(t *testing.T) {
	for _, c := range []struct {
		value string
		rate  float64
		want  time.Duration
	}{
		{"auto", 20, 100 * time.Millisecond}, {"auto", 100, 20 * time.Millisecond}, {"auto", 400, 5 * time.Millisecond},
		{"4ms", 500, 4 * time.Millisecond}, {"2ms", 1000, 2 * time.Millisecond}, {"20ms", 1000, 20 * time.Millisecond},
	} {
		p, err := quiet().Fill(map[string]string{"shortestFault": c.value, "lanes": "tcp-new,tcp-long"})
		if err != nil {
			t.Fatal(err)
		}
		shortest := map[record.ProofFault]time.Duration{}
		for _, f := range slices.Concat(proving(c.rate, p).proofs(1)...) {
			if d, has := shortest[f.kind]; !has || f.For < d {
				shortest[f.kind] = f.For
			}
		}
		if shortest[record.ProofDrop] != c.want || shortest[record.ProofReset] != c.want {
			t.Errorf("shortestFault=%s at %g attempts per second: the shortest faults are %v, want %s", c.value, c.rate, shortest, c.want)
		}
		if err := quiet().CheckRate(p, c.rate, 3); err != nil {
			t.Errorf("shortestFault=%s at %g attempts per second: %v", c.value, c.rate, err)
		}
	}
	p, err := quiet().Fill(map[string]string{"shortestFault": "4ms"})
	if err != nil {
		t.Fatal(err)
	}
	if err := quiet().CheckRate(p, 499, 3); err == nil || !strings.Contains(err.Error(), "give 500 attempts per second") {
		t.Errorf("a fault that could fall between two attempts: %v", err)
	}
	for _, bad := range []string{"0s", "21ms", "short"} {
		if _, err := quiet().Fill(map[string]string{"shortestFault": bad}); err == nil {
			t.Errorf("shortestFault=%s was accepted", bad)
		}
	}
}
