package observers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// A pod of a DaemonSet has no node until the scheduler has bound it. Its proxy starts then, so that each event of a proxy has a node.
func TestProxyOfAPodStartsWhenItHasANode(t *testing.T) {
	created, placed, ready := &corev1.Pod{}, &corev1.Pod{}, &corev1.Pod{}
	placed.Spec.NodeName, ready.Spec.NodeName = "node-2", "node-2"
	ready.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	for name, versions := range map[string][]*corev1.Pod{"one version after the other": {nil, created, placed, ready}, "bound when it is seen": {nil, placed, ready}, "ready when it is seen": {nil, ready}} {
		var got []string
		for i, after := range versions[1:] {
			for _, state := range podChanges(versions[i], after) {
				proxy, is := proxyStates[state]
				if !is {
					continue
				}
				if got = append(got, string(proxy)); after.Spec.NodeName == "" {
					t.Errorf("%s: the proxy is %s without a node", name, proxy)
				}
			}
		}
		if diff := cmp.Diff([]string{"started", "ready"}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
