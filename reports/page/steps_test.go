package page

import "testing"

// A step is a sentence, but for a command at its end: who copies it would copy the full stop.
func TestCommandsHaveNoFullStop(t *testing.T) {
	for step, want := range map[string]string{
		"See the tables: hitless run rollout --set 'a=b' --stop-at 32.795s":                "See the tables: <code>hitless run rollout --set &#39;a=b&#39; --stop-at 32.795s</code>",
		"See the tables: replay history/timeline with --stop-at 32.795s":                   "See the tables: replay history/timeline with <code>--stop-at 32.795s</code>",
		"Read what the proxy did: logs/proxy-node-1.log":                                   "Read what the proxy did: logs/proxy-node-1.log.",
		"Fixed in kube-proxy v1.26 (KEP-1669; k8s-85643 in docs/museum.md)":                `Fixed in kube-proxy v1.26 (KEP-1669; <a href="https://github.com/kubernetes/kubernetes/issues/85643">k8s-85643</a> in docs/museum.md).`,
		"Run it again: partial results of <hitless> say nothing about the rest of the run": "Run it again: partial results of &lt;hitless&gt; say nothing about the rest of the run.",
	} {
		if got := string(stepped(step)); got != want {
			t.Errorf("%s\n got %s\nwant %s", step, got, want)
		}
	}
}
