//go:build linux

package subject

import "testing"

// Only the chains of the proxy are emptied and restored, each in its table.
func TestProxyChains(t *testing.T) {
	const rules = `# Generated
*filter
:INPUT ACCEPT [7:420]
:KUBE-FIREWALL - [0:0]
:KUBE-FORWARD - [3:180]
-A INPUT -j KUBE-FIREWALL
-A FORWARD -j KUBE-FORWARD
-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
COMMIT
*mangle
:INPUT ACCEPT [0:0]
COMMIT
*nat
:KUBE-SERVICES - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC-X
COMMIT
`
	empty, full := proxyChains(rules)
	if want := "*filter\n:KUBE-FORWARD - [0:0]\nCOMMIT\n*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n"; empty != want {
		t.Errorf("the chains are emptied by %q, want %q", empty, want)
	}
	if want := "*filter\n:KUBE-FORWARD - [0:0]\n-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP\nCOMMIT\n" +
		"*nat\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC-X\nCOMMIT\n"; full != want {
		t.Errorf("the chains are restored by %q, want %q", full, want)
	}
	if empty, full := proxyChains("*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n"); empty+full != "" {
		t.Errorf("without chains of a proxy: %q, %q", empty, full)
	}
}

// Each mode of kube-proxy can be flushed, and each data plane.
func TestEachModeCanBeFlushed(t *testing.T) {
	for _, s := range DataPlanes() {
		if flushes[s.Tables()] == nil {
			t.Errorf("the tables of %s cannot be emptied", s)
		}
	}
	for _, mode := range Modes() {
		if flushes[mode] == nil {
			t.Errorf("the tables of mode %s cannot be emptied", mode)
		}
	}
}
