//go:build linux

package topology

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/hitless/hitless/lab/procs"
)

// Start starts a program on the node: in its namespaces, and in a subgroup of its control group.
func (n *Node) Start(s *procs.Supervisor, group string, spec procs.Spec) (*procs.Process, error) {
	return n.StartIn(n.Namespace, s, group, spec)
}

// StartIn is Start in the network namespace of one of the node's pods. Its Enter, if it has one, is called inside of the node.
func (n *Node) StartIn(pod *Namespace, s *procs.Supervisor, group string, spec procs.Spec) (*procs.Process, error) {
	spec.Group = n.own.subgroup(group)
	within := spec.Enter
	spec.Enter = func(start func() error) error {
		if within == nil {
			return n.inside(pod, start)
		}
		return n.inside(pod, func() error { return within(start) })
	}
	return s.Start(spec)
}

// Run runs a command on the node to its end, as Start with GroupSystem.
func (n *Node) Run(cmd *exec.Cmd) error {
	dir, err := n.own.subgroup(GroupSystem).Open()
	if err != nil {
		return err
	}
	if dir != nil {
		defer dir.Close()
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	}
	return n.Inside(cmd.Run)
}

// Inside runs f on a thread in all of the node's namespaces. Goroutines that f starts run outside of them. Do is for what needs the
// node's network only.
func (n *Node) Inside(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: see private.enter
		done <- n.inside(n.Namespace, f)
	}()
	return <-done
}

// inside runs f on the calling goroutine's thread in the node's namespaces, with the network of net, and moves the thread back. The
// goroutine must have locked the thread, and never unlock it.
func (n *Node) inside(net *Namespace, f func() error) error {
	leave, err := n.own.enter()
	if err != nil {
		return fmt.Errorf("entering %s: %w", n.Name, err)
	}
	err = net.Enter(f)
	return errors.Join(err, leave())
}
