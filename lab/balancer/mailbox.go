package balancer

import (
	"context"
	"sync"
)

// mailbox lets one goroutine own the balancer's state: everybody else posts functions, which it calls in order. It never
// blocks whoever posts.
type mailbox struct {
	mu    sync.Mutex
	queue []func() error
	wake  chan struct{}
}

func newMailbox() *mailbox { return &mailbox{wake: make(chan struct{}, 1)} }

func (m *mailbox) post(f func() error) {
	m.mu.Lock()
	m.queue = append(m.queue, f)
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default: // a wake-up is already on its way
	}
}

func (m *mailbox) take() []func() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.queue
	m.queue = nil
	return all
}

// serve calls what is posted until ctx ends (nil) or a function returns an error.
func (m *mailbox) serve(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.wake:
		}
		for _, f := range m.take() {
			if ctx.Err() != nil {
				return nil
			}
			if err := f(); err != nil {
				return err
			}
		}
	}
}
