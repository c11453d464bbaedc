package proxier

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/proxier/fake"
	"github.com/hitless/hitless/proxier/kernel"
)

// A refusal is logged and counted once, however often the Service is recomputed, and again if it recurs.
func TestRefusalIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, periods)
		defer r.stop()
		expectReports := func(when string, want int) {
			t.Helper()
			line := `msg=refused service=shop/web reason=bad-address detail="127.0.0.1 is a loopback address"`
			if got := strings.Count(r.logged(), line); got != want {
				t.Errorf("%s: logged %d times, want %d:\n%s", when, got, want, r.logged())
			}
			if got := r.metric(`hitless_proxier_refused_total{reason="bad-address"}`); got != fmt.Sprint(want) {
				t.Errorf("%s: counted %s, want %d", when, got, want)
			}
		}
		r.source.externals = []string{"127.0.0.1"}
		for range 3 {
			r.source.set("10.244.1.1")
		}
		time.Sleep(31 * time.Minute) // for two reconciliations
		expectReports("after three changes and two reconciliations", 1)
		r.source.externals = nil
		r.source.set("10.244.1.1")
		r.source.externals = []string{"127.0.0.1"}
		r.source.set("10.244.1.1")
		expectReports("after the refused address was removed and added again", 2)
		r.served(t, "10.244.1.1")
	})
}

// Every refusal is logged by name, even thousands in one pass.
func TestManyRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, periods)
		defer r.stop()
		for i := range 200 {
			r.source.externals = append(r.source.externals, fmt.Sprintf("127.0.1.%d", i))
		}
		r.source.set("10.244.1.1")
		for _, a := range r.source.externals {
			if n := strings.Count(r.logged(), `msg=refused service=shop/web reason=bad-address detail="`+a+` is`); n != 1 {
				t.Fatalf("%s is refused but logged %d times", a, n)
			}
		}
	})
}

// hostPorts are HealthChecks that open no sockets, which would keep the bubble busy. Other programs may use ports.
type hostPorts struct {
	mu           sync.Mutex
	wanted, open map[types.NamespacedName]uint16
	taken        map[uint16]bool
	local        int // endpoints that the last call of Set has reported
}

func (p *hostPorts) Set(name types.NamespacedName, port uint16, local int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted[name], p.local = port, local
}

// reported returns the number of local endpoints that load balancers see.
func (p *hostPorts) reported() int {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.local
}

func (p *hostPorts) Delete(name types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.wanted, name)
	delete(p.open, name)
}

func (p *hostPorts) Close() {}

func (p *hostPorts) Open() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, port := range p.wanted {
		if p.taken[port] {
			return fmt.Errorf("port %d is in use", port)
		}
		p.open[name] = port
	}
	return nil
}

// release ends the other program.
func (p *hostPorts) release(port uint16) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.taken, port)
}

// opened returns the port that is open for a Service; 0 for none.
func (p *hostPorts) opened(name types.NamespacedName) uint16 {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open[name]
}

// A health check port that another program uses is opened soon after it is released, even without reconciliations.
// The error is logged once and does not affect the node's health.
func TestHealthCheckPortInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		checks := &hostPorts{wanted: map[types.NamespacedName]uint16{}, open: map[types.NamespacedName]uint16{}, taken: map[uint16]bool{32000: true}}
		r := startWith(t, Periods{Retry: 30 * time.Second, Flows: time.Second}, func(c *Config) { c.HealthChecks = checks })
		defer r.stop()
		r.source.health = 32000
		r.source.set("10.244.1.1")
		time.Sleep(10 * time.Minute)
		if n := strings.Count(r.logged(), "port 32000 is in use"); n != 1 || r.healthz() != 200 || checks.opened(web) != 0 {
			t.Errorf("in use for ten minutes: logged %d times, /healthz is %d, open %d", n, r.healthz(), checks.opened(web))
		}
		checks.release(32000)
		time.Sleep(31 * time.Second)
		if got := checks.opened(web); got != 32000 {
			t.Errorf("31 s after its release the open port is %d", got)
		}
	})
}

// rejectBroadcast rejects real servers at a directed broadcast address, as ip_vs_new_dest does.
func rejectBroadcast(op kernel.Op) error {
	if o, adding := op.(kernel.AddReal); adding && o.Real.Addr() == netip.MustParseAddr("10.244.1.255") {
		return syscall.EINVAL
	}
	return nil
}

// A permanently rejected endpoint does not affect the node: other endpoints are served, the node is healthy and ready
// from the start, and the refusal is logged and counted once. The endpoint is retried, and served once the kernel
// accepts it.
func TestPermanentlyRejectedEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startWith(t, periods, func(c *Config) {
			c.Source.(*source).pods = []string{"10.244.1.255", "10.244.1.9"}
			c.Kernel.(*fake.Kernel).RejectWith(rejectBroadcast)
		})
		defer r.stop()
		time.Sleep(5 * time.Second)
		r.served(t, "10.244.1.9")
		if code := r.healthz(); code != 200 {
			t.Errorf("/healthz is %d 5 s after the start", code)
		}
		r.source.set("10.244.1.2", "10.244.1.255")
		r.served(t, "10.244.1.2")
		for range 40 {
			time.Sleep(time.Minute)
			if code := r.healthz(); code != 200 {
				t.Fatalf("/healthz is %d", code)
			}
		}
		line := "msg=refused service=shop/web reason=kernel-refused"
		if n := strings.Count(r.logged(), line); n != 1 || r.metric(`hitless_proxier_refused_total{reason="kernel-refused"}`) != "1" {
			t.Errorf("logged %d times:\n%s", n, r.logged())
		}
		if n := strings.Count(r.logged(), "\n"); n > 20 {
			t.Errorf("%d lines in 40 minutes:\n%s", n, r.logged())
		}
		r.kernel.ClearFaults()
		time.Sleep(31 * time.Second)
		r.served(t, "10.244.1.2", "10.244.1.255")
	})
}

// A health check reports only local endpoints that the kernel serves: none that it rejects, and after a failure none in
// addition to those before. Removed endpoints do not count, even if their removal fails.
func TestHealthCheckOfUnservedEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		checks := &hostPorts{wanted: map[types.NamespacedName]uint16{}, open: map[types.NamespacedName]uint16{}}
		r := startWith(t, periods, func(c *Config) {
			s := c.Source.(*source)
			s.pods, s.health, s.nodeName = []string{"10.244.1.255"}, 32000, "node-1"
			c.Engine.Desired.Node, c.HealthChecks = "node-1", checks
			c.Kernel.(*fake.Kernel).RejectWith(rejectBroadcast)
		})
		defer r.stop()
		expect := func(when string, want int) {
			t.Helper()
			if got := checks.reported(); got != want {
				t.Errorf("%s: %d local endpoints, want %d", when, got, want)
			}
		}
		for range 60 {
			expect("the only endpoint is rejected", 0)
			time.Sleep(time.Second)
		}
		r.source.set("10.244.1.1", "10.244.1.255")
		expect("another endpoint is served", 1)
		r.kernel.ClearFaults()
		time.Sleep(31 * time.Second)
		expect("the kernel accepts both", 2)
		r.kernel.FailKey(vip)
		r.source.set("10.244.1.1", "10.244.1.2", "10.244.1.255")
		expect("a third one could not be added", 2)
		r.source.set("10.244.1.2")
		expect("the first two could not be removed", 1)
		r.kernel.ClearFaults()
		time.Sleep(31 * time.Second)
		expect("after the retry", 1)
		r.served(t, "10.244.1.2")
		r.source.health = 0
		r.source.set("10.244.1.2")
		if got := checks.wanted[web]; got != 0 {
			t.Errorf("without a health check port %d stays", got)
		}
	})
}
