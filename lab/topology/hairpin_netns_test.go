//go:build netns

package topology

import (
	"context"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A pod reaches itself through an address that its node translates to it, as every proxy does for a Service with one endpoint. Without the
// hairpin mode of its port it does not.
func TestPodReachesItselfThroughItsNode(t *testing.T) {
	n := created(t, Config{Nodes: 1})
	node := n.Nodes[0]
	own, service := netip.MustParseAddr("10.244.1.2"), netip.MustParseAddr("10.96.0.99")
	pod, err := node.AddPod("pod-1", own)
	if err != nil {
		t.Fatal(err)
	}
	defer pod.Close()
	serveHere(t, pod)
	if err := translate(node, service, own); err != nil {
		t.Fatal(err)
	}
	ask := func() (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		c, err := pod.DialContext(ctx, "tcp", net.JoinHostPort(service.String(), "8080"))
		if err != nil {
			return "", err
		}
		defer c.Close()
		text, err := io.ReadAll(c)
		return string(text), err
	}
	waitForLink(t, node.Namespace, netip.AddrPortFrom(own, 8080).String())
	if got, err := ask(); err != nil || got != "here" {
		t.Errorf("through the Service: %q, %v", got, err)
	}
	if err := node.Do(func() error {
		link, err := netlink.LinkByName(podLink(own))
		if err != nil {
			return err
		}
		return netlink.LinkSetHairpin(link, false)
	}); err != nil {
		t.Fatal(err)
	}
	if got, err := ask(); err == nil {
		t.Errorf("without the hairpin mode: %q", got)
	}
}

// translate makes the node send what is for an address to a pod, with the node as the source.
func translate(node *Node, from, to netip.Addr) error {
	conn, err := nftables.New(nftables.WithNetNSFd(node.Fd()))
	if err != nil {
		return err
	}
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "test"})
	in := conn.AddChain(&nftables.Chain{Name: "in", Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest})
	out := conn.AddChain(&nftables.Chain{Name: "out", Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource})
	const destination, length = 16, 4 // in the header of IPv4
	conn.AddRule(&nftables.Rule{Table: table, Chain: in, Exprs: []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: destination, Len: length},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: from.AsSlice()},
		&expr.Immediate{Register: 1, Data: to.AsSlice()},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1},
	}})
	conn.AddRule(&nftables.Rule{Table: table, Chain: out, Exprs: []expr.Any{
		&expr.Ct{Register: 1, Key: expr.CtKeySTATUS},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(1 << 5), Xor: make([]byte, 4)}, // IPS_DST_NAT
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
		&expr.Masq{},
	}})
	return conn.Flush()
}
