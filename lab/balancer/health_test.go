package balancer

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

// Results are + and -. The expected state after each is U (up) or D (down); t marks a changed result, f a changed
// state.
func TestRiseAndFall(t *testing.T) {
	for _, c := range []struct {
		name, results, states, words string
		up                           bool
		fall, rise                   int
	}{
		{"starts down, one pass is enough", "+", "U", "tf", false, 3, 1},
		{"three failures in a row", "+---", "UUUD", "tf t . f", false, 3, 1},
		{"two failures are forgiven", "+--+--+", "UUUUUUU", "tf t . t t . t", false, 3, 1},
		{"back with one pass", "+---+", "UUUDU", "tf t . f tf", false, 3, 1},
		{"fall 1", "+-+-", "UDUD", "tf tf tf tf", false, 1, 1},
		{"rise 2", "+-++-", "DDDUU", "t t t f t", false, 2, 2},
		{"a node that never answered", "---", "DDD", "t . .", false, 3, 1},
		{"up from the start", "---", "UUD", "t . f", true, 3, 1},
	} {
		h := health{up: c.up}
		var states, words []string
		for _, r := range c.results {
			resultChanged, stateChanged := h.observe(r == '+', c.fall, c.rise)
			states = append(states, map[bool]string{true: "U", false: "D"}[h.up])
			word := strings.Repeat("t", btoi(resultChanged)) + strings.Repeat("f", btoi(stateChanged))
			words = append(words, or(word, "."))
		}
		if diff := cmp.Diff([]string{c.states, c.words}, []string{strings.Join(states, ""), strings.Join(words, " ")}); diff != "" {
			t.Errorf("%s: results %s (-want +got):\n%s", c.name, c.results, diff)
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestPhasesAreSpreadOverTheInterval(t *testing.T) {
	const interval = 5 * time.Second
	want := []time.Duration{2500 * time.Millisecond, 1250 * time.Millisecond, 3750 * time.Millisecond, 625 * time.Millisecond}
	for i, w := range want {
		if got := phase(i+1, interval); got != w {
			t.Errorf("node %d is checked at %s of the interval, want %s", i+1, got, w)
		}
	}
	for n := 1; n <= 200; n++ {
		for m := 1; m < n; m++ {
			if gap := (phase(n, interval) - phase(m, interval)).Abs(); gap < interval/512 {
				t.Fatalf("nodes %d and %d are checked %s apart", m, n, gap)
			}
		}
	}
}

func TestNextCheckIsInPhase(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		interval := time.Duration(rapid.Int64Range(1e6, 1e10).Draw(t, "interval"))
		ph := phase(rapid.IntRange(1, 200).Draw(t, "node"), interval)
		now := time.Duration(rapid.Int64Range(0, 1e14).Draw(t, "now"))
		at := after(now, ph, interval)
		if at <= now || at > max(now, ph)+interval || (at-ph)%interval != 0 {
			t.Fatalf("after %s the next check is at %s; phase %s of %s", now, at, ph, interval)
		}
	})
}

func TestCheckSpecFor(t *testing.T) {
	local := corev1.ServiceSpec{ExternalTrafficPolicy: "Local", HealthCheckNodePort: 31000,
		Ports: []corev1.ServicePort{{Protocol: "UDP", NodePort: 30001}, {NodePort: 30002}}}
	cluster := corev1.ServiceSpec{ExternalTrafficPolicy: "Cluster", Ports: local.Ports[:1]}
	healthz := checkSpec{target: "healthz", port: 10256, path: "/healthz"}
	special := checkSpec{target: "healthCheckNodePort", port: 31000, path: "/"}
	for _, c := range []struct {
		spec corev1.ServiceSpec
		wish string
		want checkSpec
	}{
		{local, TargetAuto, special}, {local, TargetHealthCheckNodePort, special}, {local, TargetHealthz, healthz},
		{local, TargetNodePort, checkSpec{target: "nodePort", port: 30002}},
		{cluster, TargetAuto, healthz}, {cluster, TargetHealthCheckNodePort, healthz}, {cluster, TargetNodePort, healthz},
	} {
		if got := checkSpecFor(&corev1.Service{Spec: c.spec}, c.wish, 10256); got != c.want {
			t.Errorf("policy %s, target %s: asked at %+v, want %+v", c.spec.ExternalTrafficPolicy, c.wish, got, c.want)
		}
	}
}
