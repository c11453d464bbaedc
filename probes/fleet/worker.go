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

	"github.com/hitless/hitless/internal/clock"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/record"
	"github.com/spf13/cobra"
)

const (
	// lead is the time between the start of a lane and its first attempt.
	lead = 50 * time.Millisecond
	// orphanTimeout is the time without a request after which a worker ends, because its collector is gone.
	orphanTimeout = 15 * time.Minute
	// drainTimeout is how long a stopped worker waits until its attempts are fetched.
	drainTimeout = 20 * time.Second
	// targetCheckInterval is the time between two checks whether the target answers. After the first answer, supervise checks for requests
	// every 30 s.
	targetCheckInterval = 250 * time.Millisecond
)

// Engine makes the attempts of a worker. It is a probes.Engine, or a simulation that opens no connections.
type Engine interface {
	Now() time.Duration // since its creation
	Start(lane probes.Lane, at time.Duration) error
	Close()
	Run(context.Context) error
	// Answers reports whether the lane's target answers, on a connection that is not an attempt.
	Answers(ctx context.Context, lane probes.Lane) bool
}

// NewEngine creates the engine of a process with a unique name. The engine calls recorder with each attempt.
type NewEngine func(process string, recorder func(record.Attempt)) (Engine, error)

// Serve is a worker: it answers requests on the listener and starts the lane on request. When the context ends it makes no more attempts,
// answers until all were fetched, or for 20 s, and returns.
func Serve(ctx context.Context, listener net.Listener, lane probes.Lane) error {
	return ServeWith(ctx, listener, lane, newSocketEngine)
}

// ServeWith is Serve with another engine.
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
		w.journal.setEndReason("it was stopped")
		w.engine.Close()
		w.drain(ran)
	case failed = <-ran:
		// A collector can still fetch the attempts until the context ends.
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

// worker probes a lane and keeps the attempts in its journal.
type worker struct {
	lane    probes.Lane
	engine  Engine
	journal *journal
}

func newWorker(lane probes.Lane, with NewEngine) (*worker, error) {
	// The incarnation is unique, so that collectors distinguish restarted processes.
	w := &worker{lane: lane, journal: newJournal(rand.Text())}
	var err error
	w.engine, err = with(w.journal.incarnation, w.record)
	return w, err
}

// socketEngine is the engine that opens connections.
type socketEngine struct{ *probes.Engine }

// newSocketEngine returns an engine whose seed for ports comes from the process's name.
func newSocketEngine(process string, recorder func(record.Attempt)) (Engine, error) {
	start, err := probes.Monotonic()
	if err != nil {
		return nil, err
	}
	var seed int64
	for _, b := range []byte(process) {
		seed = seed*31 + int64(b)
	}
	engine, err := probes.New(probes.Config{Base: start, Seed: seed, Record: recorder})
	return socketEngine{engine}, err
}

// run runs the engine until it ends.
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
		w.journal.setEndReason(fmt.Sprintf("no collector fetched its last %d attempts, the most that it keeps", journalLimit))
		w.engine.Close()
	}
}

// supervise checks whether the target answers until it does. It ends the worker after orphanTimeout without a request.
func (w *worker) supervise(ctx context.Context) {
	pause, reached := targetCheckInterval, false
	for ctx.Err() == nil {
		if !reached && w.engine.Answers(ctx, w.lane) {
			pause, reached = orphanTimeout/30, true
			w.journal.setReached()
		}
		if w.journal.sinceLastRequest(w.engine.Now()) > orphanTimeout {
			w.journal.setEndReason(fmt.Sprintf("no collector requested its attempts for %v", orphanTimeout))
			w.engine.Close()
			return
		}
		_ = clock.Sleep(ctx, pause) // the loop checks the context
	}
}

// Answers sends the target one request.
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
		_, _ = out.Write(body) // a collector without the answer repeats its request
	})
	return mux
}

// apply performs the command of a request to this incarnation.
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

// drain waits until the attempts have ended and were fetched, for at most drainTimeout.
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

// WorkerName is the name of the worker's hidden subcommand. LaneVariable is the environment variable with its lane as JSON.
const (
	WorkerName   = "fleet-worker"
	LaneVariable = "HITLESS_LANE"
)

// Command returns the worker's subcommand.
func Command() *cobra.Command {
	var listen string
	c := &cobra.Command{
		Use:    WorkerName,
		Short:  "probe the lane in $" + LaneVariable + " on an HTTP request, and keep the attempts until they are fetched",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var lane probes.Lane
			if err := json.Unmarshal([]byte(os.Getenv(LaneVariable)), &lane); err != nil {
				return fmt.Errorf("reading the lane in $%s: %w", LaneVariable, err)
			}
			listener, err := new(net.ListenConfig).Listen(c.Context(), "tcp", listen)
			if err != nil {
				return fmt.Errorf("listening for requests: %w; in the network of a node another program may use that port, so give another --listen", err)
			}
			fmt.Fprintf(c.OutOrStdout(), "%s listens on %s\n", WorkerName, listener.Addr())
			return Serve(c.Context(), listener, lane)
		},
	}
	c.Flags().StringVar(&listen, "listen", ":7707", "`ADDRESS` to listen on")
	return c
}
