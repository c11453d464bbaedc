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

// dns is the bench's Service as one of UDP, and one who sends to it from the same port all the time.
type dns struct{ *bench }

var dnsKey = kernel.Key{Addr: clusterIP(0), Protocol: kernel.UDP, Port: 53}

func newDNS(t *testing.T) dns {
	d := dns{newBench(t)}
	d.world.services[0].udpPort = true
	return d
}

// sync is a pass that may fail, and what comes after it.
func (d dns) sync() {
	d.Helper()
	d.report(d.engine.Sync(context.Background(), []types.NamespacedName{name(0)}))
	d.forget()
}

func (d dns) forget() {
	d.Helper()
	d.report(d.engine.Forget(context.Background()))
}

func (d dns) set(p0, p1 podState) {
	d.Helper()
	d.bench.set(p0, p1)
	d.forget()
}

func (d dns) answered(when string, pod int) {
	d.Helper()
	if real, ok := d.kernel.SendUDP(dnsKey, sender); ok != (pod >= 0) || ok && real != podOf(pod) {
		d.Errorf("%s the sender gets to %v, %v; want pod %d (-1 is none)", when, real, ok, pod)
	}
}

func podOf(i int) netip.AddrPort { return pod(0, i, 5353) }

// A sender with a fixed port is answered by the next packet: kubernetes#48370, #19029, #139628, #141371.
func TestSenderFollowsTheEndpoints(t *testing.T) {
	d := newDNS(t)
	d.kernel.SendUDP(dnsKey, sender)
	d.sync()
	d.answered("before the Service there was nothing; with it", 2)
	d.set(absent, ready)
	d.answered("after its pod was replaced", 3)
	d.set(absent, absent)
	d.answered("after the Service was scaled to zero", -1)
	d.set(ready, absent)
	d.answered("after it was scaled up", 2)
	d.world.services[0].exists = false
	d.set(ready, absent)
	d.answered("after it was deleted", -1)
	d.world.services[0].exists = true
	d.set(absent, ready)
	d.answered("after it came back", 3)
	if reals := d.kernel.State().Reals(dnsKey); len(reals) != 1 {
		t.Errorf("real servers %v: those of UDP do not drain", reals)
	}
}

// The same with each operation failing in turn: what is tried again leaves no flow behind.
func TestSenderFollowsThroughFailures(t *testing.T) {
	for _, fault := range []fake.Fault{fake.Fail, fake.LoseReply} {
		for n := range 12 {
			t.Run(fmt.Sprint(fault, " at ", n), func(t *testing.T) {
				d := newDNS(t)
				d.kernel.SendUDP(dnsKey, sender)
				try := func(p0, p1 podState) {
					d.world.services[0].pods = [4]podState{2: p0, 3: p1}
					d.kernel.FailAt(n, fault)
					d.sync()
					d.kernel.SendUDP(dnsKey, sender)
					d.kernel.ClearFaults()
					d.sync()
				}
				try(ready, absent)
				d.answered("after the Service appeared", 2)
				try(absent, ready)
				d.answered("after its pod was replaced", 3)
				d.world.services[0].exists = false
				try(absent, ready)
				d.world.services[0].exists = true
				try(ready, absent)
				d.answered("after it was deleted and came back", 2)
			})
		}
	}
}

// A process that dies between a change and its flows leaves them to the next one.
func TestSenderFollowsThroughADeath(t *testing.T) {
	for n := range 12 {
		d := newDNS(t)
		d.kernel.SendUDP(dnsKey, sender)
		d.kernel.FailAt(n, fake.Crash)
		d.sync()
		d.kernel.ClearFaults()
		d.kernel.SendUDP(dnsKey, sender)
		d.restart()
		d.forget()
		d.answered(fmt.Sprint("after a death at operation ", n), 2)
	}
}

// A virtual address that somebody took away comes back for senders too.
func TestSenderFollowsThroughARepair(t *testing.T) {
	d := newDNS(t)
	d.sync()
	if err := d.kernel.ApplyExternally(kernel.Unbind{Addr: dnsKey.Addr}); err != nil {
		t.Fatal(err)
	}
	d.kernel.SendUDP(dnsKey, sender)
	d.report(d.engine.Full(context.Background()))
	d.forget()
	d.answered("after the repair", 2)
}
