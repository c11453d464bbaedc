package scenarios

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// A fault that is shorter than two intervals can be between attempts, and would make the run invalid by chance.
func TestEveryLaneCanSeeTheProofs(t *testing.T) {
	for _, rate := range []float64{0.1, proofRate, 25, 50, 99, 100, 400, 5000} {
		w := &World{Site: siteOf(nil, nil).Offer(OwnLoadBalancer), Rate: rate, Nodes: []string{"node-1", "node-2", "node-3"}, Params: Params{"lanes": "tcp-new,udp-fresh"}}
		gap := time.Duration(float64(time.Second) / w.canaryRate())
		for _, p := range w.proofs() {
			least := 2
			if p.node != "" {
				least = 12
			}
			if p.For < time.Duration(least)*gap-time.Microsecond {
				t.Errorf("at %g attempts a second, %s is less than %d gaps of %s", rate, p, least, gap)
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
		{"with datagrams", "tcp-new,udp-sticky", "passthrough", 100, []string{"drop for 20ms on canary", "drop for 200ms on canary", "refuse for 100ms on canary",
			"reset for 100ms on canary", "drop for 200ms on canary over node-1", "drop for 200ms on canary-udp", "misroute for 100ms on canary-misrouted"}},
		{"behind HAProxy", "tcp-new", "haproxy", 100, []string{"drop for 20ms on canary", "drop for 200ms on canary", "refuse for 100ms on canary",
			"reset for 100ms on canary", "misroute for 100ms on canary-misrouted"}},
	} {
		w := &World{Site: siteOf(nil, nil).Offer(OwnLoadBalancer), Rate: c.rate, Nodes: []string{"node-1"}, Params: Params{"lanes": c.lanes, "loadBalancer": c.balancer}}
		var got []string
		for _, p := range w.proofs() {
			got = append(got, p.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s proves\n%s\nwant\n%s", c.name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}
