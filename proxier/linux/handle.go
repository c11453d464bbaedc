package linux

import (
	"fmt"
	"sync"
	"time"

	"github.com/moby/ipvs"

	"github.com/hitless/hitless/proxier/kernel"
)

// ipvsHandle is implemented by batchHandle: the methods of *ipvs.Handle that are used, and ApplyAll.
type ipvsHandle interface {
	NewService(*ipvs.Service) error
	UpdateService(*ipvs.Service) error
	DelService(*ipvs.Service) error
	GetService(*ipvs.Service) (*ipvs.Service, error)
	GetServices() ([]*ipvs.Service, error)
	NewDestination(*ipvs.Service, *ipvs.Destination) error
	UpdateDestination(*ipvs.Service, *ipvs.Destination) error
	DelDestination(*ipvs.Service, *ipvs.Destination) error
	GetDestinations(*ipvs.Service) ([]*ipvs.Destination, error)
	SetConfig(*ipvs.Config) error
	ApplyAll([]kernel.Op) ([]error, error) // not in *ipvs.Handle
	Close()
}

// handle owns the netlink socket for IPVS. Concurrent users of one socket discard each other's replies and wait
// forever (kubernetes#71071), and moby/ipvs waits forever for a lost reply, since it continues after receive
// timeouts. So calls are serialised, and after a deadline the socket is replaced.
type handle struct {
	open     func() (ipvsHandle, error)
	deadline time.Duration
	noReply  func()

	mu      sync.Mutex
	current ipvsHandle
}

type reply[T any] struct {
	value T
	err   error
}

// call runs f with the current socket. f may continue after the deadline, so it must share only its result with the
// caller.
func call[T any](h *handle, what string, f func(ipvsHandle) (T, error)) (T, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var none T
	if h.current == nil {
		t, err := h.open()
		if err != nil {
			return none, fmt.Errorf("opening a netlink socket for IPVS: %w", err)
		}
		h.current = t
	}
	t := h.current
	done := make(chan reply[T], 1)
	go func() {
		value, err := f(t)
		done <- reply[T]{value, err}
	}()
	timer := time.NewTimer(h.deadline)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.value, r.err
	case <-timer.C:
		h.current = nil
		h.noReply()
		go t.Close() // ends f; Close itself may block in the kernel
		return none, fmt.Errorf("%s: %w within %v; the netlink socket was replaced", what, kernel.ErrNoReply, h.deadline)
	}
}

// do is call for functions without a value.
func (h *handle) do(what string, f func(ipvsHandle) error) error {
	_, err := call(h, what, func(t ipvsHandle) (struct{}, error) { return struct{}{}, f(t) })
	return err
}

func (h *handle) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current != nil {
		h.current.Close()
		h.current = nil
	}
}
