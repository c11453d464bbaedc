package subject

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hitless/hitless/lab/procs"
	"github.com/hitless/hitless/lab/topology"
)

// program is how the subject is started on a node.
func (f *Fleet) program(node *topology.Node) (procs.Spec, error) {
	start := procs.Spec{
		Name: logName(node.Name), Path: f.cfg.Path, Enter: node.Enter,
		// As on a node of several cores: races between goroutines must have their chance on the guest's one CPU too.
		Env: []string{"GOMAXPROCS=4"},
	}
	e := f.cfg.Spec.Exec
	if e == nil {
		start.Args = f.cfg.Spec.args(node.Name, f.cfg.Kubeconfig, f.cfg.Fallback)
		return start, nil
	}
	values, err := f.values(node)
	if err != nil {
		return start, err
	}
	start.Path, start.Args = e.Program, expandAll(e.Args, values)
	start.Env = slices.Concat(start.Env, expandAll(e.Env, values))
	return start, nil
}

// values are those of the placeholders on a node.
func (f *Fleet) values(node *topology.Node) (map[string]string, error) {
	config, err := clientcmd.BuildConfigFromFlags("", f.cfg.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig for %s: %w", f.cfg.Spec, err)
	}
	return map[string]string{"program": f.cfg.Spec.Exec.Program, "node": node.Name, "nodeIP": node.Addr.String(),
		"podCIDR": node.PodCIDR.String(), "clusterCIDR": topology.ClusterCIDR.String(), "kubeconfig": f.cfg.Kubeconfig,
		"server": config.Host, "terminatingFallback": f.cfg.Fallback}, nil
}

// execReady says why a proxy that a file describes is not ready yet, nil when it is.
func (f *Fleet) execReady(ctx context.Context, node *topology.Node) error {
	ready := f.cfg.Spec.Exec.Ready
	if len(ready.Command) > 0 {
		return f.command(ctx, node, "ready", ready.Command)
	}
	values, err := f.values(node)
	if err != nil {
		return err
	}
	_, err = get(ctx, node, expand(ready.URL, values))
	return err
}

// commandWithin bounds a command that a file names for ready and cleanup.
const commandWithin = 30 * time.Second

// command runs a command on a node, with the proxy's environment; its output goes to a log of its own.
func (f *Fleet) command(ctx context.Context, node *topology.Node, what string, words []string) error {
	start, err := f.program(node)
	if err != nil {
		return err
	}
	values, err := f.values(node)
	if err != nil {
		return err
	}
	words = expandAll(words, values)
	start.Name, start.Path, start.Args = what+"-"+node.Name, words[0], words[1:]
	p, err := f.cfg.Procs.Start(start)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, commandWithin)
	defer cancel()
	select {
	case <-p.Done():
	case <-ctx.Done():
		_ = p.Signal(syscall.SIGKILL)
		<-p.Done()
	}
	if err := p.Err(); err != nil {
		return fmt.Errorf("%s %q on %s: %w; its last lines:\n%s", what, words, node.Name, err, f.cfg.Procs.Tail(start.Name, 5))
	}
	return nil
}

// Retire ends the subject on every node for good, and runs the cleanup that a file names. It is for the end of a run:
// a cleanup that fails is an error, because the file says that it works.
func (f *Fleet) Retire(ctx context.Context) error {
	e := f.cfg.Spec.Exec
	if e == nil || len(e.Cleanup) == 0 {
		return nil
	}
	for _, node := range f.cfg.Net.Nodes {
		if p := f.live[node.Name]; p != nil && p.Running() {
			if err := f.Stop(ctx, node.Name); err != nil {
				return err
			}
		}
		if err := f.command(ctx, node, "cleanup", e.Cleanup); err != nil {
			return fmt.Errorf("%s: %w", f.cfg.Spec, err)
		}
	}
	return nil
}

// ending is the signal that asks the subject to end, and how long it may take.
func (s Spec) ending() (syscall.Signal, time.Duration) {
	if s.Exec == nil {
		return syscall.SIGTERM, 30 * time.Second
	}
	return unix.SignalNum("SIG" + s.Exec.Stop.Signal), s.Exec.Stop.Within
}
