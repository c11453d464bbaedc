//go:build netns

package linux

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/proxier/kernel"
)

var dns = kernel.Key{Addr: netip.MustParseAddr("10.96.0.53"), Protocol: kernel.UDP, Port: 53}

// dnsPod returns an address and port of the path's server, where answerUDP replies.
func dnsPod(i int) netip.AddrPort { return netip.AddrPortFrom(backend.Addr(), uint16(5300+i)) }

// answerUDP replies to each packet with the number of the pod.
func answerUDP(t *testing.T, r testPath, pods ...int) {
	t.Helper()
	for _, i := range pods {
		c := openIn(t, r.server, func() (net.PacketConn, error) { return net.ListenPacket("udp", dnsPod(i).String()) })
		go func() {
			packet := make([]byte, 64)
			for _, from, err := c.ReadFrom(packet); err == nil; _, from, err = c.ReadFrom(packet) {
				_, _ = c.WriteTo([]byte(fmt.Sprint(i)), from)
			}
		}()
	}
}

// udpFrom opens a UDP socket in a namespace with a fixed local port.
func udpFrom(t *testing.T, ns netns.NsHandle, to netip.AddrPort) net.Conn {
	t.Helper()
	return openIn(t, ns, func() (net.Conn, error) { return net.Dial("udp", to.String()) })
}

// exchange sends one packet and returns the reply, "refused" or "silence".
func exchange(t *testing.T, c net.Conn, timeout time.Duration) string {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("?")); err != nil {
		return errorWord(err)
	}
	answer := make([]byte, 64)
	n, err := c.Read(answer)
	if err != nil {
		return errorWord(err)
	}
	return string(answer[:n])
}

func errorWord(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return "refused"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "silence"
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH):
		return "unreachable"
	}
	return err.Error()
}

func forgetFlows(keep ...netip.AddrPort) kernel.Op {
	return kernel.ForgetFlows{Filters: []kernel.FlowFilter{{Key: dns, Keep: keep}}}
}

// serveDNS programs the virtual server as the proxier does.
func serveDNS(t *testing.T, k *Kernel, pods ...netip.AddrPort) {
	t.Helper()
	apply(t, k, kernel.ChangeSets{Add: []kernel.Element{{Set: kernel.Masquerade, Key: dns}}},
		kernel.AddVirtual{Virtual: kernel.Virtual{Key: dns, Scheduler: "rr"}})
	for _, pod := range pods {
		apply(t, k, kernel.AddReal{Key: dns, Real: pod, Weight: 1})
	}
	apply(t, k, kernel.Bind{Addr: dns.Addr})
}

// exchangeUntilReply sends until a reply arrives, since first packets may be lost while interfaces come up.
func exchangeUntilReply(t *testing.T, c net.Conn) string {
	t.Helper()
	for end := time.Now().Add(successTimeout); time.Now().Before(end); {
		if got := exchange(t, c, failureTimeout); got != "silence" {
			return got
		}
	}
	return "silence"
}

// A client with a fixed port reaches the next pod with its next packet, and is refused while there is none. The
// kernel does this with the sysctls that the proxier sets.
func TestUDPFlowsFollow(t *testing.T) {
	r := newPath(t)
	k := openIPVSKernel(t)
	answerUDP(t, r, 1, 2)
	serveDNS(t, k, dnsPod(1))
	c := udpFrom(t, r.client, netip.AddrPortFrom(dns.Addr, dns.Port))
	if got := exchangeUntilReply(t, c); got != "1" {
		t.Fatalf("first reply: %s, want 1", got)
	}
	for _, step := range []struct {
		name string
		ops  []kernel.Op
		want string
	}{
		{"pod replaced", []kernel.Op{kernel.AddReal{Key: dns, Real: dnsPod(2), Weight: 1}, kernel.DeleteReal{Key: dns, Real: dnsPod(1)}}, "2"},
		{"scaled to zero", []kernel.Op{kernel.DeleteReal{Key: dns, Real: dnsPod(2)}}, "refused"},
		{"scaled up", []kernel.Op{kernel.AddReal{Key: dns, Real: dnsPod(1), Weight: 1}}, "1"},
	} {
		apply(t, k, step.ops...)
		got := exchange(t, c, failureTimeout)
		if got == "silence" {
			t.Logf("%s: one packet was lost", step.name)
			got = exchange(t, c, failureTimeout)
		}
		if got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
	}
}

// A packet before the Service creates an untranslated flow. Without masquerading no reply arrives as long as packets
// keep coming (kubernetes#91236), which the red twin shows.
func TestFlowsBeforeService(t *testing.T) {
	for _, forgotten := range []bool{false, true} {
		t.Run(fmt.Sprint("forgotten ", forgotten), func(t *testing.T) {
			r := newPath(t)
			k := openIPVSKernel(t)
			answerUDP(t, r, 1)
			addDefaultRoute(t, r)
			c := udpFrom(t, r.client, netip.AddrPortFrom(dns.Addr, dns.Port))
			other := udpFrom(t, r.client, netip.MustParseAddrPort("203.0.113.77:53"))
			for range 3 { // time for neighbour discovery
				exchange(t, c, failureTimeout)
				exchange(t, other, failureTimeout)
			}
			before := len(flowsTo(t, netip.MustParseAddr("203.0.113.77")))
			if len(flowsTo(t, dns.Addr)) == 0 || before == 0 {
				t.Fatal("conntrack has no entry of the early packet, so the test proves nothing")
			}
			serveDNS(t, k, dnsPod(1))
			want := "silence"
			if forgotten {
				apply(t, k, forgetFlows(dnsPod(1)))
				want = "1"
			}
			for i := range 3 {
				if got := exchange(t, c, failureTimeout); got != want {
					t.Errorf("packet %d: %s, want %s", i, got, want)
				}
			}
			if after := len(flowsTo(t, netip.MustParseAddr("203.0.113.77"))); after != before {
				t.Errorf("%d flows of others were deleted (kubernetes#129982)", before-after)
			}
		})
	}
}

// After the Service is deleted, no conntrack entry leads to the address of its pod, which another pod may get.
func TestNoFlowAfterServiceDeletion(t *testing.T) {
	r := newPath(t)
	k := openIPVSKernel(t)
	answerUDP(t, r, 1)
	serveDNS(t, k, dnsPod(1))
	c := udpFrom(t, r.client, netip.AddrPortFrom(dns.Addr, dns.Port))
	if got := exchangeUntilReply(t, c); got != "1" {
		t.Fatalf("first reply: %s, want 1", got)
	}
	if len(flowsTo(t, dns.Addr)) == 0 {
		t.Fatal("conntrack has no entry, so the test proves nothing")
	}
	apply(t, k, kernel.DeleteReal{Key: dns, Real: dnsPod(1)}, kernel.DeleteVirtual{Key: dns}, kernel.Unbind{Addr: dns.Addr}, forgetFlows())
	if left := flowsTo(t, dns.Addr); len(left) > 0 {
		t.Errorf("conntrack has %v", left)
	}
}

// The listing for one virtual server uses a filter, that for many does not; the result must be the same.
func TestForgetManyFlows(t *testing.T) {
	for _, protocol := range []kernel.Protocol{kernel.UDP, kernel.TCP} {
		t.Run(protocol.String(), func(t *testing.T) {
			r := newPath(t)
			addDefaultRoute(t, r)
			if err := newTestFilter(t, Options{}).change(nil, nil); err != nil { // its rules enable conntrack here
				t.Fatal(err)
			}
			begin := func(k kernel.Key) {
				if to := netip.AddrPortFrom(k.Addr, k.Port); protocol == kernel.UDP {
					exchange(t, udpFrom(t, r.client, to), time.Millisecond)
				} else {
					_, _ = r.dialTo(t, to, 10*time.Millisecond) // no reply is expected
				}
			}
			var all []kernel.FlowFilter
			for i := range 20 {
				key := kernel.Key{Addr: netip.AddrFrom4([4]byte{10, 96, 1, byte(i)}), Protocol: protocol, Port: 53}
				begin(key)
				all = append(all, kernel.FlowFilter{Key: key})
			}
			others := kernel.Key{Addr: netip.MustParseAddr("203.0.113.77"), Port: 53}
			begin(others)
			count := func() (n int) {
				for _, f := range all {
					n += len(flowsTo(t, f.Key.Addr))
				}
				return n
			}
			waitFor(t, "all packets to pass", func() bool { return count() == len(all) && len(flowsTo(t, others.Addr)) == 1 })
			c := conntrack{5 * time.Second, func() { t.Error("a reply is missing") }}
			if err := c.deleteStale(all[:1]); err != nil {
				t.Fatal(err)
			}
			if n := count(); n != len(all)-1 || len(flowsTo(t, all[0].Key.Addr)) > 0 {
				t.Errorf("%d remain after the first of %d was deleted", n, len(all))
			}
			if err := c.deleteStale(all); err != nil {
				t.Fatal(err)
			}
			if n := count() + len(flowsTo(t, others.Addr)); n != 1 {
				t.Errorf("%d remain, want only the foreign flow", n)
			}
		})
	}
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(successTimeout); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s", successTimeout, what)
		}
	}
}

// addDefaultRoute routes all other destinations of the node over the server, which has no route back to the client.
func addDefaultRoute(t *testing.T, r testPath) {
	t.Helper()
	if err := netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(serverAddr)}); err != nil {
		t.Fatal(err)
	}
	h, err := netlink.NewHandleAt(r.server, unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := h.RouteDel(&netlink.Route{Gw: net.ParseIP(nodeByServer)}); err != nil {
		t.Fatal(err)
	}
}

// flowsTo lists the conntrack entries of packets to an address.
func flowsTo(t *testing.T, a netip.Addr) []string {
	t.Helper()
	all, err := netlink.ConntrackTableList(netlink.ConntrackTable, netlink.InetFamily(familyOf(a)))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range all {
		if to, _ := netip.AddrFromSlice(f.Forward.DstIP); to.Unmap() == a {
			found = append(found, strings.TrimSpace(f.String()))
		}
	}
	return found
}
