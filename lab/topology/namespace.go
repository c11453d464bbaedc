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

// Namespace is a network namespace that the lab made. It lives as long as its descriptor and the processes in it: no
// name in the file system, so nothing is left behind when the lab is killed.
type Namespace struct {
	Name string

	mu   sync.RWMutex // held for reading while somebody goes through file
	file *os.File
	life int
}

// Life counts how often another namespace has taken this one's place: what was opened in it before is of a former one.
func (ns *Namespace) Life() int {
	ns.mu.RLock()
	defer ns.mu.RUnlock()
	return ns.life
}

// become makes ns stand for the namespace other, which is given away. Whoever holds ns is in the new one from now on.
func (ns *Namespace) become(other *Namespace) error {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	old := ns.file
	ns.file = other.file
	ns.life++
	return old.Close()
}

// enter takes the calling thread into the namespace.
func (ns *Namespace) enter() error {
	ns.mu.RLock()
	defer ns.mu.RUnlock()
	return unix.Setns(int(ns.file.Fd()), unix.CLONE_NEWNET)
}

// NewNamespace makes a network namespace. It needs CAP_SYS_ADMIN (root, or a user namespace).
func NewNamespace(name string) (*Namespace, error) {
	type made struct {
		ns  *Namespace
		err error
	}
	result := make(chan made)
	go func() {
		// The thread is never unlocked, so that it ends with the goroutine instead of going back to the pool inside
		// the new namespace.
		runtime.LockOSThread()
		ns, err := unshare(name)
		result <- made{ns, err}
	}()
	r := <-result
	return r.ns, r.err
}

func unshare(name string) (*Namespace, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("making the network namespace %s: %w (root, or a user namespace, is needed)", name, err)
	}
	file, err := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
	if err != nil {
		return nil, fmt.Errorf("opening the network namespace %s: %w", name, err)
	}
	return &Namespace{Name: name, file: file}, nil
}

// Do runs f on a thread inside the namespace. f must not start goroutines that need the namespace.
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

// Enter runs start on the calling goroutine's thread inside the namespace, and leaves the thread there on failure to
// come back. The caller has locked the thread. It is the form that procs.Spec.Enter wants.
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

// DialContext dials from inside the namespace. The address must be a literal IP: names would be looked up by
// goroutines on other threads.
func (ns *Namespace) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := ns.Do(func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Listen listens inside the namespace on a literal IP address.
func (ns *Namespace) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	var listener net.Listener
	err := ns.Do(func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(ctx, network, address)
		return err
	})
	return listener, err
}

// Fd is the descriptor of the namespace, for netlink handles that live in it.
func (ns *Namespace) Fd() int {
	ns.mu.RLock()
	defer ns.mu.RUnlock()
	return int(ns.file.Fd())
}

// Close lets the namespace go; the kernel removes it when its last process has ended.
func (ns *Namespace) Close() error { return ns.file.Close() }
