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
)

// Change says what the next Start of a node's proxy starts: one of the programs of the lab, by the name of its Spec. The
// proxy that is there must have ended.
func (f *Fleet) Change(node, subject string) error {
	if p := f.live[node]; p != nil && p.Running() {
		return fmt.Errorf("the proxy of %s still runs; end it before another takes its place", node)
	}
	i := slices.IndexFunc(f.cfg.Programs, func(p Program) bool { return p.Spec.String() == subject })
	if i < 0 {
		return fmt.Errorf("this lab has no %s", subject)
	}
	f.runs[node] = f.cfg.Programs[i]
	return nil
}

// Cleanup runs the node's subject once more to take everything of it out of the kernel, as its documentation tells users
// to: --cleanup, or the command that a file names. The proxy must have ended. A kube-proxy that ends its own cleanup with a code
// other than 0 has been told to clean up all the same, and what it left is part of what is measured: the record has it.
func (f *Fleet) Cleanup(ctx context.Context, name string) error {
	node, err := f.cfg.Net.Node(name)
	if err != nil {
		return err
	}
	spec := f.spec(name)
	f.record(name, "cleanup", spec.String()+" cleans up what it left on "+name)
	start, err := f.cleanup(node)
	if err != nil {
		return err
	}
	err = f.command(ctx, node, start)
	if code := exitCode(err); code > 0 && spec.Exec == nil && spec.Name != Bundled.Name {
		f.record(name, "cleanup-failed", fmt.Sprintf("%s ended its cleanup on %s with exit code %d; its last line: %s",
			spec, name, code, f.cfg.Procs.Tail(start.Name, 1)))
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", spec, err)
	}
	f.record(name, "clean", spec.String()+" has cleaned up on "+name)
	return nil
}

// exitCode is that of a program that ended by itself, as an error tells it; -1 for all else.
func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}

// cleanup is how the cleanup of the node's subject is started.
func (f *Fleet) cleanup(node *topology.Node) (procs.Spec, error) {
	start, err := f.program(node)
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
		return start, fmt.Errorf("%s names no cleanup: in its file", spec)
	default:
		return f.words(node, "cleanup", spec.Exec.Cleanup)
	}
	return start, nil
}

// words is a command that the file of a node's subject names, with the proxy's environment.
func (f *Fleet) words(node *topology.Node, what string, words []string) (procs.Spec, error) {
	start, err := f.program(node)
	if err != nil {
		return start, err
	}
	values, err := f.values(node)
	if err != nil {
		return start, err
	}
	words = expandAll(words, values)
	start.Name, start.Path, start.Args = what+"-"+node.Name, words[0], words[1:]
	return start, nil
}

// commandWithin bounds a subject's ready and cleanup commands.
const commandWithin = 30 * time.Second

// command runs a command on a node to its end; its output goes to a log of its own.
func (f *Fleet) command(ctx context.Context, node *topology.Node, start procs.Spec) error {
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
		return fmt.Errorf("%s %q on %s: %w; its last lines:\n%s", start.Path, start.Args, node.Name, err, f.cfg.Procs.Tail(start.Name, 5))
	}
	return nil
}

// Retire ends the subject on every node for good, and runs the cleanup that a file names. It is for the end of a run:
// a cleanup that fails is an error, because the file says that it works.
func (f *Fleet) Retire(ctx context.Context) error {
	for _, node := range f.cfg.Net.Nodes {
		if e := f.spec(node.Name).Exec; e == nil || len(e.Cleanup) == 0 {
			continue
		}
		if p := f.live[node.Name]; p != nil && p.Running() {
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

// Subject names what runs on a node, or ran there last.
func (f *Fleet) Subject(node string) string { return f.spec(node).String() }
