//go:build netns

package bench

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/hitless/hitless/lab/topology"
)

// proxied is a table as kube-proxy 1.37 makes it, for one Service with two endpoints.
const proxied = `
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

func TestTheViewSeesWhatKubeProxyMade(t *testing.T) {
	ns, err := topology.NewNamespace("node")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	v, err := openNFTables(&topology.Node{Namespace: ns})
	if err != nil {
		t.Fatal(err)
	}
	defer v.close()
	service := &virtual{addr: netip.MustParseAddr("10.96.0.1"), reals: []netip.Addr{netip.MustParseAddr("10.128.0.1"), netip.MustParseAddr("10.128.0.2")}}
	look := func(step string, want bool) {
		t.Helper()
		if changed, err := v.changed(); err != nil || !changed {
			t.Errorf("%s: changed is %v, %v", step, changed, err)
		}
		if has, err := v.has(service); err != nil || has != want {
			t.Errorf("%s: it is there: %v, %v", step, has, err)
		}
		if changed, err := v.changed(); err != nil || changed {
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
	look("nothing", false)
	nft(proxied)
	look("the Service", true)
	nft("flush chain ip kube-proxy service-A; add rule ip kube-proxy service-A meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.128.0.1 . 8080, 1 : 10.128.0.3 . 8080 }")
	look("another endpoint", false)
}
