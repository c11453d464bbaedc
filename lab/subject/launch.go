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
	run := f.runs[node.Name]
	start := procs.Spec{
		Name: logName(node.Name), Path: run.Path, Enter: node.Enter,
		// As on a node of several cores: races between goroutines must have their chance on the guest's one CPU too.
		Env: slices.Concat([]string{"GOMAXPROCS=4"}, f.cfg.Env),
	}
	e := run.Spec.Exec
	if e == nil {
		start.Args = run.Spec.Args(node.Name, f.cfg.Kubeconfig, run.Fallback)
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
	run := f.runs[node.Name]
	config, err := clientcmd.BuildConfigFromFlags("", f.cfg.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig for %s: %w", run.Spec, err)
	}
	return map[string]string{"program": run.Spec.Exec.Program, "node": node.Name, "nodeIP": node.Addr.String(),
		"podCIDR": node.PodCIDR.String(), "clusterCIDR": topology.ClusterCIDR.String(), "kubeconfig": f.cfg.Kubeconfig,
		"server": config.Host, "terminatingFallback": run.Fallback}, nil
}

// execReady says why a proxy that a file describes is not ready yet, nil when it is.
func (f *Fleet) execReady(ctx context.Context, node *topology.Node) error {
	ready := f.spec(node.Name).Exec.Ready
	if len(ready.Command) > 0 {
		start, err := f.words(node, "ready", ready.Command)
		if err != nil {
			return err
		}
		return f.command(ctx, node, start)
	}
	values, err := f.values(node)
	if err != nil {
		return err
	}
	_, err = get(ctx, node, expand(ready.URL, values))
	return err
}

// ending is the signal that asks the subject to end, and how long it may take.
func (s Spec) ending() (syscall.Signal, time.Duration) {
	if s.Exec == nil {
		return syscall.SIGTERM, 30 * time.Second
	}
	return unix.SignalNum("SIG" + s.Exec.Stop.Signal), s.Exec.Stop.Within
}
