package balancer

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hitless/hitless/record"
	corev1 "k8s.io/api/core/v1"
)

func ofFamilies(families ...corev1.IPFamily) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.IPFamilies = families }
}

// In a dual-stack lab a Service has an address of each of its families, both in its status, each with a membership of its own.
func TestAddressesOfBothFamilies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startIn(t, record.DualStack, false, append(nodeObjects(1), lb("web", ofFamilies("IPv4", "IPv6")))...)
		if got := w.address("web"); got != "203.0.113.10,2001:db8:203::a" {
			t.Errorf("web has %q", got)
		}
		w.create(lb("six", ofFamilies("IPv6")))
		w.create(lb("four"))
		for name, want := range map[string]string{"six": "2001:db8:203::b", "four": "203.0.113.11"} {
			if got := w.address(name); got != want {
				t.Errorf("%s has %q, want %q", name, got, want)
			}
		}
		w.recorder.reset()
		w.make("fd00:10::b", 503) // node-1 over IPv6
		w.until(60 * time.Second)
		w.expect("memberships", []string{"17500 2001:db8:203::a ", "17500 2001:db8:203::b "}, slices.Sorted(slices.Values(w.recorder.eventLines(record.KindMembership, "address", "nodes"))))
		w.create(lb("wish", ofFamilies("IPv4", "IPv6"), func(s *corev1.Service) { s.Spec.LoadBalancerIP = "203.0.113.20,2001:db8:203::20" }))
		if got := w.address("wish"); got != "203.0.113.20,2001:db8:203::20" {
			t.Errorf("wish has %q", got)
		}
		w.recorder.reset()
		w.remove("web")
		w.expect("both addresses are withdrawn", []string{"60000 203.0.113.10 ", "60000 2001:db8:203::a "}, w.recorder.eventLines(record.KindMembership, "address", "all"))
	})
}
