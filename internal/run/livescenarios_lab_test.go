//go:build lab && nightly

package run_test

import (
	"strings"
	"testing"

	"github.com/hitless/hitless/analysis"
)

// byTheAPI are the scenarios that need only the API, as short as they can be, and how each ends. kube-proxy v1.25.3 is the twin that loses
// connections when the only pod of a node terminates; scale loses them by any proxy while no pod is there. Who comes from outside has to allow
// a drain, and to name the node.
var byTheAPI = []struct {
	scenario, outside, subject string
	verdict                    analysis.Verdict
}{
	{"rollout --set rollouts=1", "", "kube-proxy@v1.25.3/iptables", analysis.Fail},
	{"drain --set off=20s --set trafficPolicy=Local", "--allow-disruption --set node=node-2", "kube-proxy@v1.25.3/iptables", analysis.Fail},
	{"scale --set away=10s", "", "kube-proxy@v1.25.3/iptables", analysis.Fail},
	{"quiet", "", "kube-proxy@v1.26.0/iptables", analysis.Pass},
	{"rollout --set rollouts=1", "", "kube-proxy@v1.26.0/iptables", analysis.Pass},
	{"drain --set off=20s --set trafficPolicy=Local", "--allow-disruption --set node=node-2", "kube-proxy@v1.26.0/iptables", analysis.Pass},
	{"flap --set watch=10s", "", "kube-proxy@v1.26.0/iptables", analysis.Pass},
	{"policy --set between=5s", "", "kube-proxy@v1.26.0/iptables", analysis.Pass},
	{"scale --set away=10s", "", "kube-proxy@v1.26.0/iptables", analysis.Fail},
}

// Every scenario that needs only the API comes to the same verdict from outside, in a process that has nothing of the lab but its kubeconfig,
// as inside, where the same proxy in a lab of its own is measured by the lab itself; and where connections are lost, allowed or not, both
// name the same cause. By the real clock, so nothing else may run beside it: a run that cannot be trusted is red here.
func TestInTheNightAStrangerJudgesEachScenarioAsAnInsiderDoes(t *testing.T) {
	for _, s := range byTheAPI {
		t.Run(strings.Fields(s.scenario)[0]+" "+s.subject, func(t *testing.T) {
			inside, _ := judged(t, s.scenario+" --kernel host --clock real --subject "+s.subject)
			kubeconfig := labUp(t, s.subject)
			outside, _ := judged(t, s.scenario+" "+s.outside+" --kubeconfig "+kubeconfig, "lab", "shell", "--kubeconfig", kubeconfig, "--", program)
			for where, r := range map[string]*analysis.Report{"outside": outside, "inside": inside} {
				t.Logf("%s: %s, mostly by %q: %s", where, r.Verdict, mostlyBy(r), r.Sentence())
				if r.Verdict != s.verdict {
					t.Errorf("%s: %s, want %s: %s", where, r.Verdict, s.verdict, strings.Join(r.Reasons, "; "))
				}
			}
			if mostlyBy(outside) != mostlyBy(inside) {
				t.Errorf("outside most losses come from %q, inside from %q", mostlyBy(outside), mostlyBy(inside))
			}
		})
	}
}

// mostlyBy is the event that most failed connections come from. From outside, where attempts of other nodes stand between those that fail, an
// outage is told in pieces. That a process exited only its node knows: the API tells that its pod is no longer ready.
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
