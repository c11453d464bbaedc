//go:build netns

package linux

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/proxier/kernel"
)

// For a virtual address in the clients' network, such as one that a layer 2 load balancer announces, strict ARP
// leaves the ARP reply to the load balancer. Without it the node replies, which is the red twin.
func TestStrictARP(t *testing.T) {
	const announced = "192.0.2.80"
	for _, strict := range []bool{false, true} {
		r := newPath(t)
		openIPVSKernel(t).Close()
		k, err := Open(Options{Scheduler: "rr", StrictARP: strict})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(k.Close)
		at := kernel.Key{Addr: netip.MustParseAddr(announced), Protocol: kernel.TCP, Port: 80}
		apply(t, k, kernel.ChangeSets{Add: []kernel.Element{{Set: kernel.FromNode, Key: at}}}, kernel.AddVirtual{Virtual: kernel.Virtual{Key: at, Scheduler: "rr"}},
			kernel.AddReal{Key: at, Real: backend, Weight: 1}, kernel.Bind{Addr: at.Addr})
		_, err = r.dialTo(t, netip.AddrPortFrom(at.Addr, at.Port), successTimeout)
		var timeout net.Error
		silent := errors.Is(err, unix.EHOSTUNREACH) || errors.As(err, &timeout) && timeout.Timeout()
		if strict && !silent || !strict && err != nil {
			t.Errorf("strict ARP %v: connecting from the same network: %v", strict, err)
		}
	}
}
