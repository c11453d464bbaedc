// Package capture records the packets that open, close, refuse and reject TCP connections: SYN, FIN, RST and ICMP errors. A
// capture is evidence that does not depend on the probes.
package capture

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// Place is a network interface of a network namespace.
type Place struct {
	Name string // in the capture
	Link string // name of the interface
	// Do calls f in the namespace.
	Do func(f func() error) error
	// Generation changes when another namespace replaces this one, as a node's does when it loses power.
	Generation func() int
}

// drainEvery is how often packets are taken from the kernel, whose time stamps they have. Its buffer holds those of a second.
const drainEvery = 100 * time.Millisecond

// Capture is a running capture. Its methods are safe for concurrent use.
type Capture struct {
	mu      sync.Mutex
	sources []*source
	file    *file
	err     error // the first one
	stop    chan struct{}
	stopped chan struct{}
}

// Start starts a capture at all places. now is the time of the run, which the capture's time stamps are in. It needs CAP_NET_RAW
// in the namespaces. After an error nothing is captured.
func Start(places []Place, now func() time.Duration) (*Capture, error) {
	epoch := time.Now().Add(-now())
	names := make([]string, len(places))
	for i, p := range places {
		names[i] = p.Name
	}
	c := &Capture{file: newFile(names), stop: make(chan struct{}), stopped: make(chan struct{})}
	for i, p := range places {
		s := &source{place: p, number: i, epoch: epoch}
		if err := s.open(); err != nil {
			return nil, errors.Join(fmt.Errorf("capturing at %s: %w", p.Name, err), c.close())
		}
		c.sources = append(c.sources, s)
	}
	go c.drainUntilStop()
	return c, nil
}

func (c *Capture) drainUntilStop() {
	defer close(c.stopped)
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.drain()
		case <-c.stop:
			c.drain()
			return
		}
	}
}

func (c *Capture) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sources {
		if err := s.drain(c.file.add); err != nil && c.err == nil {
			c.err = fmt.Errorf("capturing at %s: %w", s.place.Name, err)
		}
	}
}

// Stop ends the capture and returns it as a file in the format pcapng: an interface for each place, in their order, with
// the number of packets that it lost. Times are those of the run, as if it had begun with the year 1970.
func (c *Capture) Stop() ([]byte, error) {
	close(c.stop)
	<-c.stopped
	for _, s := range c.sources {
		received, lost, err := s.statistics()
		if err != nil {
			c.err = errors.Join(c.err, err)
		}
		c.file.count(s.number, received, lost)
	}
	if err := errors.Join(c.err, c.close()); err != nil {
		return nil, err
	}
	return c.file.pcapng()
}

func (c *Capture) close() (err error) {
	for _, s := range c.sources {
		err = errors.Join(err, s.close())
	}
	return err
}
