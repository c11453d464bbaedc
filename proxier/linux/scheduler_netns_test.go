//go:build netns

package linux

import (
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hitless/hitless/proxier/kernel"
)

// backends returns n real servers on different ports of the path's server.
func backends(t *testing.T, r testPath, n int) []netip.AddrPort {
	t.Helper()
	var all []netip.AddrPort
	for i := range n {
		at := netip.AddrPortFrom(backend.Addr(), uint16(9000+i))
		go serveSource(openIn(t, r.server, func() (net.Listener, error) { return net.Listen("tcp", at.String()) }))
		all = append(all, at)
	}
	return all
}

func withScheduler(name string) kernel.Virtual { return kernel.Virtual{Key: vip, Scheduler: name} }

// While half of the real servers drain, each scheduler gives every new connection to the other half. sh without its
// flag is the red twin: it refuses the connections that it assigns to draining real servers.
func TestSchedulersSkipDrainingRealServers(t *testing.T) {
	for _, name := range []string{"rr", "wrr", "lc", "mh", "sh"} {
		t.Run(name, func(t *testing.T) {
			r := newPath(t)
			k := openIPVSKernel(t)
			apply(t, k, kernel.ChangeSets{Add: []kernel.Element{{Set: kernel.FromNode, Key: vip}}}, kernel.AddVirtual{Virtual: withScheduler(name)}, kernel.Bind{Addr: vip.Addr})
			for i, at := range backends(t, r, 4) {
				apply(t, k, kernel.AddReal{Key: vip, Real: at, Weight: 1})
				if i%2 == 0 {
					apply(t, k, kernel.SetWeight{Key: vip, Real: at, Weight: 0})
				}
			}
			if v, _, err := k.Server(vip); err != nil || v.Scheduler != name {
				t.Errorf("scheduler %q, error %v", v.Scheduler, err)
			}
			if failed := manyClients(t, r); failed > 0 {
				t.Errorf("%d of %d new connections failed", failed, len(clientAddrs()))
			}
			if serving, draining := tracked(t, k); serving != len(clientAddrs()) || draining != 0 {
				t.Errorf("the serving half has %d connections and the draining half %d, want %d and none", serving, draining, len(clientAddrs()))
			}
			if name != "sh" {
				return
			}
			s := toService(withScheduler(name))
			s.Flags = 0
			if err := k.ipvs.handle.do("removing the flag", func(h ipvsHandle) error { return h.UpdateService(s) }); err != nil {
				t.Fatal(err)
			}
			if manyClients(t, r) == 0 {
				t.Error("no connection failed without the flag, so the test proves nothing")
			}
			if v, _, err := k.Server(vip); err != nil || v.Virtual == withScheduler(name) {
				t.Errorf("the missing flag is not read as a difference: error %v", err)
			}
			apply(t, k, kernel.UpdateVirtual{Virtual: withScheduler(name)})
			if v, _, err := k.Server(vip); err != nil || v.Virtual != withScheduler(name) {
				t.Errorf("after the update %+v, error %v", v, err)
			}
			if failed := manyClients(t, r); failed > 0 {
				t.Errorf("after the update %d of %d new connections failed", failed, len(clientAddrs()))
			}
		})
	}
}

// tracked returns how many connections IPVS tracks to real servers with a weight, and to those without. A closed one counts for minutes.
func tracked(t *testing.T, k *Kernel) (serving, draining int) {
	t.Helper()
	v, _, err := k.Server(vip)
	if err != nil {
		t.Fatal(err)
	}
	for _, real := range v.Reals {
		if n := real.Active + real.Inactive; real.Weight > 0 {
			serving += n
		} else {
			draining += n
		}
	}
	return serving, draining
}

// clientAddrs returns several addresses of the client, so that hashes spread them.
func clientAddrs() (all []string) {
	for i := range 16 {
		all = append(all, netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + i)}).String())
	}
	return all
}

// manyClients opens a connection from each of clientAddrs and returns the number of failures.
func manyClients(t *testing.T, r testPath) (failed int) {
	t.Helper()
	for _, from := range clientAddrs() {
		done := make(chan error)
		go inNetns(t, r.client, func() {
			defer close(done) // also where addLocal ends the test
			addLocal(t, from)
			d := net.Dialer{Timeout: successTimeout, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
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

// Changing the scheduler neither refuses new connections nor cuts eight busy ones. Deleting and creating the virtual
// server instead is the red twin.
func TestSchedulerChangeUnderTraffic(t *testing.T) {
	for _, recreate := range []bool{false, true} {
		name := map[bool]string{false: "in place", true: "recreated"}[recreate]
		t.Run(name, func(t *testing.T) {
			r := newPath(t)
			k := openIPVSKernel(t)
			serve(t, k, kernel.FromNode)
			stop := make(chan struct{})
			lost, answered := eightBusy(t, r, stop)
			refused := make(chan int, 1)
			var opened atomic.Int64
			go inNetns(t, r.client, func() { refused <- openConnections(stop, &opened) })
			for range 10 {
				for _, scheduler := range []string{"mh", "wrr", "sh", "lc", "rr"} {
					if recreate {
						apply(t, k, kernel.DeleteVirtual{Key: vip}, kernel.AddVirtual{Virtual: withScheduler(scheduler)})
						time.Sleep(time.Millisecond) // the rate of changes
						apply(t, k, kernel.AddReal{Key: vip, Real: backend, Weight: 1})
					} else {
						before := opened.Load()
						apply(t, k, kernel.UpdateVirtual{Virtual: withScheduler(scheduler)})
						awaitMore(t, &opened, before)
					}
					time.Sleep(time.Millisecond)
				}
			}
			close(stop)
			losses := <-refused + lost()
			t.Logf("%d lost; %d opened, %d requests answered", losses, opened.Load(), answered.Load())
			if (losses > 0) != recreate {
				t.Errorf("%d connections lost in changes; losses expected: %v", losses, recreate)
			}
			if !recreate && answered.Load() < enough {
				t.Errorf("only %d requests were answered, so the test proves nothing", answered.Load())
			}
			if all, err := k.Elements(); err != nil || len(all) != 1 {
				t.Errorf("elements %v, error %v; want only the ownership record", all, err)
			}
		})
	}
}

// awaitMore waits until a count is higher, so that each change has a connection that was opened after it.
func awaitMore(t *testing.T, count *atomic.Int64, than int64) {
	t.Helper()
	for end := time.Now().Add(time.Minute); count.Load() <= than; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no connection was opened for a minute, after %d", than)
		}
	}
}

// openConnections opens connections one after another until stop, counts them, and returns the number of failures.
func openConnections(stop <-chan struct{}, opened *atomic.Int64) (failed int) {
	for {
		select {
		case <-stop:
			return failed
		default:
		}
		c, err := net.DialTimeout("tcp", netip.AddrPortFrom(vip.Addr, vip.Port).String(), successTimeout)
		if err != nil {
			failed++
			continue
		}
		opened.Add(1)
		c.Close()
	}
}

func TestMissingScheduler(t *testing.T) {
	inNamespace(t)
	k := openIPVSKernel(t)
	if err := k.Scheduler("mh"); err != nil {
		t.Errorf("mh: %v", err)
	}
	if err := k.Scheduler("nonsense"); err == nil || !strings.Contains(err.Error(), "load the module ip_vs_nonsense") {
		t.Errorf("error %v does not name the missing module", err)
	}
}
