//go:build lab && nightly

package conformance

import "testing"

// The red twin of the specs of costs: kube-proxy v1.25.3 in mode iptables writes all Services with each change.
func TestNightlyAProxyThatWritesAllServicesIsRed(t *testing.T) {
	r := examined(t, 1, "kube-proxy@v1.25.3/iptables", focus("cost of a change, .*"))
	for _, name := range []string{"cost of a change, time", "cost of a change, CPU"} {
		if got := stateOfSpec(t, r, name); got.State != Failed {
			t.Errorf("%s is %s, want %s: %v", name, got.State, Failed, got.Reasons)
		}
	}
}
