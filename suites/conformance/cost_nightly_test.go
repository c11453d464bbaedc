//go:build lab && nightly

package conformance

import "testing"

// costSpecs selects the specs of costs, whose run with 2,000 Services takes minutes.
var costSpecs = focus("cost of a change, .*")

func TestNightlyTheBundledProxierWritesWhatHasChanged(t *testing.T) {
	expectFailures(t, examined(t, 0, "bundled", costSpecs), func(Spec) bool { return false })
}

// The red twin: kube-proxy v1.25.3 in mode iptables writes all Services with each change.
func TestNightlyAProxyThatWritesAllServicesIsRed(t *testing.T) {
	expectFailures(t, examined(t, 1, "kube-proxy@v1.25.3/iptables", costSpecs), func(Spec) bool { return true })
}
