// Package metrics counts what the proxier does, for Prometheus. Where a metric means what one of kube-proxy's means, it
// has that name, so that dashboards go on working. It is not for health checks.
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

// Metrics are the metrics of one proxier, in a registry of their own. They are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry

	sync, full, partial prometheus.Histogram
	synced, queued      prometheus.Gauge
	services, endpoints prometheus.Counter
	healthz, livez      *prometheus.CounterVec
	programming         prometheus.Histogram

	mu            sync.Mutex
	started       time.Time
	queuedChanges []time.Time // of endpoints, that no pass has taken up
	takenChanges  []time.Time // that the next complete pass brings to the kernel; at most mostChanges

	operations *prometheus.CounterVec
	reopened   *prometheus.CounterVec
	moves      *prometheus.CounterVec
	refused    *prometheus.CounterVec
	repairs    prometheus.Counter
	draining   prometheus.Gauge
	virtuals   prometheus.Gauge
}

// New returns metrics that are all zero.
func New() *Metrics {
	f := factory{prometheus.NewRegistry()}
	m := &Metrics{
		registry: f.registry,
		started:  time.Now(),
		programming: f.histogramOf("kubeproxy_network_programming_duration_seconds", "Time from a change of a pod to the end of the pass that brought it to the kernel.",
			prometheus.ExponentialBuckets(0.001, 2, 20)), // 1 ms to 9 min
		sync:       f.histogram("kubeproxy_sync_proxy_rules_duration_seconds", "Duration of one pass, of either kind."),
		full:       f.histogram("kubeproxy_sync_full_proxy_rules_duration_seconds", "Duration of a pass that reads the whole kernel."),
		partial:    f.histogram("kubeproxy_sync_partial_proxy_rules_duration_seconds", "Duration of a pass over what changed."),
		synced:     f.gauge("kubeproxy_sync_proxy_rules_last_timestamp_seconds", "Time of the last pass that left nothing undone."),
		queued:     f.gauge("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds", "Time of the last change seen in the API."),
		services:   f.counter("kubeproxy_sync_proxy_rules_service_changes_total", "Changes of Services."),
		endpoints:  f.counter("kubeproxy_sync_proxy_rules_endpoint_changes_total", "Changes of EndpointSlices."),
		healthz:    f.counters("kubeproxy_proxy_healthz_total", "Answers to /healthz.", "code"),
		livez:      f.counters("kubeproxy_proxy_livez_total", "Answers to /livez.", "code"),
		operations: f.counters("hitless_proxier_kernel_operations_total", "Operations on the kernel.", "operation", "result"),
		reopened:   f.counters("hitless_proxier_netlink_reopened_total", "Netlink handles given up because no reply came in time.", "table"),
		moves:      f.counters("hitless_proxier_real_servers_total", "What happened to real servers.", "what"),
		refused:    f.counters("hitless_proxier_refused_total", "What the API asked for and the proxier did not program.", "reason"),
		repairs:    f.counter("hitless_proxier_repairs_total", "Rules and sets that were made again, and operations that a pass needed although nothing had changed in the API."),
		draining:   f.gauge("hitless_proxier_draining_real_servers", "Real servers at weight 0 that still have connections."),
		virtuals:   f.gauge("hitless_proxier_virtual_servers", "Virtual servers in the kernel."),
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

func (f factory) counters(name, help string, labels ...string) *prometheus.CounterVec {
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
	return f.histogramOf(name, help, prometheus.ExponentialBuckets(0.0001, 2, 18)) // 100 µs to 13 s
}

func (f factory) histogramOf(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	f.registry.MustRegister(h)
	return h
}

// Handler answers /metrics, /proxyMode with the mode's name as kube-proxy does, and with profiling /debug/pprof/ too.
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

// Pass notes one pass.
func (m *Metrics) Pass(full bool, took time.Duration, complete bool, now time.Time) {
	m.sync.Observe(took.Seconds())
	if full {
		m.full.Observe(took.Seconds())
	} else {
		m.partial.Observe(took.Seconds())
	}
	if complete {
		m.programmed(now)
		m.synced.Set(float64(now.UnixNano()) / 1e9)
	}
}

// ServiceChanged notes a change of a Service.
func (m *Metrics) ServiceChanged(now time.Time) {
	m.services.Inc()
	m.queued.Set(float64(now.UnixNano()) / 1e9)
}

// EndpointsChanged notes a change of an EndpointSlice, and since when it is one; zero where that is not known.
func (m *Metrics) EndpointsChanged(now, since time.Time) {
	m.endpoints.Inc()
	m.queued.Set(float64(now.UnixNano()) / 1e9)
	if since.Before(m.started) {
		return // it was there before this process, which cannot have been late
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queuedChanges = append(m.queuedChanges, since)
}

// mostChanges bounds what is remembered while no pass is complete. The first ones wait longest, and say enough.
const mostChanges = 10000

// Taken notes that a pass takes up all changes so far.
func (m *Metrics) Taken() {
	m.mu.Lock()
	defer m.mu.Unlock()
	room := max(0, mostChanges-len(m.takenChanges))
	m.takenChanges = append(m.takenChanges, m.queuedChanges[:min(room, len(m.queuedChanges))]...)
	m.queuedChanges = nil
}

// programmed observes how long the changes took that have come to the kernel.
func (m *Metrics) programmed(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, since := range m.takenChanges {
		m.programming.Observe(max(0, now.Sub(since).Seconds()))
	}
	m.takenChanges = nil
}

// Answered notes an answer to a health check of the node, of those that kube-proxy has.
func (m *Metrics) Answered(path string, code int) {
	switch path {
	case "/healthz":
		m.healthz.WithLabelValues(strconv.Itoa(code)).Inc()
	case "/livez":
		m.livez.WithLabelValues(strconv.Itoa(code)).Inc()
	}
}

// Reopened notes that a netlink handle was given up.
func (m *Metrics) Reopened(table string) { m.reopened.WithLabelValues(table).Inc() }

// Moved notes what happened to a real server.
func (m *Metrics) Moved(what string) { m.moves.WithLabelValues(what).Inc() }

// Refused notes a refusal.
func (m *Metrics) Refused(reason string) { m.refused.WithLabelValues(reason).Inc() }

// Repaired notes repairs.
func (m *Metrics) Repaired(n int) { m.repairs.Add(float64(n)) }

// Tables notes the size of what is in the kernel.
func (m *Metrics) Tables(virtuals, draining int) {
	m.virtuals.Set(float64(virtuals))
	m.draining.Set(float64(draining))
}

// Kernel returns a kernel whose operations are counted.
func (m *Metrics) Kernel(k kernel.Kernel) kernel.Kernel {
	c := &counted{k, m}
	if b, is := k.(kernel.Batcher); is {
		return &countedBatches{c, b}
	}
	return c
}

type countedBatches struct {
	*counted
	batcher kernel.Batcher
}

func (c *countedBatches) ApplyAll(ops []kernel.Op) []error {
	errs := c.batcher.ApplyAll(ops)
	for i, op := range ops {
		c.count(op.Name(), errs[i])
	}
	return errs
}

type counted struct {
	kernel kernel.Kernel
	m      *Metrics
}

func (c *counted) count(operation string, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	c.m.operations.WithLabelValues(operation, result).Inc()
}

func (c *counted) Apply(op kernel.Op) error {
	err := c.kernel.Apply(op)
	c.count(op.Name(), err)
	return err
}

func (c *counted) Scheduler(name string) error {
	err := c.kernel.Scheduler(name)
	c.count("try-scheduler", err)
	return err
}

func (c *counted) Servers() ([]kernel.Server, error) {
	s, err := c.kernel.Servers()
	c.count("read-servers", err)
	return s, err
}

func (c *counted) Server(k kernel.Key) (kernel.Server, bool, error) {
	s, ok, err := c.kernel.Server(k)
	c.count("read-server", err)
	return s, ok, err
}

func (c *counted) Addresses() (kernel.Addresses, error) {
	a, err := c.kernel.Addresses()
	c.count("read-addresses", err)
	return a, err
}

func (c *counted) Elements() ([]kernel.Element, error) {
	e, err := c.kernel.Elements()
	c.count("read-elements", err)
	return e, err
}
