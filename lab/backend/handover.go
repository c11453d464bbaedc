package backend

import (
	"fmt"
	"net"
	"sync"
)

// start runs the loop until the function that it returns is called, which also waits for its end. An error goes to failed.
func (l *loop) start(failed chan<- error) (stop func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := l.run(); err != nil {
			failed <- fmt.Errorf("serving HTTP: %w", err)
		}
	}()
	return sync.OnceFunc(func() {
		l.stop()
		<-ended
	})
}

// handedOver is a listener that accepts connections from the loop.
type handedOver struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	at     net.Addr
}

func newHandedOver(at net.Addr) *handedOver {
	return &handedOver{conns: make(chan net.Conn), closed: make(chan struct{}), at: at}
}

// add passes a connection on: what its client has sent already, and what it has yet to get. It does not block.
func (h *handedOver) add(conn net.Conn, received, unsent []byte) {
	go func() {
		if len(unsent) > 0 {
			if _, err := conn.Write(unsent); err != nil {
				conn.Close()
				return
			}
		}
		select {
		case h.conns <- &begunConn{Conn: conn, received: received}:
		case <-h.closed:
			conn.Close()
		}
	}()
}

// Accept is that of net.Listener.
func (h *handedOver) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return conn, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close is that of net.Listener.
func (h *handedOver) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// Addr is that of net.Listener.
func (h *handedOver) Addr() net.Addr { return h.at }

// begunConn is a connection of which a part was read before.
type begunConn struct {
	net.Conn
	received []byte
}

// Read is that of net.Conn.
func (c *begunConn) Read(b []byte) (int, error) {
	if len(c.received) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.received)
	c.received = c.received[n:]
	return n, nil
}
