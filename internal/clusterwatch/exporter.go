package clusterwatch

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/hitless/hitless/record"
)

// exporter serves the counts of a watch to Prometheus. Without an address it only keeps them. They are those of this process: after a kill
// they begin again, as counters may.
type exporter struct {
	server   *http.Server
	attempts *prometheus.CounterVec
	dropped  *prometheus.CounterVec
	gap      *prometheus.GaugeVec
	outage   *prometheus.GaugeVec
	floor    *prometheus.GaugeVec
	lateness *prometheus.HistogramVec
	up       prometheus.Gauge

	mu     sync.Mutex
	lanes  map[uint16]*exported
	failed func() // called at each failed attempt
}

// exported is a lane with the attempts that its gaps are computed from.
type exported struct {
	labels   prometheus.Labels
	attempts map[record.Class]prometheus.Counter
	dropped  map[record.Class]prometheus.Counter // of the classes that are dropped
	gap      prometheus.Gauge
	outage   prometheus.Gauge
	lateness prometheus.Observer
	interval time.Duration
	next     uint64                    // the first number whose outcome is not known
	pending  map[uint64]record.Attempt // outcomes that came before those of lower numbers
	good     time.Duration             // intended start of the last good attempt, or of the first attempt
	failing  bool
	worst    time.Duration
}

// targetLabels identify a target.
var targetLabels = []string{"service", "port", "address"}

// startExporter listens on an address; with none it serves nothing.
func startExporter(listen string, progress func(string)) (*exporter, error) {
	withClass := append(slices.Clone(targetLabels), "class")
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, targetLabels)
	}
	x := &exporter{lanes: map[uint16]*exported{}, failed: func() {},
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "hitless_attempts_total", Help: "Attempts with a known outcome, by target and class."}, withClass),
		dropped:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "hitless_dropped_total", Help: "Dropped attempts, by target and class: all but ok, delayed and probe."}, withClass),
		gap:      gauge("hitless_worst_gap_seconds", "Upper bound of the longest outage so far; 0 without one."),
		outage:   gauge("hitless_outage_seconds", "Time since the last good attempt while the target fails; 0 while it does not."),
		floor:    gauge("hitless_detection_floor_seconds", "The shortest outage that the target's lane is sure to see."),
		lateness: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "hitless_lateness_seconds", Help: "How much later than scheduled attempts started.",
			Buckets: []float64{0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25}}, targetLabels),
		up: prometheus.NewGauge(prometheus.GaugeOpts{Name: "hitless_targets", Help: "Targets that are measured now."})}
	if listen == "" {
		return x, nil
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(x.attempts, x.dropped, x.gap, x.outage, x.floor, x.lateness, x.up)
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("listening for /metrics: %w; give another address with --listen", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	x.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = x.server.Serve(l) }() // ends with close
	progress(fmt.Sprintf("metrics at http://%s/metrics", l.Addr()))
	return x, nil
}

// onFailure calls a function at each failed attempt from now on. It must not block.
func (x *exporter) onFailure(failed func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.failed = failed
}

func (x *exporter) close() {
	if x.server != nil {
		_ = x.server.Close()
	}
}

// smallestFault is the shortest fault of the proof.
const smallestFault = 20 * time.Millisecond

// begin adds the target of a lane, with zero counts of the classes that every target has.
func (x *exporter) begin(t target) {
	x.mu.Lock()
	defer x.mu.Unlock()
	labels := prometheus.Labels{"service": t.Service, "port": strconv.Itoa(int(t.Port)), "address": net.JoinHostPort(t.Host, strconv.Itoa(int(t.Number)))}
	e := &exported{labels: labels, interval: t.lane.Interval(), good: t.from, pending: map[uint64]record.Attempt{},
		attempts: map[record.Class]prometheus.Counter{}, dropped: map[record.Class]prometheus.Counter{},
		gap: x.gap.With(labels), outage: x.outage.With(labels), lateness: x.lateness.With(labels)}
	for _, earlier := range x.lanes { // to the same target
		if maps.Equal(earlier.labels, labels) {
			e.worst = max(e.worst, earlier.worst)
		}
	}
	x.lanes[t.lane.ID] = e
	attempts, dropped := x.attempts.MustCurryWith(labels), x.dropped.MustCurryWith(labels)
	for _, c := range record.Classes() {
		e.attempts[c] = attempts.WithLabelValues(c.String())
		if c.Dropped() {
			e.dropped[c] = dropped.WithLabelValues(c.String())
		}
	}
	e.outage.Set(0)
	x.floor.With(labels).Set(max(smallestFault, 2*e.interval).Seconds())
	x.up.Inc()
}

// end says that the target is not measured any more. Its counts stay; its present state is unknown.
func (x *exporter) end(t target) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.lanes[t.lane.ID]; e != nil {
		x.outage.Delete(e.labels)
		x.up.Dec()
		e.failing, e.interval = false, 0
	}
}

// attempt counts an attempt of a measured lane.
func (x *exporter) attempt(a *record.Attempt) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.lanes[a.Lane]
	if e == nil {
		return
	}
	e.attempts[a.Class].Inc()
	if a.Class.Dropped() {
		e.dropped[a.Class].Inc()
	}
	if a.Class != record.OK && a.Class != record.Probe {
		x.failed()
	}
	e.lateness.Observe(a.Lateness().Seconds())
	e.pending[a.Seq] = *a
	for {
		next, known := e.pending[e.next]
		if !known {
			break
		}
		delete(e.pending, e.next)
		e.next++
		e.take(&next)
	}
	e.gap.Set(e.worst.Seconds())
	if e.interval > 0 {
		e.outage.Set(e.lasting(a.Intended).Seconds())
	}
}

// take adds the next attempt in the order of the schedule.
func (e *exported) take(a *record.Attempt) {
	switch {
	case a.Class == record.Probe:
	case a.Class == record.OK:
		if e.failing {
			e.worst = max(e.worst, a.Intended-e.good)
		}
		e.failing, e.good = false, a.Intended
	default:
		e.failing = true
		e.worst = max(e.worst, a.Intended-e.good)
	}
}

// lasting is how long the present outage has lasted; 0 for none.
func (e *exported) lasting(until time.Duration) time.Duration {
	if !e.failing {
		return 0
	}
	return max(0, until-e.good)
}
