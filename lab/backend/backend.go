// Package backend is the lab's replacement for `agnhost netexec`. It answers over HTTP, UDP and TCP; each HTTP answer
// has the pod's name, node and generation, and how long the pod has been terminating.
//
// Flags and paths are those of agnhost 2.47 and later (test/images/agnhost/README.md in kubernetes/kubernetes);
// differences are documented where they occur. It omits what would run commands (/shell), accept files (/upload) or
// open connections (/dial).
package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// Identity identifies the backend in its answers.
type Identity struct {
	Pod        string // default: the host name, as in agnhost
	Node       string
	Generation string // pod-template-hash
}

// identityFromEnvironment reads HITLESS_POD, HITLESS_NODE and HITLESS_GENERATION.
func identityFromEnvironment() (Identity, error) {
	id := Identity{Pod: os.Getenv("HITLESS_POD"), Node: os.Getenv("HITLESS_NODE"), Generation: os.Getenv("HITLESS_GENERATION")}
	if id.Pod != "" {
		return id, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return Identity{}, fmt.Errorf("reading the host name for this backend, since HITLESS_POD is not set: %w", err)
	}
	id.Pod = name
	return id, nil
}

// Off turns a port off.
const Off = -1

// Options are the flags of netexec.
type Options struct {
	HTTPPort      int           // 0 to 65535; 0 lets the kernel choose
	UDPPort       int           // likewise, or Off
	TCPPort       int           // likewise, or Off; raw TCP, which agnhost does not have
	DelayShutdown time.Duration // how long it keeps serving after SIGTERM
	HTTPOverride  string        // path and query that replace those of every HTTP request; empty for none
}

// Command returns the command `backend` with its subcommands netexec and pause. It ends the process with the exit code
// of Serve.
func Command() *cobra.Command {
	c := &cobra.Command{
		Use:   "backend",
		Short: "What runs in the lab's pods: plays agnhost netexec",
		Args:  cobra.NoArgs,
	}
	c.AddCommand(netexecCommand(), pauseCommand())
	return c
}

func netexecCommand() *cobra.Command {
	var o Options
	var delay int
	c := &cobra.Command{
		Use:   "netexec",
		Short: "Serve over HTTP, UDP and TCP as agnhost netexec, and say who answers",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if delay < 0 {
				return fmt.Errorf("--delay-shutdown is %d: give 0 or more seconds", delay)
			}
			o.DelayShutdown = time.Duration(delay) * time.Second
			id, err := identityFromEnvironment()
			if err != nil {
				return err
			}
			terminate := make(chan os.Signal, 1)
			signal.Notify(terminate, syscall.SIGTERM)
			code, err := Serve(cmd.Context(), o, id, terminate)
			if err == nil && code != 0 {
				os.Exit(code)
			}
			return err
		},
	}
	f := c.Flags()
	f.IntVar(&o.HTTPPort, "http-port", 8080, "port for HTTP")
	f.IntVar(&o.UDPPort, "udp-port", 8081, "port for UDP; -1 for none")
	f.IntVar(&o.TCPPort, "tcp-port", Off, "port for raw TCP, which answers the same words as UDP, line by line; -1 for none")
	f.IntVar(&delay, "delay-shutdown", 0, "seconds to go on serving after SIGTERM")
	f.StringVar(&o.HTTPOverride, "http-override", "", "answer every HTTP request as if it were a GET of this path and query")
	return c
}

func pauseCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "pause",
		Short: "Wait for SIGTERM or SIGINT, then end",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			end := make(chan os.Signal, 1)
			signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
			<-end
			return nil
		},
	}
}

// server is a running backend.
type server struct {
	id      Identity
	options Options
	started time.Time
	// stoppedAt is when SIGTERM came, in nanoseconds after started; 0 while it has not.
	stoppedAt atomic.Int64
	exit      chan exitRequest
}

// exitRequest is a request to exit, from /exit or /shutdown.
type exitRequest struct {
	code    int
	timeout time.Duration // how long to wait for open connections
}

// Serve serves until it is asked to exit or ctx ends, and returns the exit code. A value on terminate stands for
// SIGTERM: the backend serves for DelayShutdown and then returns 0 without waiting for open requests, as agnhost does.
// Serve returns an error when a port cannot be opened or a listener fails.
func Serve(ctx context.Context, o Options, id Identity, terminate <-chan os.Signal) (int, error) {
	s := newServer(o, id)
	l, err := s.listen(ctx)
	if err != nil {
		return 1, err
	}
	defer l.close()
	return s.serve(ctx, l, terminate)
}

func newServer(o Options, id Identity) *server {
	return &server{id: id, options: o, started: time.Now(), exit: make(chan exitRequest, 1)}
}

func (s *server) serve(ctx context.Context, l *listeners, terminate <-chan os.Signal) (int, error) {
	failed := make(chan error, 4)
	others := newHandedOver(l.http.Addr())
	quick, err := s.accept(l, others)
	if err != nil {
		return 1, err
	}
	stop := quick.start(failed)
	defer stop()
	web := s.web()
	go func() { failed <- fmt.Errorf("serving HTTP: %w", web.Serve(others)) }()
	defer web.Close()
	if l.tcp != nil {
		go func() { failed <- fmt.Errorf("serving TCP: %w", s.serveTCP(l.tcp)) }()
	}
	slog.Info("backend serves", "http", s.options.HTTPPort, "udp", s.options.UDPPort, "tcp", s.options.TCPPort)
	var over <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return 0, nil
		case err := <-failed:
			return 1, err
		case <-terminate:
			terminate = nil // further signals are ignored
			s.stoppedAt.Store(max(1, int64(time.Since(s.started))))
			slog.Info("SIGTERM: serving on, then ending", "delay", s.options.DelayShutdown)
			over = time.After(s.options.DelayShutdown)
		case <-over:
			return 0, nil
		case e := <-s.exit:
			stop()
			limit, cancel := context.WithTimeout(context.Background(), e.timeout)
			defer cancel()
			if err := web.Shutdown(limit); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				return 1, fmt.Errorf("exiting on request: %w", err)
			}
			return e.code, nil
		}
	}
}

// terminating returns the time since SIGTERM in ms, at least 1; 0 before SIGTERM.
func (s *server) terminating() int64 {
	at := s.stoppedAt.Load()
	if at == 0 {
		return 0
	}
	return max(1, (time.Since(s.started) - time.Duration(at)).Milliseconds())
}

// line returns the identity in one line: pod, node, generation, the client's address and terminating milliseconds; "-" replaces empty
// values.
func (s *server) line(client string) string {
	word := func(v string) string {
		if v == "" {
			return "-"
		}
		return v
	}
	return word(s.id.Pod) + " " + word(s.id.Node) + " " + word(s.id.Generation) + " " + word(host(client)) + " " + strconv.FormatInt(s.terminating(), 10)
}

// host returns the address of a client without its port; empty if it has none.
func host(client string) string {
	address, err := netip.ParseAddrPort(client)
	if err != nil {
		return ""
	}
	return address.Addr().Unmap().String()
}
