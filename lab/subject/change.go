//go:build linux

package subject

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/hitless/hitless/lab/procs"
	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/record"
)

// Change makes the next Start of a node's proxy start another program of the lab, named by its Spec. The running proxy must have
// exited.
func (f *Fleet) Change(node, subject string) error {
	if p := f.last(node); p != nil && p.Running() {
		return fmt.Errorf("the proxy of %s still runs; stop it before the next Start starts another", node)
	}
	program, err := f.find(subject)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.runs[node] = program
	return nil
}

func (f *Fleet) find(subject string) (Program, error) {
	i := slices.IndexFunc(f.cfg.Programs, func(p Program) bool { return p.Spec.String() == subject })
	if i < 0 {
		return Program{}, fmt.Errorf("this lab has no %s", subject)
	}
	return f.cfg.Programs[i], nil
}

// StartSecond starts another program of the lab, named by its Spec, on a node where the subject runs. The subject has the node's
// ports, so that readiness of the second proxy cannot be checked; alive returns an error with its last log lines once it has exited.
func (f *Fleet) StartSecond(name, subject string) (alive func() error, err error) {
	node, err := f.cfg.Net.Node(name)
	if err != nil {
		return nil, err
	}
	second, err := f.find(subject)
	if err != nil {
		return nil, err
	}
	if second.Spec.Exec != nil {
		return nil, errors.New("a proxy that a file describes can be the subject, but not a second proxy next to it")
	}
	p, err := node.Start(f.cfg.Procs, topology.GroupProxy, procs.Spec{Name: "second-" + name, Path: second.Path,
		Args: second.Spec.Args(name, f.cfg.Kubeconfig, second.Fallback), Env: slices.Concat([]string{"GOMAXPROCS=4"}, f.cfg.Env)})
	if err != nil {
		return nil, err
	}
	f.recordOf(second.Spec, name, record.ProxySecond, second.Spec.String()+" started next to "+f.spec(name).String())
	return func() error {
		if p.Running() {
			return nil
		}
		return fmt.Errorf("%s on %s exited: %s; its last lines:\n%s", second.Spec, name, p.ExitText(), f.cfg.Procs.Tail("second-"+name, 8))
	}, nil
}

// Cleanup removes the state of a node's subject from the kernel in the documented way: its flag --cleanup, or the command of its
// file. The proxy must have exited. A failed cleanup of kube-proxy is recorded and is no error: its remains are part of the
// measurement.
func (f *Fleet) Cleanup(ctx context.Context, name string) error {
	node, err := f.cfg.Net.Node(name)
	if err != nil {
		return err
	}
	spec := f.spec(name)
	f.record(name, record.ProxyCleanup, spec.String()+" cleans up its kernel state on "+name)
	start, err := f.cleanupSpec(node)
	if err != nil {
		return err
	}
	err = f.runCommand(ctx, node, start)
	if code := exitCode(err); code > 0 && spec.Exec == nil && spec.Name != Bundled.Name {
		f.record(name, record.ProxyUncleaned, fmt.Sprintf("the cleanup of %s on %s failed with exit code %d; its last line: %s",
			spec, name, code, f.cfg.Procs.Tail(start.Name, 1)))
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", spec, err)
	}
	f.record(name, record.ProxyCleaned, spec.String()+" has cleaned up on "+name)
	return nil
}

// exitCode returns the exit code in an error; -1 for other errors and for a killed program.
func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}

// cleanupSpec is the process of the cleanup.
func (f *Fleet) cleanupSpec(node *topology.Node) (procs.Spec, error) {
	start, err := f.processSpec(node)
	if err != nil {
		return start, err
	}
	start.Name = "cleanup-" + node.Name
	spec := f.spec(node.Name)
	switch {
	case spec.Exec == nil && spec.Name == Bundled.Name:
		start.Args = []string{"proxier", "--cleanup"}
	case spec.Exec == nil:
		start.Args = []string{"--cleanup"}
	case len(spec.Exec.Cleanup) == 0:
		return start, fmt.Errorf("%s has no cleanup: in its file", spec)
	default:
		return f.commandSpec(node, "cleanup", spec.Exec.Cleanup)
	}
	return start, nil
}

// commandSpec is the process of a command in the file of a node's subject, with the proxy's environment.
func (f *Fleet) commandSpec(node *topology.Node, name string, words []string) (procs.Spec, error) {
	start, err := f.processSpec(node)
	if err != nil {
		return start, err
	}
	values, err := f.placeholderValues(node)
	if err != nil {
		return start, err
	}
	words = expandAll(words, values)
	start.Name, start.Path, start.Args = name+"-"+node.Name, words[0], words[1:]
	return start, nil
}

// commandTimeout bounds the ready and cleanup commands of a subject.
const commandTimeout = 30 * time.Second

// runCommand runs a command on a node to its end, with a log of its own.
func (f *Fleet) runCommand(ctx context.Context, node *topology.Node, start procs.Spec) error {
	p, err := node.Start(f.cfg.Procs, topology.GroupProxy, start)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	select {
	case <-p.Done():
	case <-ctx.Done():
		_ = p.Signal(syscall.SIGKILL)
		<-p.Done()
	}
	if err := p.Err(); err != nil {
		return fmt.Errorf("%s %q on %s: %w; its last lines:\n%s", start.Path, start.Args, node.Name, err, f.cfg.Procs.Tail(start.Name, 5))
	}
	return nil
}

// Retire stops each subject whose file has a cleanup command and runs that command, at the end of a run. A failed cleanup is an
// error.
func (f *Fleet) Retire(ctx context.Context) error {
	for _, node := range f.cfg.Net.Nodes {
		if e := f.spec(node.Name).Exec; e == nil || len(e.Cleanup) == 0 {
			continue
		}
		if p := f.last(node.Name); p != nil && p.Running() {
			if err := f.Stop(ctx, node.Name); err != nil {
				return err
			}
		}
		if err := f.Cleanup(ctx, node.Name); err != nil {
			return err
		}
	}
	return nil
}

// Subject returns the name of the subject that runs on a node or ran there last.
func (f *Fleet) Subject(node string) string { return f.spec(node).String() }
