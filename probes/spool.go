package probes

import (
	"fmt"
	"io"
	"sync"
)

// spoolLimit is what may wait for a slow reader: some 600,000 attempts.
const spoolLimit = 64 << 20

// spool is a writer that never blocks: a goroutine passes the bytes on. It fails when the reader does, and when more
// than spoolLimit waits.
type spool struct {
	out     io.Writer
	mu      sync.Mutex
	waiting []byte
	err     error // the first; it sticks
	closed  bool
	changed *sync.Cond
	ended   chan struct{}
}

func newSpool(out io.Writer) *spool {
	s := &spool{out: out, ended: make(chan struct{})}
	s.changed = sync.NewCond(&s.mu)
	go s.pass()
	return s
}

// Write takes all of p, or fails.
func (s *spool) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && len(s.waiting)+len(p) > spoolLimit {
		s.err = fmt.Errorf("nobody reads: %d bytes wait", len(s.waiting))
		s.changed.Signal()
	}
	if s.err != nil {
		return 0, s.err
	}
	s.waiting = append(s.waiting, p...)
	s.changed.Signal()
	return len(p), nil
}

// pass moves what waits to the reader, with two buffers that change places.
func (s *spool) pass() {
	defer close(s.ended)
	var moving []byte
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for len(s.waiting) == 0 && !s.closed && s.err == nil {
			s.changed.Wait()
		}
		if len(s.waiting) == 0 || s.err != nil {
			return
		}
		moving, s.waiting = s.waiting, moving[:0]
		s.mu.Unlock()
		_, err := s.out.Write(moving)
		s.mu.Lock()
		if err != nil && s.err == nil {
			s.err = err
		}
	}
}

// close passes on what waits and returns the first error.
func (s *spool) close() error {
	s.mu.Lock()
	s.closed = true
	s.changed.Signal()
	s.mu.Unlock()
	<-s.ended
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
