package main

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/hitless/hitless/proxier/fake"
	"github.com/hitless/hitless/proxier/kernel"
)

// The fault re-add closes the connections of a real server whose weight is raised, and the real server exists afterwards.
func TestReadd(t *testing.T) {
	key := kernel.Key{Addr: web, Protocol: kernel.TCP, Port: port}
	real := netip.MustParseAddrPort("10.244.1.2:8080")
	inner := fake.New()
	if err := inner.ApplyExternally(kernel.AddVirtual{Virtual: kernel.Virtual{Key: key, Scheduler: "rr"}}, kernel.AddReal{Key: key, Real: real}); err != nil {
		t.Fatal(err)
	}
	inner.SetConnections(key, real, 1, 0)
	k := &faulty{Kernel: inner, readds: true}
	if err := k.Apply(kernel.SetWeight{Key: key, Real: real, Weight: 1}); err != nil {
		t.Fatal(err)
	}
	if now := inner.State().Reals(key); inner.CutConnections() != 1 || !slices.Equal(now, []kernel.Real{{Addr: real, Weight: 1}}) {
		t.Errorf("%d connections were cut, and the real servers are %v", inner.CutConnections(), now)
	}
}
