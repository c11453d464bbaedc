package linux

import (
	"fmt"
	"sync"
	"time"

	"github.com/moby/ipvs"

	"github.com/hitless/hitless/proxier/kernel"
)

// table is what is used of an *ipvs.Handle, and what an ipvsTable adds to it.
type table interface {
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
	ApplyAll([]kernel.Op) ([]error, error) // beside what an *ipvs.Handle has
	Close()
}

// handle owns the only netlink socket on IPVS. Two goroutines on one socket read each other's replies, throw them away
// and wait for ever (kubernetes#71071), and moby/ipvs waits for ever when a reply is lost, whoever lost it: it takes a
// receive time-out as a reason to go on receiving. So calls are locked, and each one has a deadline after which the
// socket is given up and a new one opened.
type handle struct {
	open     func() (table, error)
	deadline time.Duration
	lost     func()

	mu      sync.Mutex
	current table
}

type reply[T any] struct {
	value T
	err   error
}

// call runs f with the handle. F may go on after the deadline; it must share nothing with its caller but what it returns.
func call[T any](h *handle, what string, f func(table) (T, error)) (T, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var none T
	if h.current == nil {
		t, err := h.open()
		if err != nil {
			return none, fmt.Errorf("opening a netlink handle on IPVS: %w", err)
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
		h.lost()
		go t.Close() // ends f; it may wait itself, for a call that sits in the kernel
		return none, fmt.Errorf("%s: %w within %v; the handle was given up", what, kernel.ErrNoReply, h.deadline)
	}
}

// do is call for functions that return an error only.
func (h *handle) do(what string, f func(table) error) error {
	_, err := call(h, what, func(t table) (struct{}, error) { return struct{}{}, f(t) })
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
