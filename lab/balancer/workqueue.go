package balancer

import (
	"context"
	"sync"
)

// workQueue runs posted functions in order in one goroutine, which owns the balancer's state. post does not block.
type workQueue struct {
	mu    sync.Mutex
	queue []func() error
	wake  chan struct{}
}

func newWorkQueue() *workQueue { return &workQueue{wake: make(chan struct{}, 1)} }

func (m *workQueue) post(f func() error) {
	m.mu.Lock()
	m.queue = append(m.queue, f)
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default: // a wake-up is pending
	}
}

func (m *workQueue) take() []func() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.queue
	m.queue = nil
	return all
}

// serve runs posted functions until ctx ends (nil) or a function returns an error.
func (m *workQueue) serve(ctx context.Context) error {
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
