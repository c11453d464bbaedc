//go:build netns

package linux

import (
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// leftBehind are rules of an ended kube-proxy, a kubelet, a CNI plugin that uses a chain of kube-proxy for marks, and
// an administrator.
const leftBehind = `*nat
:KUBE-KUBELET-CANARY - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-BBBBBBBBBBBBBBBB - [0:0]
:CNI-HOSTPORT-SETMARK - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -s 10.9.0.0/16 -j MASQUERADE
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A CNI-HOSTPORT-SETMARK -j KUBE-MARK-MASQ
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully
-A KUBE-SEP-AAAAAAAAAAAAAAAA -s 10.244.1.1/32 -m comment --comment "shop/web" -j KUBE-MARK-MASQ
-A KUBE-SEP-AAAAAAAAAAAAAAAA -p tcp -m comment --comment "shop/web" -m tcp -j DNAT --to-destination 10.244.1.1:8080
-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m comment --comment "shop/web cluster IP" -m tcp --dport 80 -j KUBE-SVC-BBBBBBBBBBBBBBBB
-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-SVC-BBBBBBBBBBBBBBBB -m comment --comment "shop/web" -m statistic --mode random --probability 0.5 -j KUBE-SEP-AAAAAAAAAAAAAAAA
COMMIT
*filter
:KUBE-FIREWALL - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-SERVICES - [0:0]
-A INPUT -j KUBE-FIREWALL
-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A OUTPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-SERVICES -d 10.96.0.11/32 -p tcp -m comment --comment "shop/none has no endpoints" -m tcp --dport 80 -j REJECT
COMMIT
`

func iptables(t *testing.T, program, input string) string {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("no %s here; apt-get install iptables", program)
	}
	cmd := exec.Command(program)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", program, err, out)
	}
	return string(out)
}

// rules returns the rules and chains of iptables-save.
func rules(t *testing.T) (lines []string) {
	for line := range strings.Lines(iptables(t, "iptables-nft-save", "")) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "-A") || strings.HasPrefix(line, ":") && !strings.Contains(line, "ACCEPT") {
			lines = append(lines, line)
		}
	}
	return lines
}

func findKubeProxy(t *testing.T) *KubeProxy {
	t.Helper()
	p, err := FindKubeProxy()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// kube-proxy's iptables and nftables rules are removed, and all others stay.
func TestRemoveKubeProxyRules(t *testing.T) {
	inNamespace(t)
	if modes := findKubeProxy(t).Modes(); len(modes) != 0 {
		t.Errorf("found %v in an empty namespace", modes)
	}
	iptables(t, "iptables-nft-restore", leftBehind)
	if modes := findKubeProxy(t).Modes(); !slices.Equal(modes, []string{"iptables"}) {
		t.Errorf("found %v, want iptables", modes)
	}
	nft(t, "add", "table", "ip", "kube-proxy")
	nft(t, "add", "chain", "ip", "kube-proxy", "services", "{ type nat hook prerouting priority dstnat ; }")
	nft(t, "add", "table", "ip6", "kube-proxy")
	nft(t, "add", "table", "ip", "other")
	p := findKubeProxy(t)
	if modes := p.Modes(); !slices.Equal(modes, []string{"iptables", "nftables"}) || len(p.Chains) != 8 {
		t.Errorf("found %v with the chains %v", modes, p.Chains)
	}
	if diff := cmp.Diff([]string{"ip nat KUBE-MARK-MASQ"}, p.Kept); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	if err := p.RemoveRules(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		":KUBE-FIREWALL - [0:0]",
		"-A INPUT -j KUBE-FIREWALL",
		"-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT",
		`-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP`,
		":CNI-HOSTPORT-SETMARK - [0:0]",
		":KUBE-KUBELET-CANARY - [0:0]",
		":KUBE-MARK-MASQ - [0:0]",
		"-A POSTROUTING -s 10.9.0.0/16 -j MASQUERADE",
		"-A CNI-HOSTPORT-SETMARK -j KUBE-MARK-MASQ",
		"-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000",
	}
	got := rules(t)
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("remaining iptables rules (-want +got):\n%s", diff)
	}
	if tables := nft(t, "list", "tables"); strings.Contains(tables, "kube-proxy") || !strings.Contains(tables, "other") {
		t.Errorf("tables\n%s", tables)
	}
	if err := findKubeProxy(t).RemoveRules(); err != nil {
		t.Errorf("second RemoveRules: %v", err)
	}
}

// Each family has its own pass, so one served family does not imply the other.
func TestKubeProxyServesByFamily(t *testing.T) {
	inNamespace(t)
	first, second := netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00:10:96::a")
	want := func(mode string, addrs []netip.Addr, want bool) {
		t.Helper()
		if serves, err := findKubeProxy(t).Serves(mode, addrs); err != nil || serves != want {
			t.Errorf("kube-proxy in mode %s serves %v: %v, %v; want %v", mode, addrs, serves, err, want)
		}
	}
	both, one := []netip.Addr{first, second}, []netip.Addr{first}
	want("iptables", nil, false)
	for _, family := range []string{"ip", "ip6"} {
		nft(t, "add", "table", family, "nat")
		nft(t, "add", "chain", family, "nat", "KUBE-SERVICES")
		nft(t, "add", "table", family, "kube-proxy")
		nft(t, "add", "map", family, "kube-proxy", "service-ips", "{ type inet_service : verdict ; }")
	}
	want("iptables", one, false)
	want("nftables", one, false)
	nft(t, "add", "rule", "ip", "nat", "KUBE-SERVICES", "accept")
	nft(t, "add", "element", "ip", "kube-proxy", "service-ips", "{ 80 : accept }")
	for _, mode := range []string{"iptables", "nftables"} {
		want(mode, nil, true)
		want(mode, one, true)
		want(mode, both, false)
	}
	nft(t, "add", "rule", "ip6", "nat", "KUBE-SERVICES", "accept")
	nft(t, "add", "element", "ip6", "kube-proxy", "service-ips", "{ 80 : accept }")
	want("iptables", both, true)
	want("nftables", both, true)
	want("ipvs", both, false) // no device
}

func TestRemoveKubeProxyDevice(t *testing.T) {
	inNamespace(t)
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: kubeProxyDevice}}); err != nil { // a bridge, since not every kernel has dummy devices
		t.Fatal(err)
	}
	link, err := netlink.LinkByName(kubeProxyDevice)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []string{"10.96.0.10", "10.96.0.11"} {
		addr, err := netlink.ParseAddr(a + "/32")
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.AddrAdd(link, addr); err != nil {
			t.Fatal(err)
		}
	}
	addLocal(t, "10.96.0.10")
	p := findKubeProxy(t)
	if modes := p.Modes(); !slices.Equal(modes, []string{"ipvs"}) || len(p.Addrs) != 2 {
		t.Errorf("found %v with %v", modes, p.Addrs)
	}
	for range 2 {
		if err := p.RemoveDevice(); err != nil {
			t.Fatal(err)
		}
	}
	local := func(to string) bool {
		found, err := netlink.RouteGet(net.ParseIP(to))
		return err == nil && len(found) == 1 && found[0].Type == unix.RTN_LOCAL
	}
	if !local("10.96.0.10") {
		t.Error("the address on both devices is no longer local")
	}
	if local("10.96.0.11") {
		t.Error("the address on kube-ipvs0 alone is still local")
	}
}

// ipsets are found by name and removed once no rule uses them.
func TestRemoveKubeProxySets(t *testing.T) {
	inNamespace(t)
	for _, set := range []string{"KUBE-CLUSTER-IP", "KUBE-NODE-PORT-TCP", "other-set"} {
		if err := netlink.IpsetCreate(set, "hash:ip", netlink.IpsetCreateOptions{}); err != nil {
			t.Fatalf("creating an ipset: %v", err)
		}
	}
	if p := findKubeProxy(t); !slices.Equal(p.Sets, []string{"KUBE-CLUSTER-IP", "KUBE-NODE-PORT-TCP"}) || !slices.Equal(p.Modes(), []string{"ipvs"}) {
		t.Fatalf("found %v of modes %v", p.Sets, p.Modes())
	}
	if err := findKubeProxy(t).RemoveSets(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := findKubeProxy(t); len(p.Sets) > 0 {
		t.Errorf("remaining sets %v", p.Sets)
	}
	if _, err := netlink.IpsetList("other-set"); err != nil {
		t.Errorf("the foreign set: %v", err)
	}
}
