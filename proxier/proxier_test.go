package proxier

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
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

// source provides one Service whose endpoints a test sets.
type source struct {
	changed   chan struct{}
	pods      []string
	externals []string
	health    int32  // healthCheckNodePort; 0 for none
	nodeName  string // node of the endpoints; empty for none
	node      *health.Node
	queued    bool // changed since the last TakeChanged
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
func (s *source) TakeChanged() []types.NamespacedName {
	s.node.Taken()
	changed := s.queued
	s.queued = false
	if !changed {
		return nil
	}
	return s.Names()
}

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
	var on *string
	if s.nodeName != "" {
		on = &s.nodeName
	}
	for _, pod := range s.pods {
		e.Endpoints = append(e.Endpoints, discovery.Endpoint{Addresses: []string{pod}, NodeName: on})
	}
	return []*discovery.EndpointSlice{e}
}

func (s *source) set(pods ...string) {
	s.pods, s.queued = pods, true
	s.node.Queued()
	s.changed <- struct{}{}
	synctest.Wait()
}

// rig is a running proxier in a synctest bubble with virtual time.
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

// startOn is start with a kernel made from the rig's fake.
func startOn(t *testing.T, periods Periods, made func(*fake.Kernel) kernel.Kernel) *rig {
	t.Helper()
	return startWith(t, periods, func(c *Config) { c.Kernel = made(c.Kernel.(*fake.Kernel)) })
}

// startWith is start with a changed Config.
func startWith(t *testing.T, periods Periods, change func(*Config)) *rig {
	t.Helper()
	r := &rig{kernel: fake.New(), metrics: metrics.New(), log: &bytes.Buffer{}}
	r.node = health.NewNode(30*time.Second, time.Now, nil)
	r.source = &source{changed: make(chan struct{}, 1), pods: []string{"10.244.1.1"}, node: r.node}
	ctx, cancel := context.WithCancel(context.Background())
	c := Config{Source: r.source, Kernel: r.kernel, Node: r.node, Metrics: r.metrics, Periods: periods,
		Engine:       engine.Options{Desired: desired.Options{Scheduler: "rr"}, Drain: drain.Limits{Terminated: 2 * time.Hour, Unlisted: 2 * time.Hour, FirstCheck: 5 * time.Second}, Now: time.Now},
		HealthChecks: health.NewServices(r.node.Healthy), Log: slog.New(slog.NewTextHandler(r.log, nil))}
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

// metric returns the value of a line of the metrics.
func (r *rig) metric(line string) string {
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

var periods = Periods{Retry: 30 * time.Second, Reconcile: 15 * time.Minute, Look: 30 * time.Second, Flows: time.Second}

func TestProxierLifecycle(t *testing.T) {
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
		if got := r.metric(`hitless_proxier_real_servers_total{what="deleted"}`); got != "1" {
			t.Errorf("deleted real servers counted: %q, want 1", got)
		}
		before := len(r.kernel.Ops())
		if err := r.stop(); err != nil {
			t.Errorf("stopped with %v", err)
		}
		if r.served(t, "10.244.1.2"); len(r.kernel.Ops()) != before || !r.kernel.State().Bound(vip.Addr) {
			t.Error("the kernel was changed by the stop")
		}
	})
}

// An emptied IPVS table is repaired at the next look.
func TestAnEmptiedTableIsRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, periods)
		defer r.stop()
		r.served(t, "10.244.1.1")
		if err := r.kernel.Apply(kernel.DeleteVirtual{Key: vip}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(29 * time.Second)
		r.served(t)
		time.Sleep(2 * time.Second)
		r.served(t, "10.244.1.1")
		if got := r.metric("hitless_proxier_repairs_total"); got == "" || got == "0" || !strings.Contains(r.logged(), "has deleted a virtual server") {
			t.Errorf("%s repairs:\n%s", got, r.logged())
		}
	})
}

// An idle proxier wakes up for looks and reconciliations only, since wake-ups cost time in soak runs with a virtual clock.
func TestIdleWakeUps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, periods)
		defer r.stop()
		reads := func() string {
			return r.metric(`hitless_proxier_kernel_operations_total{operation="read-server",result="ok"}`) + "+" +
				r.metric(`hitless_proxier_kernel_operations_total{operation="read-servers",result="ok"}`)
		}
		time.Sleep(14 * time.Minute)
		if got := reads(); got != "28+1" {
			t.Errorf("reads in 14 idle minutes: %s, want one virtual server each 30 s, and everything once", got)
		}
		time.Sleep(2 * time.Minute)
		if got := reads(); got != "32+2" {
			t.Errorf("reads after the reconciliation: %s", got)
		}
		r.kernel.SetConnections(vip, netip.MustParseAddrPort("10.244.1.1:8080"), 1, 0)
		r.source.set("10.244.1.2")
		time.Sleep(time.Minute + time.Second)
		if got := reads(); got != "40+2" { // after 5, 11, 19, 29, 41 and 56 s, besides two looks
			t.Errorf("reads while a real server drained for a minute: %s, want 40+2", got)
		}
		r.source.set("10.244.1.1", "10.244.1.2")
		time.Sleep(5 * time.Minute)
		if got := reads(); got != "50+2" {
			t.Errorf("reads after the drain was cancelled: %s", got)
		}
	})
}

// Old drains are checked rarely, and end at most a minute after their last connection. Newer drains do not wait for
// them.
func TestOldDrainsAreCheckedRarely(t *testing.T) {
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
			t.Errorf("new drain without connections exists after 5 s: %t; drain of half an hour exists: %t; want false, true", has(young), has(old))
		}
		time.Sleep(30 * time.Minute)
		r.kernel.SetConnections(vip, old, 0, 0)
		if time.Sleep(time.Minute); has(old) {
			t.Error("the old real server exists a minute after its last connection")
		}
	})
}

// failingReads is a kernel whose reads of single virtual servers fail once enabled.
type failingReads struct {
	kernel.Kernel
	told  atomic.Bool
	reads atomic.Int64
}

func (d *failingReads) Server(k kernel.Key) (kernel.Server, bool, error) {
	if d.reads.Add(1); d.told.Load() {
		return kernel.Server{}, false, errors.New("injected failure")
	}
	return d.Kernel.Server(k)
}

// Draining real servers are checked at most once a second, even if they cannot be read at their limit, and with a
// first interval of 0.
func TestDrainChecksAreRateLimited(t *testing.T) {
	for _, look := range []time.Duration{5 * time.Second, 0} {
		synctest.Test(t, func(t *testing.T) {
			var d *failingReads
			r := startWith(t, Periods{Retry: 30 * time.Second, Reconcile: 15 * time.Minute, Flows: time.Second}, func(c *Config) {
				d = &failingReads{Kernel: c.Kernel}
				c.Kernel, c.Engine.Drain = d, drain.Limits{Terminated: time.Hour, Unlisted: time.Minute, FirstCheck: look}
			})
			defer r.stop()
			real := netip.MustParseAddrPort("10.244.1.1:8080")
			r.kernel.SetConnections(vip, real, 1, 0)
			r.source.set("10.244.1.2")
			looks := func(d *failingReads, during time.Duration) int64 {
				before := d.reads.Load()
				time.Sleep(during)
				synctest.Wait()
				return d.reads.Load() - before
			}
			if n := looks(d, 30*time.Second); n < 1 || n > 31 {
				t.Errorf("first check after %s: %d checks in 30 s", look, n)
			}
			d.told.Store(true)
			time.Sleep(30 * time.Second)
			if n := looks(d, time.Minute); n < 1 || n > 61 {
				t.Errorf("first check after %s: %d failing checks in the minute after the limit", look, n)
			}
			d.told.Store(false)
			if n := looks(d, time.Minute); n < 1 || n > 2 {
				t.Errorf("first check after %s: %d checks until deletion", look, n)
			}
			if _, left := r.kernel.State().Weight(vip, real); left {
				t.Errorf("first check after %s: the real server still exists", look)
			}
		})
	}
}

func TestFailureIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, periods)
		defer r.stop()
		r.kernel.FailAt(0, fake.Crash)
		r.source.set("10.244.1.2")
		time.Sleep(59 * time.Second)
		if code := r.healthz(); code != 200 {
			t.Errorf("/healthz is %d with a change that is pending for less than two periods", code)
		}
		time.Sleep(2 * time.Second)
		if code := r.healthz(); code != 503 {
			t.Errorf("/healthz is %d with a change that is pending for more than two periods", code)
		}
		if tries := strings.Count(r.logged(), "msg=failed"); tries > 10 {
			t.Errorf("%d retries in a minute: no backoff", tries)
		}
		r.kernel.ClearFaults()
		time.Sleep(30 * time.Second)
		r.served(t, "10.244.1.2")
		if code := r.healthz(); code != 200 {
			t.Errorf("/healthz is %d after the retry succeeded", code)
		}
	})
}

// Stale flows are deleted soon after a change, once for many changes, and again after a failure.
func TestStaleFlowsAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, periods)
		defer r.stop()
		done := func() string {
			return r.metric(`hitless_proxier_kernel_operations_total{operation="forget-flows",result="ok"}`) + " done, " +
				r.metric(`hitless_proxier_kernel_operations_total{operation="forget-flows",result="error"}`) + " failed"
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
		r.kernel.FailAt(1, fake.Fail) // operation 0 binds the address
		time.Sleep(20 * time.Minute)
		if got := done(); got != "2 done, 1 failed" {
			t.Errorf("after a repair: %s", got)
		}
		if !strings.Contains(r.logged(), "forget-flows 10.96.0.10:80/tcp") {
			t.Errorf("the failure is not in the log:\n%s", r.logged())
		}
	})
}

func TestMinSyncPeriodBatchesChanges(t *testing.T) {
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

// Elements that `nft flush ruleset` deletes are restored at once, logged and counted. Without notifications the
// reconciliation restores them. Repeated deletions are repaired at most ten times a second.
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
				t.Errorf("monitored %v: of %d elements %v exist at once", watched, all, r.kernel.State().Elements())
			}
			time.Sleep(16 * time.Minute)
			if !repaired() || r.metric("hitless_proxier_repairs_total") != "1" || strings.Count(r.logged(), `msg=repaired operation="change-sets +`) != 1 {
				t.Errorf("monitored %v: after the reconciliation %d of %d elements, %s repairs:\n%s", watched,
					len(r.kernel.State().Elements()), all, r.metric("hitless_proxier_repairs_total"), r.logged())
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

// A failed repair is retried.
func TestFailedRepairIsRetried(t *testing.T) {
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
			t.Errorf("elements after 2 s %v, want %d", r.kernel.State().Elements(), all)
		}
	})
}

// An unreadable kernel ends the program with an error instead of an unprogrammed node.
func TestUnreadableKernel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{kernel: fake.New(), metrics: metrics.New()}
		r.node = health.NewNode(time.Minute, time.Now, nil)
		r.kernel.FailAt(0, fake.Crash)
		if err := r.kernel.Apply(kernel.Bind{}); err == nil {
			t.Fatal("the kernel is readable")
		}
		err := New(Config{Source: &source{node: r.node}, Kernel: r.kernel, Node: r.node, Metrics: r.metrics, Periods: periods,
			HealthChecks: health.NewServices(r.node.Healthy), Log: slog.New(slog.DiscardHandler)}).Run(context.Background())
		if err == nil || !strings.Contains(err.Error(), "addresses") {
			t.Errorf("it ended with %v", err)
		}
	})
}
