package proxier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/proxier/desired"
	"github.com/hitless/hitless/proxier/drain"
	"github.com/hitless/hitless/proxier/engine"
	"github.com/hitless/hitless/proxier/fake"
	"github.com/hitless/hitless/proxier/health"
	"github.com/hitless/hitless/proxier/kernel"
	"github.com/hitless/hitless/proxier/metrics"
)

// source is one Service whose endpoints a test sets.
type source struct {
	changed   chan struct{}
	pods      []string
	externals []string
	health    int32 // healthCheckNodePort of a balancer's address; 0 for none
	node      *health.Node
}

var (
	web = types.NamespacedName{Namespace: "shop", Name: "web"}
	vip = kernel.Key{Addr: netip.MustParseAddr("10.96.0.10"), Protocol: kernel.TCP, Port: 80}
)

func (s *source) Run(context.Context) error     { return nil }
func (s *source) Changed() <-chan struct{}      { return s.changed }
func (s *source) Names() []types.NamespacedName { return []types.NamespacedName{web} }
func (s *source) NodeAddresses() []netip.Addr   { return nil }
func (s *source) NodeZone() string              { return "" }
func (s *source) Take() []types.NamespacedName  { s.node.Taken(); return s.Names() }
func (s *source) Service(types.NamespacedName) *v1.Service {
	svc := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name}}
	svc.Spec.ClusterIP, svc.Spec.ExternalIPs, svc.Spec.Ports = vip.Addr.String(), s.externals, []v1.ServicePort{{Port: 80}}
	if s.health != 0 {
		svc.Spec.Type, svc.Spec.HealthCheckNodePort = v1.ServiceTypeLoadBalancer, s.health
		svc.Spec.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyLocal
	}
	return svc
}

func (s *source) Slices(types.NamespacedName) []*discovery.EndpointSlice {
	port := int32(8080)
	e := &discovery.EndpointSlice{AddressType: discovery.AddressTypeIPv4, Ports: []discovery.EndpointPort{{Port: &port}}}
	for _, pod := range s.pods {
		e.Endpoints = append(e.Endpoints, discovery.Endpoint{Addresses: []string{pod}})
	}
	return []*discovery.EndpointSlice{e}
}

func (s *source) set(pods ...string) {
	s.pods = pods
	s.node.Queued()
	s.changed <- struct{}{}
	synctest.Wait()
}

// rig is a running proxier in a bubble of virtual time.
type rig struct {
	source  *source
	kernel  *fake.Kernel
	node    *health.Node
	metrics *metrics.Metrics
	log     *bytes.Buffer
	stop    func() error
}

func start(t *testing.T, periods Periods) *rig {
	return startOn(t, periods, func(k *fake.Kernel) kernel.Kernel { return k })
}

// startOn is start with a kernel that is made of the rig's fake.
func startOn(t *testing.T, periods Periods, made func(*fake.Kernel) kernel.Kernel) *rig {
	t.Helper()
	return startWith(t, periods, func(c *Config) { c.Kernel = made(c.Kernel.(*fake.Kernel)) })
}

// startWith is start with another Config.
func startWith(t *testing.T, periods Periods, change func(*Config)) *rig {
	t.Helper()
	r := &rig{kernel: fake.New(), metrics: metrics.New(), log: &bytes.Buffer{}}
	r.node = health.NewNode(30*time.Second, time.Now, nil)
	r.source = &source{changed: make(chan struct{}, 1), pods: []string{"10.244.1.1"}, node: r.node}
	ctx, cancel := context.WithCancel(context.Background())
	c := Config{Source: r.source, Kernel: r.kernel, Node: r.node, Metrics: r.metrics, Periods: periods,
		Engine: engine.Options{Desired: desired.Options{Scheduler: "rr"}, Drain: drain.Limits{Terminated: 2 * time.Hour, Unlisted: 2 * time.Hour, FirstCheck: 5 * time.Second}, Now: time.Now},
		Checks: health.NewServices(r.node.Healthy), Log: slog.New(slog.NewTextHandler(r.log, nil))}
	change(&c)
	done := make(chan error, 1)
	go func() { done <- New(c).Run(ctx) }()
	r.stop = func() error {
		cancel()
		return <-done
	}
	synctest.Wait()
	return r
}

func (r *rig) served(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	server, _, err := r.kernel.Server(vip)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, real := range server.Reals {
		if real.Weight > 0 {
			got = append(got, real.Addr.Addr().String())
		}
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("served by %v, want %v", got, want)
	}
}

func (r *rig) healthz() int {
	w := httptest.NewRecorder()
	r.node.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/healthz", nil))
	return w.Code
}

func (r *rig) logged() string {
	synctest.Wait()
	return r.log.String()
}

// counted returns the value of a line of the metrics.
func (r *rig) counted(line string) string {
	synctest.Wait()
	w := httptest.NewRecorder()
	r.metrics.Handler(false).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, l := range strings.Split(w.Body.String(), "\n") {
		if rest, ok := strings.CutPrefix(l, line+" "); ok {
			return rest
		}
	}
	return ""
}

var periods = Periods{Retry: 30 * time.Second, Reconcile: 15 * time.Minute, Flows: time.Second}

func TestLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, periods)
		r.served(t, "10.244.1.1")
		if code := r.healthz(); code != 200 {
			t.Errorf("/healthz is %d after the first pass", code)
		}
		r.source.set("10.244.1.1", "10.244.1.2")
		r.served(t, "10.244.1.1", "10.244.1.2")
		r.source.set("10.244.1.2")
		r.served(t, "10.244.1.2")
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if server, _, _ := r.kernel.Server(vip); len(server.Reals) != 1 {
			t.Errorf("after the drain: %v", server.Reals)
		}
		for _, line := range []string{
			`msg=endpoint service=shop/web vip=10.96.0.10:80/tcp rs=10.244.1.1:8080 what=draining`,
			`msg=endpoint service=shop/web vip=10.96.0.10:80/tcp rs=10.244.1.1:8080 what=deleted`,
			`msg=synced over=changes services=1 operations=1 failures=0 draining=1 us=`,
		} {
			if !strings.Contains(r.logged(), line) {
				t.Errorf("the log has no %q:\n%s", line, r.logged())
			}
		}
		if got := r.counted(`hitless_proxier_real_servers_total{what="deleted"}`); got != "1" {
			t.Errorf("deleted real servers counted: %q, want 1", got)
		}
		before := len(r.kernel.Ops())
		if err := r.stop(); err != nil {
			t.Errorf("stopped with %v", err)
		}
		if r.served(t, "10.244.1.2"); len(r.kernel.Ops()) != before || !r.kernel.State().Bound(vip.Addr) {
			t.Error("the kernel was changed at the end")
		}
	})
}

// With nothing to do, only the reconciliation wakes the proxier. Idle wake-ups are the price of a soak in virtual time.
func TestIdleness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, periods)
		defer r.stop()
		reads := func() string {
			return r.counted(`hitless_proxier_kernel_operations_total{operation="read-server",result="ok"}`) + "+" +
				r.counted(`hitless_proxier_kernel_operations_total{operation="read-servers",result="ok"}`)
		}
		time.Sleep(14 * time.Minute)
		if got := reads(); got != "+1" {
			t.Errorf("reads in 14 idle minutes: %s, want the first one only", got)
		}
		time.Sleep(2 * time.Minute)
		if got := reads(); got != "+2" {
			t.Errorf("reads after the reconciliation: %s", got)
		}
		r.kernel.SetConnections(vip, netip.MustParseAddrPort("10.244.1.1:8080"), 1, 0)
		r.source.set("10.244.1.2")
		time.Sleep(time.Minute + time.Second)
		if got := reads(); got != "6+2" { // after 5, 11, 19, 29, 41 and 56 s
			t.Errorf("reads while one drained for a minute: %s, want ever fewer", got)
		}
		r.source.set("10.244.1.1", "10.244.1.2")
		time.Sleep(5 * time.Minute)
		if got := reads(); got != "6+2" {
			t.Errorf("reads after the drain was cancelled: %s", got)
		}
	})
}

// What has drained for long is looked at seldom, and goes a minute after its last connection all the same; what begins to drain later
// does not have to wait for that.
func TestOldDrainsAreLookedAtSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, Periods{Retry: 30 * time.Second, Flows: time.Second})
		defer r.stop()
		old, young := netip.MustParseAddrPort("10.244.1.1:8080"), netip.MustParseAddrPort("10.244.1.2:8080")
		has := func(real netip.AddrPort) bool {
			synctest.Wait()
			_, exists := r.kernel.State().Weight(vip, real)
			return exists
		}
		r.kernel.SetConnections(vip, old, 1, 0)
		r.source.set("10.244.1.2")
		time.Sleep(30 * time.Minute)
		r.kernel.SetConnections(vip, young, 1, 0)
		r.source.set("10.244.1.3")
		r.kernel.SetConnections(vip, young, 0, 0)
		time.Sleep(5 * time.Second)
		if has(young) || !has(old) {
			t.Errorf("5 s after it began to drain, without connections: %t; what has drained for half an hour: %t; want false, true", has(young), has(old))
		}
		time.Sleep(30 * time.Minute)
		r.kernel.SetConnections(vip, old, 0, 0)
		if time.Sleep(time.Minute); has(old) {
			t.Error("a minute after its last connection the old one is there")
		}
	})
}

// deaf is a kernel that does not let single virtual servers be read, after it has been told so.
type deaf struct {
	kernel.Kernel
	told  atomic.Bool
	reads atomic.Int64
}

func (d *deaf) Server(k kernel.Key) (kernel.Server, bool, error) {
	if d.reads.Add(1); d.told.Load() {
		return kernel.Server{}, false, errors.New("not now")
	}
	return d.Kernel.Server(k)
}

// What drains is looked at once a second at most, also when its time is up and it cannot be read, and with looks at every occasion.
func TestLooksAreNotTooMany(t *testing.T) {
	for _, look := range []time.Duration{5 * time.Second, 0} {
		synctest.Test(t, func(t *testing.T) {
			var d *deaf
			r := startWith(t, periods, func(c *Config) {
				d = &deaf{Kernel: c.Kernel}
				c.Kernel, c.Engine.Drain = d, drain.Limits{Terminated: time.Hour, Unlisted: time.Minute, FirstCheck: look}
			})
			defer r.stop()
			real := netip.MustParseAddrPort("10.244.1.1:8080")
			r.kernel.SetConnections(vip, real, 1, 0)
			r.source.set("10.244.1.2")
			looks := func(d *deaf, during time.Duration) int64 {
				before := d.reads.Load()
				time.Sleep(during)
				synctest.Wait()
				return d.reads.Load() - before
			}
			if n := looks(d, 30*time.Second); n < 1 || n > 31 {
				t.Errorf("first look after %s: %d looks in 30 s", look, n)
			}
			d.told.Store(true)
			time.Sleep(30 * time.Second)
			if n := looks(d, time.Minute); n < 1 || n > 61 {
				t.Errorf("first look after %s: %d looks in the minute after its time was up, none of which succeeds", look, n)
			}
			d.told.Store(false)
			if n := looks(d, time.Minute); n < 1 || n > 2 {
				t.Errorf("first look after %s: %d looks until it was gone", look, n)
			}
			if _, left := r.kernel.State().Weight(vip, real); left {
				t.Errorf("first look after %s: it is still there", look)
			}
		})
	}
}

func TestFailureIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, periods)
		defer r.stop()
		r.kernel.FailAt(0, fake.Crash)
		r.source.set("10.244.1.2")
		time.Sleep(59 * time.Second)
		if code := r.healthz(); code != 200 {
			t.Errorf("/healthz is %d while the change is younger than two periods", code)
		}
		time.Sleep(2 * time.Second)
		if code := r.healthz(); code != 503 {
			t.Errorf("/healthz is %d with a change that is pending for more than two periods", code)
		}
		if tries := strings.Count(r.logged(), "msg=failed"); tries > 10 {
			t.Errorf("tried %d times in a minute: no back-off", tries)
		}
		r.kernel.ClearFaults()
		time.Sleep(30 * time.Second)
		r.served(t, "10.244.1.2")
		if code := r.healthz(); code != 200 {
			t.Errorf("/healthz is %d after it was cured", code)
		}
	})
}

// What conntrack remembers is forgotten soon after a change, once for many changes, and again when it failed.
func TestFlowsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, periods)
		defer r.stop()
		done := func() string {
			return r.counted(`hitless_proxier_kernel_operations_total{operation="forget-flows",result="ok"}`) + " done, " +
				r.counted(`hitless_proxier_kernel_operations_total{operation="forget-flows",result="error"}`) + " failed"
		}
		if time.Sleep(2 * time.Second); done() != "1 done,  failed" {
			t.Errorf("after the start: %s", done())
		}
		time.Sleep(time.Hour)
		if got := done(); got != "1 done,  failed" {
			t.Errorf("after an idle hour: %s", got)
		}
		if err := r.kernel.ApplyExternally(kernel.Unbind{Addr: vip.Addr}); err != nil {
			t.Fatal(err)
		}
		r.kernel.FailAt(1, fake.Fail) // binding it again is 0
		time.Sleep(20 * time.Minute)
		if got := done(); got != "2 done, 1 failed" {
			t.Errorf("after a repair: %s", got)
		}
		if !strings.Contains(r.logged(), "forget-flows 10.96.0.10:80/tcp") {
			t.Errorf("the failure is not in the log:\n%s", r.logged())
		}
	})
}

// What is refused is logged once and counted once, however often the Service is looked at; and again when it comes back.
func TestRefusedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, periods)
		defer r.stop()
		told := func(when string, want int) {
			t.Helper()
			line := `msg=refused service=shop/web reason=bad-address detail="127.0.0.1 is a loopback address"`
			if got := strings.Count(r.logged(), line); got != want {
				t.Errorf("%s: logged %d times, want %d:\n%s", when, got, want, r.logged())
			}
			if got := r.counted(`hitless_proxier_refused_total{reason="bad-address"}`); got != fmt.Sprint(want) {
				t.Errorf("%s: counted %s, want %d", when, got, want)
			}
		}
		r.source.externals = []string{"127.0.0.1"}
		for range 3 {
			r.source.set("10.244.1.1")
		}
		time.Sleep(31 * time.Minute) // two reconciliations
		told("after three changes and two reconciliations", 1)
		r.source.externals = nil
		r.source.set("10.244.1.1")
		r.source.externals = []string{"127.0.0.1"}
		r.source.set("10.244.1.1")
		told("after it was gone and came back", 2)
		r.served(t, "10.244.1.1")
	})
}

// Whatever is refused is logged by name, however much of it there is in one pass.
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
				t.Fatalf("%s is refused, and logged %d times", a, n)
			}
		}
	})
}

// hostPorts are Checks that open nothing: a network would never be idle in a bubble. Other programs may have ports.
type hostPorts struct {
	mu           sync.Mutex
	wanted, open map[types.NamespacedName]uint16
	taken        map[uint16]bool
}

func (p *hostPorts) Set(name types.NamespacedName, port uint16, _ int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted[name] = port
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

// leave is the end of the other program.
func (p *hostPorts) leave(port uint16) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.taken, port)
}

// opened returns the port that is open for a Service, 0 for none.
func (p *hostPorts) opened(name types.NamespacedName) uint16 {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open[name]
}

// A health check port that another program has is opened soon after that one leaves it, whether or not the kernel is ever read
// again; it is said once, and is no fault of the proxier's.
func TestHealthCheckPortInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		checks := &hostPorts{wanted: map[types.NamespacedName]uint16{}, open: map[types.NamespacedName]uint16{}, taken: map[uint16]bool{32000: true}}
		r := startWith(t, Periods{Retry: 30 * time.Second, Flows: time.Second}, func(c *Config) { c.Checks = checks })
		defer r.stop()
		r.source.health = 32000
		r.source.set("10.244.1.1")
		time.Sleep(10 * time.Minute)
		if said := strings.Count(r.logged(), "port 32000 is in use"); said != 1 || r.healthz() != 200 || checks.opened(web) != 0 {
			t.Errorf("in use for ten minutes: said %d times, /healthz is %d, open %d", said, r.healthz(), checks.opened(web))
		}
		checks.leave(32000)
		time.Sleep(31 * time.Second)
		if got := checks.opened(web); got != 32000 {
			t.Errorf("31 s after it was left, open is %d", got)
		}
	})
}

// broadcast refuses real servers at a directed broadcast address, as ip_vs_new_dest does.
func broadcast(op kernel.Op) error {
	if o, adding := op.(kernel.AddReal); adding && o.Real.Addr() == netip.MustParseAddr("10.244.1.255") {
		return syscall.EINVAL
	}
	return nil
}

// An endpoint that the kernel refuses for good costs the node nothing: its other endpoints serve, it is healthy and ready, also from
// the start, and this is said and counted once. The endpoint is tried again, and serves when the kernel takes it.
func TestEndpointThatTheKernelRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startWith(t, periods, func(c *Config) {
			c.Source.(*source).pods = []string{"10.244.1.255", "10.244.1.9"}
			c.Kernel.(*fake.Kernel).RejectWith(broadcast)
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
		if n := strings.Count(r.logged(), line); n != 1 || r.counted(`hitless_proxier_refused_total{reason="kernel-refused"}`) != "1" {
			t.Errorf("said %d times:\n%s", n, r.logged())
		}
		if n := strings.Count(r.logged(), "\n"); n > 20 {
			t.Errorf("%d lines in 40 minutes:\n%s", n, r.logged())
		}
		r.kernel.ClearFaults()
		time.Sleep(31 * time.Second)
		r.served(t, "10.244.1.2", "10.244.1.255")
	})
}

func TestMinSyncPeriodGathersChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := periods
		slow.MinSync = time.Second
		r := start(t, slow)
		defer r.stop()
		r.source.set("10.244.1.2")
		r.served(t, "10.244.1.2")
		r.source.set("10.244.1.3")
		r.served(t, "10.244.1.2")
		time.Sleep(time.Second)
		r.served(t, "10.244.1.3")
	})
}

// What `nft flush ruleset` takes away is back at once, and said and counted; a kernel that does not tell of it waits for the
// reconciliation. When it happens again and again, so does the repair, but no more than ten times a second.
func TestFlushIsRepaired(t *testing.T) {
	for _, watched := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := startOn(t, periods, func(k *fake.Kernel) kernel.Kernel {
				if watched {
					return k
				}
				return struct{ kernel.Kernel }{k}
			})
			defer r.stop()
			all := len(r.kernel.State().Elements())
			repaired := func() bool { synctest.Wait(); return all > 0 && len(r.kernel.State().Elements()) == all }
			if r.kernel.FlushSets(); repaired() != watched {
				t.Errorf("watched %v: of %d elements %v are there at once", watched, all, r.kernel.State().Elements())
			}
			time.Sleep(16 * time.Minute)
			if !repaired() || r.counted("hitless_proxier_repairs_total") != "1" || strings.Count(r.logged(), `msg=repaired operation="change-sets +`) != 1 {
				t.Errorf("watched %v: after the reconciliation %d of %d elements, %s repairs:\n%s", watched,
					len(r.kernel.State().Elements()), all, r.counted("hitless_proxier_repairs_total"), r.logged())
			}
			if !watched {
				return
			}
			for range 1000 {
				r.kernel.FlushSets()
				time.Sleep(time.Millisecond)
			}
			time.Sleep(time.Second)
			if n := strings.Count(r.logged(), "msg=repaired"); !repaired() || n < 8 || n > 12 {
				t.Errorf("a second of flushes was repaired %d times, in the end: %v", n, repaired())
			}
		})
	}
}

// A repair that fails is tried again.
func TestRepairIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, periods)
		defer r.stop()
		all := len(r.kernel.State().Elements())
		r.kernel.FailAt(0, fake.Fail)
		r.kernel.FlushSets()
		if synctest.Wait(); len(r.kernel.State().Elements()) != 0 {
			t.Fatal("the repair did not fail")
		}
		time.Sleep(2 * time.Second)
		if synctest.Wait(); len(r.kernel.State().Elements()) != all {
			t.Errorf("after 2 s there are %v, want %d elements", r.kernel.State().Elements(), all)
		}
	})
}

// A kernel that cannot be read ends the program with the reason, and not with an empty node.
func TestKernelThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{kernel: fake.New(), metrics: metrics.New()}
		r.node = health.NewNode(time.Minute, time.Now, nil)
		r.kernel.FailAt(0, fake.Crash)
		if err := r.kernel.Apply(kernel.Bind{}); err == nil {
			t.Fatal("the kernel lives")
		}
		err := New(Config{Source: &source{node: r.node}, Kernel: r.kernel, Node: r.node, Metrics: r.metrics, Periods: periods,
			Checks: health.NewServices(r.node.Healthy), Log: slog.New(slog.DiscardHandler)}).Run(context.Background())
		if err == nil || !strings.Contains(err.Error(), "reading the addresses") {
			t.Errorf("it ended with %v", err)
		}
	})
}

func TestProxyMode(t *testing.T) {
	w := httptest.NewRecorder()
	metrics.New().Handler(false).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/proxyMode", nil))
	if w.Body.String() != "ipvs" {
		t.Errorf("/proxyMode is %q, want ipvs", w.Body)
	}
}

func TestProfilingIsBehindItsFlag(t *testing.T) {
	for profiling, want := range map[bool]int{false: http.StatusNotFound, true: http.StatusOK} {
		w := httptest.NewRecorder()
		metrics.New().Handler(profiling).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/pprof/", nil))
		if w.Code != want {
			t.Errorf("profiling %v: /debug/pprof/ is %d, want %d", profiling, w.Code, want)
		}
	}
}

func TestCommandRefusesBadFlags(t *testing.T) {
	for flag, want := range map[string]string{
		"--nodeport-addresses=127.0.0.0/8":        "loopback",
		"--proxy-mode=iptables":                   "ipvs only",
		"--log-format=xml":                        "text or json",
		"--ipvs-scheduler=dh":                     "rr, sed, sh",
		"--cluster-cidr=10.0.0.0/99":              "--cluster-cidr",
		"--detect-local-mode=Magic":               "NodeCIDR, BridgeInterface",
		"--detect-local-mode=BridgeInterface":     "--pod-bridge-interface",
		"--detect-local-mode=InterfaceNamePrefix": "--pod-interface-name-prefix",
		"--kubeconfig=/does/not/exist":            "--kubeconfig",
		"--no-such-flag":                          "unknown flag",
		"--drain-interval=soon":                   "invalid",
		"--drain-interval=-1s":                    "--drain-interval is -1s",
		"--drain-period=-1m":                      "--drain-period is -1m",
		"--drain-gone-period=-1m":                 "--drain-gone-period is -1m",
		"--ipvs-sync-period=0s":                   "--ipvs-sync-period is 0s",
		"--ipvs-min-sync-period=-1s":              "--ipvs-min-sync-period is -1s",
		"--reconcile-period=-1s":                  "--reconcile-period is -1s",
		"--ipvs-udp-timeout=-1s":                  "--ipvs-udp-timeout is -1s",
	} {
		c := Command()
		c.SetArgs([]string{flag, "--master=http://127.0.0.1:1"})
		c.SetOut(&bytes.Buffer{})
		c.SetErr(&bytes.Buffer{})
		if err := c.ExecuteContext(context.Background()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one that says %q", flag, err, want)
		}
	}
}
