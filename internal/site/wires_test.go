package site

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// unanswered is the timeout of a connection, like that of an API server to a pod.
const unanswered = 30 * time.Second

// wires is a network in memory for testing/synctest, whose clock stops while a goroutine waits at a real socket. A host can be
// partitioned: packets from and to it are then dropped silently.
type wires struct {
	mu     sync.Mutex
	open   map[string]*wireListener // by address
	lost   map[string]bool          // by host
	passed atomic.Int64             // bytes on counted connections
}

func newWires() *wires { return &wires{open: map[string]*wireListener{}, lost: map[string]bool{}} }

// cut partitions a host, or connects it again.
func (w *wires) cut(host string, lost bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost[host] = lost
}

func (w *wires) isCut(host string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost[host]
}

func (w *wires) listen(address string) net.Listener {
	l := &wireListener{network: w, address: address, coming: make(chan net.Conn), closed: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open[address] = l
	return l
}

// dial opens a connection. A partitioned host does not answer.
func (w *wires) dial(ctx context.Context, _, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	l, lost := w.open[address], w.lost[host]
	w.mu.Unlock()
	switch {
	case lost:
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("dial tcp %s: %w", address, context.Cause(ctx))
		case <-time.After(unanswered):
			return nil, fmt.Errorf("dial tcp %s: i/o timeout", address)
		}
	case l == nil:
		return nil, fmt.Errorf("dial tcp %s: connection refused", address)
	}
	here, there := net.Pipe()
	select {
	case l.coming <- &wire{Conn: there, network: w, host: host}:
		return &wire{Conn: here, network: w, host: host}, nil
	case <-l.closed:
		return nil, fmt.Errorf("dial tcp %s: connection refused", address)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// dialCounted is dial for a connection whose bytes in both directions are counted.
func (w *wires) dialCounted(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := w.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return counted{c, &w.passed}, nil
}

// wire is one end of a connection to a host.
type wire struct {
	net.Conn
	network *wires
	host    string
}

// Write sends data. The data and the connection are lost while the host is partitioned.
func (c *wire) Write(p []byte) (int, error) {
	if c.network.isCut(c.host) {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// counted is a connection whose bytes are counted.
type counted struct {
	net.Conn
	bytes *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.bytes.Add(int64(n))
	return n, err
}

type wireListener struct {
	network *wires
	address string
	coming  chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (l *wireListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.coming:
		return c, nil
	case <-l.closed:
		return nil, errors.Join(net.ErrClosed, io.EOF)
	}
}

func (l *wireListener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.network.mu.Lock()
		defer l.network.mu.Unlock()
		if l.network.open[l.address] == l {
			delete(l.network.open, l.address)
		}
	})
	return nil
}

func (l *wireListener) Addr() net.Addr { return wireAddr(l.address) }

type wireAddr string

func (wireAddr) Network() string  { return "tcp" }
func (a wireAddr) String() string { return string(a) }
