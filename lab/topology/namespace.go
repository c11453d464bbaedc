//go:build linux

package topology

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace of the lab. It has no name in the file system: the kernel removes it once its
// descriptor is closed and its processes have ended, also if the lab is killed.
type Namespace struct {
	Name string

	mu         sync.RWMutex // read-locked while file is in use
	file       *os.File
	generation int
}

// Generation counts how often Rebuild has replaced the kernel's namespace. Sockets that were opened under an earlier
// generation belong to a former namespace.
func (ns *Namespace) Generation() int {
	ns.mu.RLock()
	defer ns.mu.RUnlock()
	return ns.generation
}

// replaceWith makes ns refer to the kernel namespace of other, whose descriptor ns takes over. Later uses of ns enter
// the new namespace.
func (ns *Namespace) replaceWith(other *Namespace) error {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	old := ns.file
	ns.file = other.file
	ns.generation++
	return old.Close()
}

// enter moves the calling thread into the namespace.
func (ns *Namespace) enter() error {
	ns.mu.RLock()
	defer ns.mu.RUnlock()
	return unix.Setns(int(ns.file.Fd()), unix.CLONE_NEWNET)
}

// NewNamespace creates a network namespace. It needs CAP_SYS_ADMIN (root or a user namespace).
func NewNamespace(name string) (*Namespace, error) {
	type created struct {
		ns  *Namespace
		err error
	}
	result := make(chan created)
	go func() {
		// The thread stays locked, so that it ends with the goroutine and never runs other goroutines in the new
		// namespace.
		runtime.LockOSThread()
		ns, err := unshare(name)
		result <- created{ns, err}
	}()
	r := <-result
	return r.ns, r.err
}

func unshare(name string) (*Namespace, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("creating the network namespace %s: %w (root or a user namespace is needed)", name, err)
	}
	file, err := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
	if err != nil {
		return nil, fmt.Errorf("opening the network namespace %s: %w", name, err)
	}
	return &Namespace{Name: name, file: file}, nil
}

// Do runs f on a thread inside the namespace. Goroutines that f starts run outside of it.
func (ns *Namespace) Do(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		home, err := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		if err != nil {
			done <- fmt.Errorf("entering namespace %s: %w", ns.Name, err)
			return
		}
		defer home.Close()
		if err := ns.enter(); err != nil {
			done <- fmt.Errorf("entering namespace %s: %w", ns.Name, err)
			return
		}
		err = f()
		if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// Enter runs start on the calling goroutine's thread inside the namespace and moves the thread back. If that fails it
// returns an error and the thread stays inside. The caller must have locked the thread. Enter fits procs.Spec.Enter; programs of a
// node start with Node.Start.
func (ns *Namespace) Enter(start func() error) error {
	home, err := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
	if err != nil {
		return fmt.Errorf("entering namespace %s: %w", ns.Name, err)
	}
	defer home.Close()
	if err := ns.enter(); err != nil {
		return fmt.Errorf("entering namespace %s: %w", ns.Name, err)
	}
	return errors.Join(start(), unix.Setns(int(home.Fd()), unix.CLONE_NEWNET))
}

// DialContext dials from inside the namespace. The address must be a literal IP: name resolution would run on other
// threads.
func (ns *Namespace) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := ns.Do(func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Listen listens inside the namespace. The address must be a literal IP.
func (ns *Namespace) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	var listener net.Listener
	err := ns.Do(func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(ctx, network, address)
		return err
	})
	return listener, err
}

// Fd returns the namespace's descriptor, for netlink handles.
func (ns *Namespace) Fd() int {
	ns.mu.RLock()
	defer ns.mu.RUnlock()
	return int(ns.file.Fd())
}

// Close closes the descriptor; the kernel removes the namespace when its last process has ended.
func (ns *Namespace) Close() error { return ns.file.Close() }

// Path is a file that refers to the namespace as long as it is open, for programs that take one. All processes of the lab can open it.
func (ns *Namespace) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.Fd()) }
