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

// A virtual address in the network of the clients, as one that a balancer of layer 2 announces: strict ARP leaves it to the
// balancer to answer for it, and without that the node answers, which is the twin.
func TestStrictARP(t *testing.T) {
	const announced = "192.0.2.80"
	for _, strict := range []bool{false, true} {
		r := newRoad(t)
		withIPVS(t).Close()
		k, err := Open(Options{Scheduler: "rr", StrictARP: strict})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(k.Close)
		at := kernel.Key{Addr: netip.MustParseAddr(announced), Protocol: kernel.TCP, Port: 80}
		apply(t, k, kernel.ChangeSets{Add: []kernel.Element{{Set: kernel.FromNode, Key: at}}}, kernel.AddVirtual{Virtual: kernel.Virtual{Key: at, Scheduler: "rr"}},
			kernel.AddReal{Key: at, Real: backend, Weight: 1}, kernel.Bind{Addr: at.Addr})
		_, err = r.to(t, netip.AddrPortFrom(at.Addr, at.Port), patience)
		var timeout net.Error
		silent := errors.Is(err, unix.EHOSTUNREACH) || errors.As(err, &timeout) && timeout.Timeout()
		if strict && !silent || !strict && err != nil {
			t.Errorf("strict ARP %v: a client in the same network got %v", strict, err)
		}
	}
}
