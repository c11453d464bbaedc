// Package metrics provides the Prometheus metrics of the proxier. Metrics with the meaning of a kube-proxy metric
// have its name, so that dashboards continue to work.
package metrics

import (
	"net/http"
	"net/http/pprof"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/hitless/hitless/proxier/kernel"
)

// Metrics are the metrics of one proxier, in their own registry. They are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry

	sync, full, partial prometheus.Histogram
	synced, queued      prometheus.Gauge
	services, endpoints prometheus.Counter
	healthz, livez      *prometheus.CounterVec
	programming         prometheus.Histogram

	mu            sync.Mutex
	started       time.Time
	queuedChanges []time.Time // times of endpoint changes that no pass has taken
	takenChanges  []time.Time // times of taken changes, until a complete pass; at most maxChanges

	operations        *prometheus.CounterVec
	reopened          *prometheus.CounterVec
	realServerChanges *prometheus.CounterVec
	refused           *prometheus.CounterVec
	repairs           prometheus.Counter
	draining          prometheus.Gauge
	virtuals          prometheus.Gauge
}

// New returns metrics with zero values.
func New() *Metrics {
	f := factory{prometheus.NewRegistry()}
	m := &Metrics{
		registry: f.registry,
		started:  time.Now(),
		programming: f.histogramWithBuckets("kubeproxy_network_programming_duration_seconds", "Time from a change of a pod to the end of the pass that programmed it.",
			prometheus.ExponentialBuckets(0.001, 2, 20)), // 1 ms to 9 min
		sync:              f.histogram("kubeproxy_sync_proxy_rules_duration_seconds", "Duration of a pass over changes or a full pass."),
		full:              f.histogram("kubeproxy_sync_full_proxy_rules_duration_seconds", "Duration of a full pass, which reads the kernel state."),
		partial:           f.histogram("kubeproxy_sync_partial_proxy_rules_duration_seconds", "Duration of a pass over changes."),
		synced:            f.gauge("kubeproxy_sync_proxy_rules_last_timestamp_seconds", "Time of the last pass without failures or pending work."),
		queued:            f.gauge("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds", "Time of the last change received from the API."),
		services:          f.counter("kubeproxy_sync_proxy_rules_service_changes_total", "Changes of Services."),
		endpoints:         f.counter("kubeproxy_sync_proxy_rules_endpoint_changes_total", "Changes of EndpointSlices."),
		healthz:           f.counterVec("kubeproxy_proxy_healthz_total", "Responses to /healthz.", "code"),
		livez:             f.counterVec("kubeproxy_proxy_livez_total", "Responses to /livez.", "code"),
		operations:        f.counterVec("hitless_proxier_kernel_operations_total", "Operations on the kernel.", "operation", "result"),
		reopened:          f.counterVec("hitless_proxier_netlink_reopened_total", "Netlink sockets replaced because no reply arrived in time.", "table"),
		realServerChanges: f.counterVec("hitless_proxier_real_servers_total", "Changes of real servers by kind.", "what"),
		refused:           f.counterVec("hitless_proxier_refused_total", "Parts of API objects that the proxier did not program, by reason.", "reason"),
		repairs:           f.counter("hitless_proxier_repairs_total", "Recreated rules and sets, and operations of full passes that no API change explains."),
		draining:          f.gauge("hitless_proxier_draining_real_servers", "Real servers at weight 0 that still have connections."),
		virtuals:          f.gauge("hitless_proxier_virtual_servers", "Virtual servers in the kernel."),
	}
	f.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

type factory struct{ registry *prometheus.Registry }

func (f factory) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	f.registry.MustRegister(c)
	return c
}

func (f factory) counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	f.registry.MustRegister(c)
	return c
}

func (f factory) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	f.registry.MustRegister(g)
	return g
}

func (f factory) histogram(name, help string) prometheus.Histogram {
	return f.histogramWithBuckets(name, help, prometheus.ExponentialBuckets(0.0001, 2, 18)) // 100 µs to 13 s
}

func (f factory) histogramWithBuckets(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	f.registry.MustRegister(h)
	return h
}

// Handler serves /metrics, /proxyMode with the mode's name as kube-proxy does, and optionally /debug/pprof/.
func (m *Metrics) Handler(profiling bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/proxyMode", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ipvs"))
	})
	if profiling {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// ObservePass records a pass over changes or a full pass.
func (m *Metrics) ObservePass(full bool, took time.Duration, complete bool, now time.Time) {
	m.sync.Observe(took.Seconds())
	if full {
		m.full.Observe(took.Seconds())
	} else {
		m.partial.Observe(took.Seconds())
	}
	if complete {
		m.observeProgrammed(now)
		m.synced.Set(float64(now.UnixNano()) / 1e9)
	}
}

// ServiceChanged records a change of a Service.
func (m *Metrics) ServiceChanged(now time.Time) {
	m.services.Inc()
	m.queued.Set(float64(now.UnixNano()) / 1e9)
}

// EndpointsChanged records a change of an EndpointSlice and the time of its cause; zero if unknown.
func (m *Metrics) EndpointsChanged(now, since time.Time) {
	m.endpoints.Inc()
	m.queued.Set(float64(now.UnixNano()) / 1e9)
	if since.Before(m.started) {
		return // a change before the start of the process
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queuedChanges = append(m.queuedChanges, since)
}

// maxChanges bounds the remembered changes while no pass is complete. The earliest ones are kept.
const maxChanges = 10000

// ChangesTaken records that a pass takes all changes so far.
func (m *Metrics) ChangesTaken() {
	m.mu.Lock()
	defer m.mu.Unlock()
	room := max(0, maxChanges-len(m.takenChanges))
	m.takenChanges = append(m.takenChanges, m.queuedChanges[:min(room, len(m.queuedChanges))]...)
	m.queuedChanges = nil
}

// observeProgrammed records the duration of all taken changes.
func (m *Metrics) observeProgrammed(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, since := range m.takenChanges {
		m.programming.Observe(max(0, now.Sub(since).Seconds()))
	}
	m.takenChanges = nil
}

// HealthResponse records a response to /healthz or /livez.
func (m *Metrics) HealthResponse(path string, code int) {
	switch path {
	case "/healthz":
		m.healthz.WithLabelValues(strconv.Itoa(code)).Inc()
	case "/livez":
		m.livez.WithLabelValues(strconv.Itoa(code)).Inc()
	}
}

// SocketReplaced records a replaced netlink socket.
func (m *Metrics) SocketReplaced(table string) { m.reopened.WithLabelValues(table).Inc() }

// RealServerChanged records a change of a real server.
func (m *Metrics) RealServerChanged(what string) { m.realServerChanges.WithLabelValues(what).Inc() }

// Refused records a refusal.
func (m *Metrics) Refused(reason string) { m.refused.WithLabelValues(reason).Inc() }

// Repaired records repairs.
func (m *Metrics) Repaired(n int) { m.repairs.Add(float64(n)) }

// SetSizes sets the numbers of virtual servers and draining real servers.
func (m *Metrics) SetSizes(virtuals, draining int) {
	m.virtuals.Set(float64(virtuals))
	m.draining.Set(float64(draining))
}

// WrapKernel returns a kernel whose calls are counted.
func (m *Metrics) WrapKernel(k kernel.Kernel) kernel.Kernel {
	c := &countingKernel{k, m}
	if b, is := k.(kernel.Batcher); is {
		return &countingBatcher{c, b}
	}
	return c
}

type countingBatcher struct {
	*countingKernel
	batcher kernel.Batcher
}

func (c *countingBatcher) ApplyAll(ops []kernel.Op) []error {
	errs := c.batcher.ApplyAll(ops)
	for i, op := range ops {
		c.count(op.Name(), errs[i])
	}
	return errs
}

type countingKernel struct {
	kernel kernel.Kernel
	m      *Metrics
}

func (c *countingKernel) count(operation string, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	c.m.operations.WithLabelValues(operation, result).Inc()
}

func (c *countingKernel) Apply(op kernel.Op) error {
	err := c.kernel.Apply(op)
	c.count(op.Name(), err)
	return err
}

func (c *countingKernel) Scheduler(name string) error {
	err := c.kernel.Scheduler(name)
	c.count("try-scheduler", err)
	return err
}

func (c *countingKernel) Servers() ([]kernel.Server, error) {
	s, err := c.kernel.Servers()
	c.count("read-servers", err)
	return s, err
}

func (c *countingKernel) Server(k kernel.Key) (kernel.Server, bool, error) {
	s, ok, err := c.kernel.Server(k)
	c.count("read-server", err)
	return s, ok, err
}

func (c *countingKernel) Addresses() (kernel.Addresses, error) {
	a, err := c.kernel.Addresses()
	c.count("read-addresses", err)
	return a, err
}

func (c *countingKernel) Elements() ([]kernel.Element, error) {
	e, err := c.kernel.Elements()
	c.count("read-elements", err)
	return e, err
}
