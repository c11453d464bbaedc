package engine

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/proxier/fake"
	"github.com/hitless/hitless/proxier/kernel"
)

// dns is the fixture's Service with a UDP port, and a client that always sends from the same port.
type dns struct{ *fixture }

var dnsKey = kernel.Key{Addr: clusterIP(0), Protocol: kernel.UDP, Port: 53}

func newDNS(t *testing.T) dns {
	d := dns{newFixture(t)}
	d.world.services[0].udpPort = true
	return d
}

// sync is a pass that may fail, followed by ForgetFlows.
func (d dns) sync() {
	d.Helper()
	d.mustReport(d.engine.Sync(context.Background(), []types.NamespacedName{name(0)}))
	d.forget()
}

func (d dns) forget() {
	d.Helper()
	d.mustReport(d.engine.ForgetFlows(context.Background()))
}

func (d dns) setPods(p0, p1 podState) {
	d.Helper()
	d.fixture.setPods(p0, p1)
	d.forget()
}

func (d dns) expectReceiver(when string, pod int) {
	d.Helper()
	if real, ok := d.kernel.SendUDP(dnsKey, udpClient); ok != (pod >= 0) || ok && real != podOf(pod) {
		d.Errorf("%s the client reaches %v, %v; want pod %d (-1 is none)", when, real, ok, pod)
	}
}

func podOf(i int) netip.AddrPort { return pod(0, i, 5353) }

// A client with a fixed port reaches a current endpoint with its next packet (kubernetes#48370, #19029, #139628,
// #141371).
func TestUDPClientFollowsEndpoints(t *testing.T) {
	d := newDNS(t)
	d.kernel.SendUDP(dnsKey, udpClient)
	d.sync()
	d.expectReceiver("after the Service was created", 2)
	d.setPods(absent, ready)
	d.expectReceiver("after its pod was replaced", 3)
	d.setPods(absent, absent)
	d.expectReceiver("after the Service was scaled to zero", -1)
	d.setPods(ready, absent)
	d.expectReceiver("after the Service was scaled up", 2)
	d.world.services[0].exists = false
	d.setPods(ready, absent)
	d.expectReceiver("after the Service was deleted", -1)
	d.world.services[0].exists = true
	d.setPods(absent, ready)
	d.expectReceiver("after the Service was created again", 3)
	if reals := d.kernel.State().Reals(dnsKey); len(reals) != 1 {
		t.Errorf("real servers %v: real servers of UDP must not drain", reals)
	}
}

// With each operation failing in turn, the retry leaves no stale flow.
func TestUDPClientFollowsAfterFailures(t *testing.T) {
	for _, fault := range []fake.Fault{fake.Fail, fake.LoseReply} {
		for n := range 12 {
			t.Run(fmt.Sprint(fault, " at ", n), func(t *testing.T) {
				d := newDNS(t)
				d.kernel.SendUDP(dnsKey, udpClient)
				try := func(p0, p1 podState) {
					d.world.services[0].pods = [4]podState{2: p0, 3: p1}
					d.kernel.FailAt(n, fault)
					d.sync()
					d.kernel.SendUDP(dnsKey, udpClient)
					d.kernel.ClearFaults()
					d.sync()
				}
				try(ready, absent)
				d.expectReceiver("after the Service was created", 2)
				try(absent, ready)
				d.expectReceiver("after its pod was replaced", 3)
				d.world.services[0].exists = false
				try(absent, ready)
				d.world.services[0].exists = true
				try(ready, absent)
				d.expectReceiver("after the Service was deleted and created again", 2)
			})
		}
	}
}

// A process that crashes between a change and ForgetFlows leaves the stale flows to the next one.
func TestUDPClientFollowsAfterCrash(t *testing.T) {
	for n := range 12 {
		d := newDNS(t)
		d.kernel.SendUDP(dnsKey, udpClient)
		d.kernel.FailAt(n, fake.Crash)
		d.sync()
		d.kernel.ClearFaults()
		d.kernel.SendUDP(dnsKey, udpClient)
		d.restart()
		d.forget()
		d.expectReceiver(fmt.Sprint("after a crash at operation ", n), 2)
	}
}

// Flows follow after a virtual address was removed by another program and repaired.
func TestUDPClientFollowsAfterRepair(t *testing.T) {
	d := newDNS(t)
	d.sync()
	if err := d.kernel.ApplyExternally(kernel.Unbind{Addr: dnsKey.Addr}); err != nil {
		t.Fatal(err)
	}
	d.kernel.SendUDP(dnsKey, udpClient)
	d.mustReport(d.engine.Full(context.Background()))
	d.forget()
	d.expectReceiver("after the repair", 2)
}
