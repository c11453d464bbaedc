// Package clusterwatch measures the Services of a live cluster from this machine, for hours or days, while somebody else changes the
// cluster. It follows the Services that appear, change their address and disappear, and explains losses by what the API shows. It changes
// nothing in the cluster.
//
// A watch that was killed goes on in the same record. The time in between is recorded as missing.
package clusterwatch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/hitless/hitless/cluster"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/probes/session"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
)

// Scenario is the scenario's name in reports.
const Scenario = "watch"

// DefaultRate is the default rate of each lane, in attempts per second.
const DefaultRate = 10

// DefaultProxy is the DaemonSet of kube-proxy where kubeadm and most others put it.
const DefaultProxy = "kube-system/kube-proxy"

// Options are those of a watch. The target of the session is not used: each port of a Service at each address is one.
type Options struct {
	session.Options
	Kubeconfig, Context string
	Namespace           string // of the Services; empty for all
	Selector            string // label selector of the Services; empty for all
	NodePorts           bool   // measure the nodes' ports instead of external addresses
	Proxy               string // NAMESPACE/NAME of the proxy's DaemonSet; default DefaultProxy
	Listen              string // HOST:PORT for /metrics; empty for none
	Resume              bool   // go on with the record of a killed watch
	// Within is how long the API server may take to answer all that is asked before the start; default 20 s.
	Within time.Duration

	resolve func(ctx context.Context, network, host string) ([]netip.Addr, error) // nil for this machine's resolver
}

// startLimit is the default of Options.Within.
const startLimit = 20 * time.Second

// Run measures until the duration is over or the context ends, and writes the reports. It returns an error when nothing was measured, the
// record could not be written, or another run uses the folder. Errors before the first attempt leave the folder as it was.
func Run(ctx context.Context, o Options) (*session.Result, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.resolve == nil {
		o.resolve = net.DefaultResolver.LookupNetIP
	}
	w := &watcher{o: o, lanes: newLanes()}
	if err := w.open(ctx); err != nil {
		return nil, err
	}
	services, stop, err := w.listServices(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	w.services = services
	exporter, err := startExporter(o.Listen, o.Progress)
	if err != nil {
		return nil, err
	}
	defer exporter.close()
	w.exporter = exporter
	claim, err := reports.ClaimRun(o.Out, o.Command)
	if err != nil {
		return nil, err
	}
	r, err := w.run(ctx, claim)
	return r, errors.Join(err, claim.Close())
}

// watcher is a running watch. The goroutine of follow owns it; only lanes is shared.
type watcher struct {
	o        Options
	cluster  *cluster.Cluster
	denied   []cluster.Verb // of those that only explain losses
	facts    cluster.Facts
	notes    []string // remarks before the record begins
	services *services
	record   *record.HistoryWriter
	meter    *session.Meter
	lanes    *lanes
	causes   *causes
	exporter *exporter
	left     *record.Left // of a watch that is resumed; nil for a new one
	seed     int64        // of the walk over this machine's ports
}

// run records the watch in the folder of the claim.
func (w *watcher) run(ctx context.Context, claim *reports.Claim) (*session.Result, error) {
	elapsed, err := w.openRecord(ctx, claim)
	if err != nil {
		return nil, err
	}
	if err := probes.Prompt(); err != nil {
		w.o.Progress(err.Error())
	}
	shared := &probes.Shared{Seed: w.seed}
	if w.left != nil {
		shared.Drawn = w.left.Drawn
	}
	w.meter, err = session.StartMeter(session.MeterConfig{Record: w.record, Elapsed: elapsed, Shared: shared, Measured: w.lanes.measured, Second: w.o.OnSecond,
		Attempt: w.exporter.attempt})
	if err != nil {
		return nil, errors.Join(err, w.record.Close())
	}
	measured := w.measure(ctx)
	if err := errors.Join(measured, w.meter.End(), w.record.Close()); err != nil {
		return nil, err
	}
	return session.Conclude(claim, w.o.Out, w.o.Sign)
}

// openRecord makes the record, or opens that of a killed watch. It returns the time of the run until now.
func (w *watcher) openRecord(ctx context.Context, claim *reports.Claim) (time.Duration, error) {
	if w.o.Resume {
		return w.reopen(claim)
	}
	if err := w.checkTargets(ctx); err != nil {
		return 0, err
	}
	if _, err := claim.Begin(); err != nil {
		return 0, err
	}
	if err := w.o.WriteHost(claim.Work(), time.Now()); err != nil {
		return 0, err
	}
	header, err := w.header(ctx)
	if err != nil {
		return 0, err
	}
	header.Seed = rand.Int64N(1 << 32) // two watches of one machine must not use the same ports at the same time
	w.seed = header.Seed
	w.record, err = record.NewHistoryWriter(filepath.Join(claim.Work(), record.HistoryDir), header)
	return 0, err
}

// reopen opens the record of a killed watch.
func (w *watcher) reopen(claim *reports.Claim) (elapsed time.Duration, err error) {
	started, err := reports.StartedAt(os.DirFS(claim.Work()))
	if err == nil && started.IsZero() {
		err = fmt.Errorf("%s has no %s", claim.Work(), reports.HostFile)
	}
	if err != nil {
		return 0, fmt.Errorf("finding when the watch in %s began: %w; `hitless watch stop` makes a report of its record", w.o.Out, err)
	}
	if w.record, w.left, err = record.ResumeHistory(filepath.Join(claim.Work(), record.HistoryDir)); err != nil {
		return 0, fmt.Errorf("%w; `hitless watch stop` makes a report of what can be read", err)
	}
	if w.left.Phase != "scenario" {
		return 0, errors.Join(fmt.Errorf("the watch in %s was killed in its phase %q, before it measured or after its end: `hitless watch stop` makes a report of its record",
			w.o.Out, w.left.Phase), w.record.Close())
	}
	w.seed = w.left.Run.Seed
	w.lanes.resume(w.left)
	return max(time.Since(started), w.left.Last+time.Millisecond), nil
}

// measure runs the phases. It returns early, without an error, when the context ends.
func (w *watcher) measure(ctx context.Context) error {
	m := w.meter
	if w.left == nil {
		m.Phase("setup", record.Phase{})
	}
	for _, note := range w.notes {
		w.remark("info", note)
	}
	w.causes = startCauses(ctx, w)
	defer w.causes.stop()
	begun, err := w.begin(ctx)
	if err != nil {
		return err
	}
	if begun {
		err = w.follow(ctx)
	} else {
		w.o.Progress("ended before the detector was proved: the watch is invalid")
	}
	if err != nil {
		return err
	}
	m.Phase("end", record.Phase{})
	return w.stopAll()
}

// step is the name of the step that lasts while the cluster may be changed.
func (w *watcher) step() string { return "watch " + w.cluster.Server }

// begin starts the first lanes and proves the detector, or goes on after a kill. It returns false when the context ends first.
func (w *watcher) begin(ctx context.Context) (bool, error) {
	if w.left != nil {
		return true, w.goOn()
	}
	m, at := w.meter, w.meter.Now()+session.Lead
	for _, t := range w.services.ready {
		if err := w.startLane(t, at, false); err != nil {
			return false, err
		}
	}
	canary := session.CanaryLane(w.services.ready[0].lane, w.lanes.id())
	if err := m.Start(canary, at, func(*record.Lane) {}); err != nil {
		return false, err
	}
	w.o.Progress(fmt.Sprintf("baseline of %d addresses, and proof of the detector at %s; change nothing yet", len(w.services.ready), w.services.ready[0].External))
	m.Phase("baseline", record.Phase{})
	proved, err := m.Prove(ctx, canary, at)
	if err = errors.Join(err, m.Stop(canary.ID, m.Now())); err != nil || !proved {
		return false, err
	}
	m.Phase("scenario", record.Phase{Attempts: 1})
	m.Step(w.step(), record.StepBegin)
	if err := w.record.Flush(); err != nil { // a watch that is killed from now on can be resumed
		return false, err
	}
	_, err = m.Sleep(ctx, m.Now()+session.Lead) // late attempts of the baseline must not meet the change
	return err == nil, err
}

// remark records a line of hitless itself.
func (w *watcher) remark(level, text string) {
	w.record.Event(record.Event{At: w.now(), Object: "watch", Text: text, Body: record.Log{Program: "hitless", Level: level}})
}

func (w *watcher) now() time.Duration { return w.meter.Now() }
