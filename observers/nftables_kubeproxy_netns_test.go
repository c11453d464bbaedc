//go:build netns

package observers

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"
)

// kubeProxyRules is the table of kube-proxy 1.37 for one Service with two endpoints.
const kubeProxyRules = `
table ip kube-proxy {
	map service-ips {
		type ipv4_addr . inet_proto . inet_service : verdict
	}
	chain service-A {
		meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.128.0.1 . 8080, 1 : 10.128.0.2 . 8080 }
	}
}
add element ip kube-proxy service-ips { 10.96.0.1 . tcp . 80 : goto service-A }
`

func TestServiceProbeReadsKubeProxyTable(t *testing.T) {
	ns := newNamespace(t)
	probe, err := NewServiceProbe("nftables", Node{Name: "node", Namespace: ns})
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Close()
	service := netip.MustParseAddrPort("10.96.0.1:80")
	backends := []netip.AddrPort{netip.MustParseAddrPort("10.128.0.1:8080"), netip.MustParseAddrPort("10.128.0.2:8080")}
	check := func(step string, want bool) {
		t.Helper()
		if changed, err := probe.Changed(); err != nil || !changed {
			t.Errorf("%s: changed is %v, %v", step, changed, err)
		}
		if serves, err := probe.Serves(service, backends); err != nil || serves != want {
			t.Errorf("%s: it is served: %v, %v", step, serves, err)
		}
		if changed, err := probe.Changed(); err != nil || changed {
			t.Errorf("%s: changed again is %v, %v", step, changed, err)
		}
	}
	nft := func(rules string) {
		t.Helper()
		err := ns.Do(func() error {
			c := exec.Command("nft", "-f", "-")
			c.Stdin = strings.NewReader(rules)
			out, err := c.CombinedOutput()
			t.Log(string(out))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	check("nothing", false)
	nft(kubeProxyRules)
	check("the Service", true)
	nft("flush chain ip kube-proxy service-A; add rule ip kube-proxy service-A meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.128.0.1 . 8080, 1 : 10.128.0.3 . 8080 }")
	check("another endpoint", false)
}
