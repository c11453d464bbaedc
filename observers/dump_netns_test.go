//go:build netns

package observers

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The dumps show a connection, its sockets and a rule, with and without the program nft.
func TestDumps(t *testing.T) {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	table := conn.AddTable(&nftables.Table{Name: "dumped", Family: nftables.TableFamilyIPv4})
	chain := conn.AddChain(&nftables.Chain{Name: "at", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter})
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{&expr.Ct{Key: expr.CtKeySTATE, Register: 1}, &expr.Verdict{Kind: expr.VerdictAccept}}})
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	if text, err := dumpNFTExpressions(); err != nil || !strings.Contains(string(text), "table dumped chain at\n  *expr.Ct&{Register:1") {
		t.Errorf("without nft: %v\n%s", err, text)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:4711")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp", "127.0.0.1:4711")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	route := &netlink.Route{LinkIndex: 1, Dst: &net.IPNet{IP: net.IPv4(203, 0, 113, 10), Mask: net.CIDRMask(32, 32)}, Table: unix.RT_TABLE_LOCAL,
		Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST, Protocol: 104}
	if err := netlink.RouteAdd(route); err != nil {
		t.Fatal(err)
	}
	wanted := map[string]string{"nftables.txt": "dumped", "conntrack.txt": "4711", "sockets.txt": "tcp LISTEN 127.0.0.1:4711", "addresses.txt": "local route 203.0.113.10/32, protocol 104",
		"snmp.txt": "Tcp:"}
	found := 0
	for _, d := range Dumps() {
		want, must := wanted[d.File]
		text, err := d.Read(context.Background())
		if err != nil && (must || !errors.Is(err, fs.ErrNotExist)) {
			t.Errorf("%s: %v\n%s", d.File, err, text)
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("%s has no %q:\n%s", d.File, want, text)
		}
		if must {
			found++
		}
	}
	if found != len(wanted) {
		t.Errorf("%d dumps are of the files %v", found, wanted)
	}
}
