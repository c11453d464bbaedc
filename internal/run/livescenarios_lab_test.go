//go:build lab && nightly

package run_test

import (
	"strings"
	"testing"

	"github.com/hitless/hitless/analysis"
)

// byTheAPI has the scenarios that need only the API, as short as possible, with their verdicts and the cause of most losses, empty if nothing is
// lost. kube-proxy v1.25.3 is the red twin that drops connections when the only pod of a node terminates. What scale drops while there is no
// pod is excused. A live cluster needs permission for a drain, and the node's name.
var byTheAPI = []struct {
	scenario, outside, subject string
	verdict                    analysis.Verdict
	cause                      string
}{
	{"rollout --set rollouts=1", "", "kube-proxy@v1.25.3/iptables", analysis.Fail, "pod terminating"},
	{"drain --set off=20s --set trafficPolicy=Local", "--allow-disruption --set node=node-2", "kube-proxy@v1.25.3/iptables", analysis.Fail, "pod terminating"},
	{"scale --set away=10s", "", "kube-proxy@v1.25.3/iptables", analysis.Fail, "pod terminating"},
	{"quiet", "", "kube-proxy@v1.26.0/iptables", analysis.Pass, ""},
	{"rollout --set rollouts=1", "", "kube-proxy@v1.26.0/iptables", analysis.Pass, ""},
	{"drain --set off=20s --set trafficPolicy=Local", "--allow-disruption --set node=node-2", "kube-proxy@v1.26.0/iptables", analysis.Pass, ""},
	{"flap --set watch=10s", "", "kube-proxy@v1.26.0/iptables", analysis.Pass, ""},
	{"policy --set between=5s", "", "kube-proxy@v1.26.0/iptables", analysis.Pass, ""},
	{"scale --set away=10s", "", "kube-proxy@v1.26.0/iptables", analysis.Pass, "pod unready"},
}

// Each scenario that needs only the API has the same verdict and cause as a live cluster, with only the lab's kubeconfig, and in a lab.
// The real clock needs an idle machine: an invalid run fails the test.
func TestNightlyLiveVerdictsEqualLabVerdicts(t *testing.T) {
	for _, s := range byTheAPI {
		t.Run(strings.Fields(s.scenario)[0]+" "+s.subject, func(t *testing.T) {
			inside, _ := judged(t, s.scenario+" --kernel host --clock real --subject "+s.subject)
			kubeconfig := labUp(t, s.subject)
			outside, _ := judged(t, s.scenario+" "+s.outside+" --kubeconfig "+kubeconfig, "lab", "shell", "--kubeconfig", kubeconfig, "--", program)
			for where, r := range map[string]*analysis.Report{"outside": outside, "inside": inside} {
				t.Logf("%s: %s, mostly by %q: %s", where, r.Verdict, mostlyBy(r), r.Sentence())
				if r.Verdict != s.verdict || mostlyBy(r) != s.cause {
					t.Errorf("%s: %s, mostly by %q; want %s, mostly by %q: %s", where, r.Verdict, mostlyBy(r), s.verdict, s.cause, strings.Join(r.Reasons, "; "))
				}
			}
		})
	}
}

// mostlyBy returns the event that causes most failed connections. On a live cluster attempts over other nodes split an outage. The API
// reports only that the pod of an exited process is unready.
func mostlyBy(r *analysis.Report) (most string) {
	failed := map[string]int{}
	for _, l := range r.Lanes {
		for _, o := range l.Outages {
			event := strings.Replace(o.Cause.Event, "pod exited", "pod unready", 1)
			failed[event] += o.Failed()
			if failed[event] > failed[most] {
				most = event
			}
		}
	}
	return most
}
