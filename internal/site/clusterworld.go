package site

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hitless/hitless/cluster"
	"github.com/hitless/hitless/internal/prober"
	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/lab/procs"
	"github.com/hitless/hitless/observers"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

// measure runs the scenario in the run's namespace and writes its history, which is complete also after an error.
func (r *Cluster) measure(ctx context.Context) (err error) {
	w, err := record.NewHistoryWriter(filepath.Join(r.dir(), record.HistoryDir), r.header())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	clock := runClock{r.live.Clock, r.live.Clock.Now()}
	now, real := clock.Now, time.Now() // the same instant: lanes use the real clock
	programs, err := procs.New(filepath.Join(r.dir(), "logs"))
	if err != nil {
		return err
	}
	defer programs.StopAll(time.Second)
	r.cluster.ReportSilences(func(from, to time.Time) {
		w.Event(record.Event{At: now(), Object: "API server", Body: record.Log{Program: "hitless", Level: "warning"},
			Text: fmt.Sprintf("the API server did not answer for %.1f s, from %.1f s on: changes in that time are late in this record, or missing",
				to.Sub(from).Seconds(), from.Sub(clock.begin).Seconds())})
	})
	defer r.cluster.ReportSilences(nil) // the run's namespace is deleted after the record has ended
	running, died := context.WithCancelCause(ctx)
	defer died(nil)
	lanes, err := r.startProber(programs, w, died, func() time.Duration { return time.Since(real) })
	if err != nil {
		return err
	}
	stop := r.watch(running, fleetPodFilter{w}, now)
	workers := &fleetProber{Prober: lanes, site: r, record: announcer{w, r.report}, now: now}
	err = r.scenarioRun(running, announcer{w, r.report}, lanes, workers, clock)
	workers.end(ctx, err)
	stop()
	if missing := new(cluster.NoTargetError); errors.As(err, &missing) {
		w.Event(record.Event{At: now(), Object: scenarios.Lanes.Text(r.params), Text: missing.Reason, Body: record.Skipped{}})
	}
	err = errors.Join(err, lanes.Close())
	if cause := context.Cause(running); cause != nil && ctx.Err() == nil { // requests that it ended look as if a person had ended the run
		return cause
	}
	return err
}

func (r *Cluster) startProber(programs *procs.Supervisor, w *record.HistoryWriter, died func(error), now func() time.Duration) (*prober.Prober, error) {
	here := probes.Namespace{Name: "this machine", CountConntrack: probes.CountConntrack}
	return prober.Start(prober.Config{Record: w, Now: now, Seed: r.Seed, Client: "here", Places: []probes.Namespace{here},
		Measured: prober.Measurements(time.Second, r.report), Died: died},
		func(in io.Reader, out io.Writer) (prober.Worker, error) {
			return programs.Start(procs.Spec{Name: "probe-worker", Path: r.Program, Args: []string{probes.WorkerName, "--short-turns"}, Stdin: in, Stdout: out})
		})
}

// watch records the API events of the run's namespace until stop is called.
func (r *Cluster) watch(ctx context.Context, w record.Recorder, now func() time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { _ = observers.WatchAPI(ctx, r.cluster.Client, r.namespace, w, now) })  // fails on a wrong handler only
	all.Go(func() { _ = observers.WatchPods(ctx, r.cluster.Client, r.namespace, w, now) }) // likewise
	namespace, selector, known, err := r.proxySelector(ctx)
	if err != nil && ctx.Err() == nil {
		w.Event(record.Event{At: now(), Object: "proxy", Body: record.Log{Program: "hitless", Level: "warning"},
			Text: "finding the pods of the cluster's proxy: " + err.Error() + "; their starts and ends are not in this record, so that no outage has them as its cause; run again"})
	}
	if known {
		all.Go(func() { _ = observers.WatchProxyPods(ctx, r.cluster.Client, namespace, selector, "cluster", w, now) }) // likewise
	}
	return func() { cancel(); all.Wait() }
}

func (r *Cluster) scenarioRun(ctx context.Context, recorder record.Recorder, lanes *prober.Prober, measured scenarios.Prober, clock runClock) error {
	return scenarios.Run(ctx, r.scenario, &scenarios.World{
		Cluster: r.cluster.Klient.Resources(), Namespace: r.namespace, ServiceType: r.serviceType(), Nodes: r.nodeNames(),
		Site: r.site(lanes), Prober: measured, Recorder: recorder, Clock: clock,
		Params: r.params, Rate: r.Rate, Seed: r.Seed, Random: rand.New(rand.NewPCG(uint64(r.Seed), 1)),
	})
}

// LiveOffers are the capabilities of a live cluster.
var LiveOffers = scenarios.Offers{scenarios.ProxyDaemonSet, scenarios.MarkedChanges, scenarios.SiteTargets}

// site is the live cluster as the scenario of a run uses it.
func (r *Cluster) site(lanes *prober.Prober) *scenarios.Site {
	return scenarios.NewSite(liveClient{newNodePaths(r.facts.Nodes)}, prober.ReplyDrops{Prober: lanes}).Offer(scenarios.ProxyDaemonSet).OfferMarks(liveMarks{r}).OfferTargets(liveTargets{r})
}

// liveClient is this machine as the place where the lanes start.
type liveClient struct{ *nodePaths }

func (liveClient) Reach(ctx context.Context, network, target string) error {
	return reachFromHere(ctx, network, target)
}

func (liveClient) Hold(ctx context.Context, target string) (io.Closer, error) {
	return probes.DialBesideLanes(ctx, "tcp", target)
}

// liveMarks annotates the run's changes of the cluster's objects.
type liveMarks struct{ r *Cluster }

func (m liveMarks) Mark(c scenarios.Change) map[string]string { return m.r.mark(c) }
func (m liveMarks) PutBack(ctx context.Context) error         { return m.r.putBack(ctx) }

// liveTargets finds the addresses of Services.
type liveTargets struct{ r *Cluster }

func (t liveTargets) Target(ctx context.Context, s *corev1.Service) (string, error) {
	return t.r.cluster.Target(ctx, t.r.namespace, s.Name, t.r.facts.Nodes, t.r.live.Patience)
}

// runClock is the clock of the run.
type runClock struct {
	cluster.Clock
	begin time.Time
}

// Now is the time since the start of the run.
func (c runClock) Now() time.Duration { return c.Clock.Now().Sub(c.begin) }

// announcer reports phases and steps as they are recorded.
type announcer struct {
	record.Recorder
	report func(progress.Event)
}

// Event records an event.
func (a announcer) Event(e record.Event) {
	switch e.Kind() {
	case record.KindPhase:
		a.report(progress.Event{Kind: progress.Stage, At: e.At, Text: e.Text, Phase: e.Object})
	case record.KindStep:
		a.report(progress.Event{Kind: progress.Stage, At: e.At, Text: e.Text})
	}
	a.Recorder.Event(e)
}

// reachFromHere makes one request to a backend on a new connection.
func reachFromHere(ctx context.Context, network, target string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+target+"/hostname", nil)
	if err != nil {
		return err
	}
	answer, err := (&http.Transport{DisableKeepAlives: true, DialContext: probes.DialBesideLanes}).RoundTrip(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", answer.StatusCode)
	}
	return nil
}
