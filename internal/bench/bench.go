//go:build linux

package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/hitless/hitless/lab/kube"
	"github.com/hitless/hitless/lab/procs"
	"github.com/hitless/hitless/lab/replay"
	"github.com/hitless/hitless/lab/topology"
)

// Config is the environment of a benchmark.
type Config struct {
	Dir      string // for state and logs
	Program  string // hitless
	Binaries string // folder of kube-proxy
	Now      func() time.Duration
	Progress func(string)
	Save     func(name string, data []byte) // a file for the run's folder
}

// bench is a running benchmark.
type bench struct {
	Config
	plan       Plan
	net        *topology.Network
	procs      *procs.Supervisor
	fleet      *fleet
	kubeconfig string
	counter    *counter
}

// Run runs the benchmark. It saves the rows after each one, so that an early end keeps the complete ones.
func Run(ctx context.Context, plan Plan, cfg Config) (err error) {
	// The API server must run while the observer is in system calls.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	// Thousands of Services exceed the memory limit of other runs: the garbage collector would use up the CPU that the subject
	// shares.
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	b := &bench{Config: cfg, plan: plan, fleet: newFleet(replay.New())}
	if b.procs, err = procs.New(filepath.Join(cfg.Dir, "logs")); err != nil {
		return err
	}
	defer b.procs.StopAll(time.Second)
	if b.net, err = topology.New(len(plan.Subjects) * len(plan.Services)); err != nil {
		return err
	}
	defer b.net.Close()
	if b.counter, err = newCounter(); err != nil {
		cfg.Progress("netlink messages are not counted: " + err.Error())
	}
	ctx, cancel := context.WithCancel(ctx)
	served := make(chan error, 1)
	defer func() { cancel(); err = errors.Join(err, <-served) }()
	if err := b.serve(ctx, served); err != nil {
		served <- nil
		return err
	}
	return b.measure(ctx)
}

func (b *bench) serve(ctx context.Context, served chan<- error) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(topology.ControlAddr.String(), "8001"))
	if err != nil {
		return fmt.Errorf("starting the replay control plane: %w", err)
	}
	b.kubeconfig = filepath.Join(b.Dir, "replay.kubeconfig")
	config := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"lab",
"clusters":[{"name":"lab","cluster":{"server":"http://%s"}}],"users":[{"name":"lab","user":{}}],
"contexts":[{"name":"lab","context":{"cluster":"lab","user":"lab"}}]}`, listener.Addr())
	if err := os.WriteFile(b.kubeconfig, []byte(config), 0o600); err != nil {
		listener.Close()
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	go func() { served <- b.fleet.server.Serve(ctx, listener) }()
	client, err := kube.NewClient(b.kubeconfig, "")
	if err != nil {
		return err
	}
	for _, n := range b.net.Nodes {
		if err := kube.CreateNode(ctx, client, kube.NodeOf(n)); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) measure(ctx context.Context) error {
	var rows []Row
	nodes := b.net.Nodes
	for _, n := range b.plan.Services {
		b.Progress(fmt.Sprintf("writing %d Services of %d endpoints", n, endpoints))
		if err := b.fleet.grow(n); err != nil {
			return err
		}
		for _, s := range b.plan.Subjects {
			row, err := b.trial(ctx, s, nodes[0])
			if err != nil {
				return fmt.Errorf("measuring %s at %d Services: %w", s, n, err)
			}
			nodes = nodes[1:]
			rows = append(rows, row)
			b.Progress(row.String())
			data, err := json.MarshalIndent(rows, "", "  ")
			if err != nil {
				return err
			}
			b.Save(ResultFile, data)
		}
	}
	return nil
}

// median of an odd number of values; the larger of the middle ones of an even number.
func median[T cmp.Ordered](values []T) T {
	sorted := sortedCopy(values)
	return sorted[len(sorted)/2]
}
