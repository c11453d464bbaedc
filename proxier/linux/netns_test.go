//go:build netns

package linux

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/proxier/kernel"
)

// These tests need root over a network namespace of their own: unshare -rnm go test -tags netns ./proxier/linux
// Those that need IPVS run in the lab: go test -tags lab ./suites/proxier

func portElement(set kernel.Set, addr string, port uint16) kernel.Element {
	return kernel.Element{Set: set, Key: kernel.Key{Addr: netip.MustParseAddr(addr), Protocol: kernel.TCP, Port: port}}
}

func hairpinElement(addr string) kernel.Element {
	return kernel.Element{Set: kernel.Hairpin, Key: kernel.Key{Addr: netip.MustParseAddr(addr)}}
}

// inNamespace runs the test on a thread in a new network namespace with loopback up: without any address there is no
// local routing table, and IPVS takes every real server for a broadcast address.
func inNamespace(t *testing.T) netns.NsHandle {
	t.Helper()
	runtime.LockOSThread()
	before, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	ns, err := netns.New()
	if err != nil {
		t.Fatalf("creating a network namespace: %v", err)
	}
	t.Cleanup(func() {
		if err := netns.Set(before); err != nil {
			t.Errorf("returning to the old namespace: %v", err) // the thread stays locked and ends with its goroutine
			return
		}
		ns.Close()
		before.Close()
		runtime.UnlockOSThread()
	})
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err == nil {
		err = h.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

func newTestFilter(t *testing.T, o Options) *filter {
	t.Helper()
	o.Deadline, o.NoReply = 5*time.Second, func(string) { t.Error("a reply is missing") }
	f := newFilter(o, ipv4, ipv6)
	if err := f.prepare(); err != nil {
		t.Fatal(err)
	}
	return f
}

func elements(t *testing.T, f *filter) []kernel.Element {
	t.Helper()
	all, err := f.read()
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(all, kernel.Element.Compare)
	return all
}

func TestElementsSurviveRestart(t *testing.T) {
	inNamespace(t)
	f := newTestFilter(t, Options{})
	all := []kernel.Element{portElement(kernel.Drop, "203.0.113.10", 80), hairpinElement("10.244.1.5"), portElement(kernel.Masquerade, "203.0.113.10", 80),
		portElement(kernel.OffCluster, "10.96.0.1", 443), portElement(kernel.Drop, "fd00:96::1", 80), hairpinElement("fd00:244::5"),
		allowedElement("203.0.113.10", "198.51.100.0/25"), allowedElement("203.0.113.10", "198.51.100.200/32"), allowedElement("fd00:96::1", "2001:db8::/33")}
	slices.SortFunc(all, kernel.Element.Compare)
	if err := f.change(all, nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fmt.Sprint(all), fmt.Sprint(elements(t, f))); diff != "" {
		t.Errorf("elements (-want +got):\n%s", diff)
	}
	if err := f.change([]kernel.Element{portElement(kernel.FromNode, "203.0.113.11", 80)}, all[1:2]); err != nil {
		t.Fatal(err)
	}
	want := elements(t, f)
	if len(want) != len(all) || slices.Contains(want, all[1]) {
		t.Errorf("after an addition and a removal: %v", want)
	}
	if got := elements(t, newTestFilter(t, Options{MasqueradeAll: true})); !slices.Equal(got, want) {
		t.Errorf("a new process found %v, want %v", got, want)
	}
}

func allowedElement(addr, from string) kernel.Element {
	e := portElement(kernel.Allowed, addr, 80)
	e.Source = netip.MustParsePrefix(from)
	return e
}

// A prefix replaces an overlapping one within one transaction.
func TestOverlappingSourceRanges(t *testing.T) {
	inNamespace(t)
	f := newTestFilter(t, Options{})
	small, large := allowedElement("203.0.113.10", "198.51.100.0/25"), allowedElement("203.0.113.10", "198.51.0.0/16")
	for _, step := range []struct{ add, remove []kernel.Element }{
		{[]kernel.Element{small}, nil}, {[]kernel.Element{large}, []kernel.Element{small}}, {[]kernel.Element{small}, []kernel.Element{large}},
	} {
		if err := f.change(step.add, step.remove); err != nil {
			t.Fatalf("adding %v for %v: %v", step.add, step.remove, err)
		}
		if got := elements(t, f); !slices.Equal(got, step.add) {
			t.Errorf("prefixes %v, want %v", got, step.add)
		}
	}
}

// Only allowed clients can open new connections; existing connections stay.
func TestRestrictedClients(t *testing.T) {
	r := newPath(t)
	f := newTestFilter(t, Options{})
	to := func(set kernel.Set, from string) kernel.Element {
		e := portElement(set, serverAddr, serverPort)
		if from != "" {
			e.Source = netip.MustParsePrefix(from)
		}
		return e
	}
	old, err := r.dial(t, successTimeout)
	if err != nil {
		t.Fatal(err)
	}
	source(t, old)
	restrict := func(from ...string) {
		t.Helper()
		add := []kernel.Element{to(kernel.Restricted, "")}
		for _, p := range from {
			add = append(add, to(kernel.Allowed, p))
		}
		if err := f.change(add, elements(t, f)); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name string
		from []string
		open bool
	}{
		{"the client's network", []string{"192.0.2.0/24"}, true},
		{"the client itself", []string{clientAddr + "/32"}, true},
		{"its neighbour", []string{"192.0.2.3/32"}, false},
		{"two ranges", []string{"10.0.0.0/8", "192.0.2.0/30"}, true},
		{"others", []string{"10.0.0.0/8", "198.51.100.0/24"}, false},
		{"no range", nil, false},
	} {
		restrict(test.from...)
		if _, err := r.dial(t, map[bool]time.Duration{true: successTimeout, false: failureTimeout}[test.open]); (err == nil) != test.open {
			t.Errorf("%s: a new connection ended with %v, want it open: %v", test.name, err, test.open)
		}
		if got := source(t, old); got != clientAddr {
			t.Errorf("%s: the old connection replies %q", test.name, got)
		}
	}
	if err := f.change(nil, elements(t, f)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.dial(t, successTimeout); err != nil {
		t.Errorf("without a restriction: %v", err)
	}
}

func TestChangeIsOneTransaction(t *testing.T) {
	inNamespace(t)
	f := newTestFilter(t, Options{})
	if err := f.change([]kernel.Element{portElement(kernel.Drop, "203.0.113.10", 80)}, []kernel.Element{portElement(kernel.Drop, "203.0.113.11", 80)}); err == nil {
		t.Error("removing a missing element succeeded")
	}
	if got := elements(t, f); len(got) != 0 {
		t.Errorf("a failed transaction took effect: %v", got)
	}
}

func TestManyElements(t *testing.T) {
	inNamespace(t)
	f := newTestFilter(t, Options{})
	var all []kernel.Element
	for i := range 10000 {
		all = append(all, portElement(kernel.OffCluster, fmt.Sprintf("10.96.%d.%d", i/250, 1+i%250), 80))
	}
	begin := time.Now()
	if err := f.change(all, nil); err != nil {
		t.Fatal(err)
	}
	added := time.Since(begin)
	if got := elements(t, f); len(got) != len(all) {
		t.Errorf("%d elements read back, want %d", len(got), len(all))
	}
	begin = time.Now()
	if err := f.change([]kernel.Element{portElement(kernel.Drop, "10.96.0.1", 80)}, nil); err != nil {
		t.Fatal(err)
	}
	t.Logf("10000 added in %v, then one in %v", added, time.Since(begin))
	if err := f.change(nil, all); err != nil {
		t.Fatal(err)
	}
}

func TestRulesetIsRecreated(t *testing.T) {
	inNamespace(t)
	f := newTestFilter(t, Options{ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}})
	want := nft(t, "list", "ruleset")
	for _, line := range []string{
		"ip daddr . meta l4proto . th dport @masquerade meta mark set meta mark | 0x00004000",
		"ip saddr != 10.244.0.0/16 ip daddr . meta l4proto . th dport @off-cluster meta mark set meta mark | 0x00004000",
		"ct state new ip daddr . meta l4proto . th dport @drop drop",
		"ct state new ip daddr . meta l4proto . th dport @restricted ip daddr . meta l4proto . th dport . ip saddr != @allowed drop",
		"ct state new ip6 daddr . meta l4proto . th dport @drop drop",
		"ip6 saddr . ip6 daddr @hairpin masquerade fully-random",
		"ip saddr . ip daddr @hairpin masquerade fully-random",
	} {
		if !strings.Contains(strings.ReplaceAll(want, "or 0x00004000", "| 0x00004000"), line) {
			t.Errorf("no rule %q in\n%s", line, want)
		}
	}
	nft(t, "flush", "ruleset")
	if err := f.change([]kernel.Element{portElement(kernel.Drop, "203.0.113.10", 80)}, nil); err == nil {
		t.Error("changing a deleted set succeeded")
	}
	elements(t, f)
	if got := nft(t, "list", "ruleset"); got != want {
		t.Errorf("the ruleset was recreated as\n%s\nwant\n%s", got, want)
	}
}

// With KeepRules, as in --cleanup and --init-only, existing rules stay, since the flags that determine them are not
// known.
func TestKeepRules(t *testing.T) {
	inNamespace(t)
	f := newTestFilter(t, Options{ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, HealthPort: 10256})
	own := []kernel.Element{portElement(kernel.OffCluster, "10.96.0.10", 80), portElement(kernel.Drop, "10.96.0.10", 80)}
	if err := f.change(own, nil); err != nil {
		t.Fatal(err)
	}
	keeper := newFilter(Options{Deadline: f.options.Deadline, KeepRules: true, NoReply: f.options.NoReply,
		Recreated: func(what string) { t.Errorf("%s was recreated", what) }}, ipv4, ipv6)
	want := nft(t, "list", "ruleset")
	if got := elements(t, keeper); len(got) != len(own) {
		t.Errorf("elements %v, want %v", got, own)
	}
	if got := nft(t, "list", "ruleset"); got != want {
		t.Errorf("the ruleset became\n%s\nbefore\n%s", got, want)
	}
	if err := keeper.change(nil, own[1:]); err != nil {
		t.Error(err)
	}
	if got := elements(t, keeper); len(got) != 1 || got[0] != own[0] {
		t.Errorf("elements %v, want %v", got, own[:1])
	}
	nft(t, "delete", "chain", "ip", Table, "input")
	nft(t, "delete", "set", "ip", Table, string(kernel.Isolated)) // as in an earlier version
	nft(t, "delete", "table", "ip6", Table)
	if got := elements(t, keeper); len(got) != 1 || got[0] != own[0] {
		t.Errorf("elements of incomplete tables %v, want %v", got, own[:1])
	}
	for range 2 { // the second time nothing exists
		if err := keeper.remove(); err != nil {
			t.Error(err)
		}
		if got := elements(t, keeper); len(got) != 0 || nft(t, "list", "ruleset") != "" {
			t.Errorf("after removal %v exists", got)
		}
	}
}

func nft(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("nft", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("nft %v: %v: %s", args, err, out)
	}
	return string(out)
}

// On a kernel with IPVS, the probe must succeed.
func TestProbeWithoutIPVS(t *testing.T) {
	inNamespace(t)
	v := newVirtualServers(5*time.Second, func() { t.Error("a reply is missing") })
	defer v.close()
	err := v.probe(unix.AF_INET, "rr")
	services, _ := v.list()
	_, missing := os.Stat("/proc/sys/net/ipv4/vs")
	switch {
	case err == nil && errors.Is(missing, os.ErrNotExist):
		t.Error("a kernel without IPVS was accepted")
	case err != nil && !strings.Contains(err.Error(), "has no IPVS"):
		t.Errorf("error %v does not name the missing module", err)
	case len(services) > 0:
		t.Errorf("the probe left %v", services)
	}
}

func TestMasquerade(t *testing.T) {
	for _, test := range []struct {
		name    string
		options Options
		set     kernel.Set
		want    string
	}{
		{"policy Cluster", Options{}, kernel.Masquerade, nodeByServer},
		{"policy Local keeps the client address", Options{}, kernel.FromNode, clientAddr},
		{"cluster IP, unknown pod addresses", Options{}, kernel.OffCluster, clientAddr},
		{"cluster IP, masquerade all", Options{MasqueradeAll: true}, kernel.OffCluster, nodeByServer},
		{"cluster IP, client is a pod", Options{ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}, kernel.OffCluster, clientAddr},
		{"cluster IP, client is not a pod", Options{ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}, kernel.OffCluster, nodeByServer},
		{"cluster IP, client is a pod at the bridge", Options{PodBridge: "client"}, kernel.OffCluster, clientAddr},
		{"cluster IP, client is not at the bridge", Options{PodBridge: "clien"}, kernel.OffCluster, nodeByServer},
		{"cluster IP, client is a pod by its interface", Options{PodInterfacePrefix: "cli"}, kernel.OffCluster, clientAddr},
		{"cluster IP, client is not a pod by its interface", Options{PodInterfacePrefix: "veth"}, kernel.OffCluster, nodeByServer},
		{"other port", Options{}, "", clientAddr},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newPath(t)
			f := newTestFilter(t, test.options)
			add := []kernel.Element{portElement(kernel.Masquerade, serverAddr, serverPort+1)}
			if test.set != "" {
				add = []kernel.Element{portElement(test.set, serverAddr, serverPort)}
			}
			if err := f.change(add, nil); err != nil {
				t.Fatal(err)
			}
			c, err := r.dial(t, successTimeout)
			if err != nil {
				t.Fatal(err)
			}
			if got := source(t, c); got != test.want {
				t.Errorf("the server saw %s, want %s", got, test.want)
			}
		})
	}
}

func TestDropAffectsNewConnectionsOnly(t *testing.T) {
	r := newPath(t)
	f := newTestFilter(t, Options{})
	old, err := r.dial(t, successTimeout)
	if err != nil {
		t.Fatal(err)
	}
	source(t, old)
	drop := []kernel.Element{portElement(kernel.Drop, serverAddr, serverPort)}
	if err := f.change(drop, nil); err != nil {
		t.Fatal(err)
	}
	var timeout net.Error
	if _, err := r.dial(t, failureTimeout); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("a new connection ended with %v, want a time-out", err)
	}
	if got := source(t, old); got != clientAddr {
		t.Errorf("the old connection replies %q, want %s", got, clientAddr)
	}
	if err := f.change(nil, drop); err != nil {
		t.Fatal(err)
	}
	if _, err := r.dial(t, successTimeout); err != nil {
		t.Errorf("after the drop: %v", err)
	}
}

// A device of a node that disables IPv6 rejects IPv6 addresses for good, until IPv6 is enabled for the device.
func TestAddressesWithDisabledIPv6(t *testing.T) {
	inNamespace(t)
	if err := (sysctl{"net/ipv6/conf/default/disable_ipv6", "1", "test"}).set("/proc/sys"); err != nil {
		t.Fatal(err)
	}
	a := newTestAddresses(t)
	addr := netip.MustParseAddr("fd00:96::1")
	for _, err := range append(a.bindAll([]netip.Addr{addr}), a.bind(addr)) {
		if !errors.Is(err, unix.EACCES) || !kernel.IsPermanent(kernel.Bind{Addr: addr}, err) {
			t.Errorf("with IPv6 disabled: error %v, want a permanent %v", err, unix.EACCES)
		}
	}
	if err := errors.Join(enableIPv6("/proc"), a.bind(addr)); err != nil {
		t.Errorf("with IPv6 enabled: %v", err)
	}
}
