//go:build netns

package linux

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/proxier/kernel"
)

// backends are real servers of the road's server, on ports of their own.
func backends(t *testing.T, r road, n int) []netip.AddrPort {
	t.Helper()
	var all []netip.AddrPort
	for i := range n {
		at := netip.AddrPortFrom(backend.Addr(), uint16(9000+i))
		go tellSource(openIn(t, r.server, func() (net.Listener, error) { return net.Listen("tcp", at.String()) }))
		all = append(all, at)
	}
	return all
}

func scheduled(name string) kernel.Virtual { return kernel.Virtual{Key: vip, Scheduler: name} }

// While half of the real servers drain, each scheduler gives every new connection to the other half: sh without its flag
// refuses what it would give to one that drains, which is the twin.
func TestSchedulersPassOverWhatDrains(t *testing.T) {
	for _, name := range []string{"rr", "wrr", "lc", "mh", "sh"} {
		t.Run(name, func(t *testing.T) {
			r := newRoad(t)
			k := withIPVS(t)
			apply(t, k, kernel.ChangeSets{Add: []kernel.Element{{Set: kernel.FromNode, Key: vip}}}, kernel.AddVirtual{Virtual: scheduled(name)}, kernel.Bind{Addr: vip.Addr})
			for i, at := range backends(t, r, 4) {
				apply(t, k, kernel.AddReal{Key: vip, Real: at, Weight: 1})
				if i%2 == 0 {
					apply(t, k, kernel.SetWeight{Key: vip, Real: at, Weight: 0})
				}
			}
			if v, _, err := k.Server(vip); err != nil || v.Scheduler != name {
				t.Errorf("it has %q, error %v", v.Scheduler, err)
			}
			if failed := manyClients(t, r); failed > 0 {
				t.Errorf("%d of %d new connections failed", failed, len(clientAddrs()))
			}
			if name != "sh" {
				return
			}
			s := service(scheduled(name))
			s.Flags = 0
			if err := k.ipvs.handle.do("taking the flag away", func(h table) error { return h.UpdateService(s) }); err != nil {
				t.Fatal(err)
			}
			if manyClients(t, r) == 0 {
				t.Error("without its flag no connection failed: the flag is not what makes it work")
			}
			if v, _, err := k.Server(vip); err != nil || v.Virtual == scheduled(name) {
				t.Errorf("that it has no flag is not seen: error %v", err)
			}
			apply(t, k, kernel.UpdateVirtual{Virtual: scheduled(name)})
			if v, _, err := k.Server(vip); err != nil || v.Virtual != scheduled(name) {
				t.Errorf("updated, it is %+v, error %v", v, err)
			}
			if failed := manyClients(t, r); failed > 0 {
				t.Errorf("with its flag again %d of %d new connections failed", failed, len(clientAddrs()))
			}
		})
	}
}

// clientAddrs are addresses of the client, so that a hash has something to spread.
func clientAddrs() (all []string) {
	for i := range 16 {
		all = append(all, netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + i)}).String())
	}
	return all
}

// manyClients opens a connection from each of clientAddrs, and returns how many failed.
func manyClients(t *testing.T, r road) (failed int) {
	t.Helper()
	for _, from := range clientAddrs() {
		done := make(chan error)
		go in(t, r.client, func() {
			own(t, from)
			d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
			c, err := d.Dial("tcp", netip.AddrPortFrom(vip.Addr, vip.Port).String())
			if err == nil {
				c.Close()
			}
			done <- err
		})
		if <-done != nil {
			failed++
		}
	}
	return failed
}

// Eight busy connections, and new ones all the time, while the scheduler changes: nothing is refused and nothing is cut. A
// virtual server that is made anew with another scheduler is the twin.
func TestSchedulerChangesUnderTraffic(t *testing.T) {
	for _, anew := range []bool{false, true} {
		name := map[bool]string{false: "in place", true: "made anew"}[anew]
		t.Run(name, func(t *testing.T) {
			r := newRoad(t)
			k := withIPVS(t)
			serve(t, k, kernel.FromNode)
			stop := make(chan struct{})
			lost := eightBusy(t, r, stop)
			refused := make(chan int, 1)
			go in(t, r.client, func() { refused <- newOnes(stop) })
			for range 10 {
				for _, scheduler := range []string{"mh", "wrr", "sh", "lc", "rr"} {
					if anew {
						apply(t, k, kernel.DeleteVirtual{Key: vip}, kernel.AddVirtual{Virtual: scheduled(scheduler)})
						time.Sleep(time.Millisecond) // the pace of a proxy that has other things to do
						apply(t, k, kernel.AddReal{Key: vip, Real: backend, Weight: 1})
					} else {
						apply(t, k, kernel.UpdateVirtual{Virtual: scheduled(scheduler)})
					}
					time.Sleep(time.Millisecond)
				}
			}
			close(stop)
			losses := <-refused + lost()
			if t.Logf("%d lost in 50 changes", losses); (losses > 0) != anew {
				t.Errorf("%d connections lost in 50 changes; losses expected: %v", losses, anew)
			}
			if all, err := k.Elements(); err != nil || len(all) != 1 {
				t.Errorf("elements %v, error %v: want the record alone", all, err)
			}
		})
	}
}

// newOnes opens connections one after the other until stop, and returns how many failed.
func newOnes(stop <-chan struct{}) (failed int) {
	for {
		select {
		case <-stop:
			return failed
		default:
		}
		c, err := net.DialTimeout("tcp", netip.AddrPortFrom(vip.Addr, vip.Port).String(), patience)
		if err != nil {
			failed++
			continue
		}
		c.Close()
	}
}

func TestSchedulerThatThisKernelLacks(t *testing.T) {
	inNamespace(t)
	k := withIPVS(t)
	if err := k.Scheduler("mh"); err != nil {
		t.Errorf("mh: %v", err)
	}
	if err := k.Scheduler("nonsense"); err == nil || !strings.Contains(err.Error(), "load the module ip_vs_nonsense") {
		t.Errorf("error %v, want one that says what to do", err)
	}
}
