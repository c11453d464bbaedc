package fleet

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/internal/clock"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/record"
)

const (
	// lead is how far ahead of its first attempt a lane is ordered.
	lead = 50 * time.Millisecond
	// orphaned is after how long without a question a worker makes no more attempts: whoever started it is gone.
	orphanTimeout = 15 * time.Minute
	// linger is how long a worker that was told to go waits for what it has to be fetched.
	drainTimeout = 20 * time.Second
	// again is how often a worker looks whether its target answers. Whether anybody asks it looks every 30 s.
	targetCheckInterval = 250 * time.Millisecond
)

// Engine makes the attempts of a worker: a probes.Engine, or what plays one where no connection is to be opened.
type Engine interface {
	Now() time.Duration // since it was made
	Start(lane probes.Lane, at time.Duration) error
	Close()
	Run(context.Context) error
	// Answers looks whether the lane's target answers, on a connection that is no attempt.
	Answers(ctx context.Context, lane probes.Lane) bool
}

// NewEngine makes the engine of a process whose name no other has. The attempts that it makes are to be recorded.
type NewEngine func(process string, recorder func(record.Attempt)) (Engine, error)

// Serve is a worker: it answers questions on the listener and probes the lane when it is told to. When the context ends it makes no more attempts,
// answers until everything was fetched, or for 20 s, and returns.
func Serve(ctx context.Context, listener net.Listener, lane probes.Lane) error {
	return ServeWith(ctx, listener, lane, newSocketEngine)
}

// ServeBy is Serve with another engine.
func ServeWith(ctx context.Context, listener net.Listener, lane probes.Lane, with NewEngine) error {
	lane.ID = laneID
	if err := lane.Validate(); err != nil {
		return err
	}
	w, err := newWorker(lane.WithDefaults(), with)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ran := make(chan error, 1)
	go func() { ran <- w.run(running) }()
	server := &http.Server{Handler: w.handler(), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	go w.supervise(running)

	var failed error
	select {
	case <-ctx.Done():
		w.journal.setEndReason("it was told to go")
		w.engine.Close()
		w.drain(ran)
	case failed = <-ran:
		// What it has is fetched all the same, until it is told to go.
		select {
		case <-ctx.Done():
			w.drain(nil)
		case err := <-served:
			return errors.Join(failed, err)
		}
	case err := <-served:
		failed = fmt.Errorf("answering on %s: %w", listener.Addr(), err)
	}
	return errors.Join(failed, server.Close())
}

// laneID is the only lane of a worker.
const laneID = 1

// worker probes, and keeps what it saw.
type worker struct {
	lane    probes.Lane
	engine  Engine
	journal *journal
}

func newWorker(lane probes.Lane, with NewEngine) (*worker, error) {
	// A name that no other process has, so that nobody takes this one for the one before.
	w := &worker{lane: lane, journal: newJournal(rand.Text())}
	var err error
	w.engine, err = with(w.journal.incarnation, w.record)
	return w, err
}

// sockets is the engine that opens connections.
type socketEngine struct{ *probes.Engine }

// newSockets makes one. The process's name is the seed of its ports, too.
func newSocketEngine(process string, recorder func(record.Attempt)) (Engine, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return nil, fmt.Errorf("reading the monotonic clock: %w", err)
	}
	var seed int64
	for _, b := range []byte(process) {
		seed = seed*31 + int64(b)
	}
	engine, err := probes.New(probes.Config{Base: ts.Nano(), Seed: seed, Record: recorder})
	return socketEngine{engine}, err
}

// run makes the attempts that are ordered.
func (w *worker) run(ctx context.Context) error {
	err := w.engine.Run(ctx)
	if err != nil {
		w.journal.setEndReason(err.Error())
	}
	w.journal.end()
	return err
}

func (w *worker) record(a record.Attempt) {
	if !w.journal.add(a) {
		w.journal.setEndReason(fmt.Sprintf("nobody fetched its last %d attempts, and more it does not keep", journalLimit))
		w.engine.Close()
	}
}

// reach looks whether the target answers, until it does, and then whether anybody asks.
func (w *worker) supervise(ctx context.Context) {
	pause, reached := targetCheckInterval, false
	for ctx.Err() == nil {
		if !reached && w.engine.Answers(ctx, w.lane) {
			pause, reached = orphanTimeout/30, true
			w.journal.setReached()
		}
		if w.journal.sinceLastRequest(w.engine.Now()) > orphanTimeout {
			w.journal.setEndReason(fmt.Sprintf("nobody asked for its attempts for %v", orphanTimeout))
			w.engine.Close()
			return
		}
		_ = clock.Sleep(ctx, pause) // an end of the context ends the loop
	}
}

// Answers asks the target once.
func (socketEngine) Answers(ctx context.Context, lane probes.Lane) bool {
	ctx, cancel := context.WithTimeout(ctx, lane.DialDeadline+lane.ReplyDeadline)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+lane.Target.String()+lane.Path, nil)
	if err != nil {
		return false
	}
	r.Host = lane.Host
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<20))
	return errors.Join(err, answer.Body.Close()) == nil && answer.StatusCode < 500
}

func (w *worker) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+PathAlive, func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET "+Path, func(out http.ResponseWriter, in *http.Request) {
		r, err := parseRequest(in.URL.Query())
		if err != nil {
			http.Error(out, err.Error(), http.StatusBadRequest)
			return
		}
		w.apply(r)
		body, err := w.journal.answer(r, w.engine.Now()).encode()
		if err != nil {
			http.Error(out, err.Error(), http.StatusInternalServerError)
			return
		}
		out.Header().Set("Content-Type", "application/octet-stream")
		out.Header().Set("Cache-Control", "no-store")
		_, _ = out.Write(body) // who did not get it asks again
	})
	return mux
}

// obey does what a question that is meant for this process says.
func (w *worker) apply(r Request) {
	if r.Incarnation != w.journal.incarnation {
		return
	}
	switch begin := w.engine.Now() + lead; {
	case r.Command == commandRun && w.journal.run(begin):
		if err := w.engine.Start(w.lane, begin); err != nil {
			w.journal.setEndReason(err.Error())
			w.engine.Close()
		}
	case r.Command == commandEnd:
		w.engine.Close()
	}
}

// await waits until the attempts have ended and were fetched, for as long as linger says.
func (w *worker) drain(ran <-chan error) {
	late := time.After(drainTimeout)
	for {
		if ran == nil && w.journal.empty() {
			return
		}
		select {
		case <-ran:
			ran = nil
		case <-time.After(targetCheckInterval / 10):
		case <-late:
			return
		}
	}
}

// WorkerName is the name of the worker's (hidden) subcommand, and LaneVariable the variable of its environment that has the lane.
const (
	WorkerName   = "fleet-worker"
	LaneVariable = "HITLESS_LANE"
)

// Command is a worker as a program.
func Command() *cobra.Command {
	var listen string
	c := &cobra.Command{
		Use:    WorkerName,
		Short:  "probe the lane in $" + LaneVariable + " when asked over HTTP to, and keep the attempts until they are fetched",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var lane probes.Lane
			if err := json.Unmarshal([]byte(os.Getenv(LaneVariable)), &lane); err != nil {
				return fmt.Errorf("reading the lane in $%s: %w", LaneVariable, err)
			}
			listener, err := new(net.ListenConfig).Listen(c.Context(), "tcp", listen)
			if err != nil {
				return fmt.Errorf("listening for questions: %w; with the network of its node another program may have that port", err)
			}
			fmt.Fprintf(c.OutOrStdout(), "%s asked at %s\n", WorkerName, listener.Addr())
			return Serve(c.Context(), listener, lane)
		},
	}
	c.Flags().StringVar(&listen, "listen", ":7707", "`ADDRESS` to be asked at")
	return c
}
