//go:build !linux

package backend

import (
	"errors"
	"fmt"
	"net"
)

// loop passes all connections on to net/http. Pods run on Linux only.
type loop struct {
	ports  *listeners
	others *handedOver
	server *server
}

func (s *server) accept(ports *listeners, others *handedOver) (*loop, error) {
	return &loop{ports: ports, others: others, server: s}, nil
}

func (l *loop) stop() { l.ports.close() }

// run returns nil after stop.
func (l *loop) run() error {
	failed := make(chan error, 2)
	go func() { failed <- l.accept() }()
	go func() { failed <- l.server.serveUDP(l.ports.udp) }()
	err := <-failed
	l.stop()
	if other := <-failed; errors.Is(err, net.ErrClosed) {
		err = other
	}
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (l *loop) accept() error {
	for {
		conn, err := l.ports.http.Accept()
		if err != nil {
			return fmt.Errorf("accepting a connection: %w", err)
		}
		l.others.add(conn, nil, nil)
	}
}

func (s *server) serveUDP(conn net.PacketConn) error {
	if conn == nil {
		return net.ErrClosed
	}
	buf := make([]byte, 2048)
	for {
		n, client, err := conn.ReadFrom(buf)
		if err != nil {
			return err
		}
		if answer, ok := s.reply(string(buf[:n]), client.String(), s.options.UDPPort); ok {
			// A write fails with the ICMP error of a client that is gone; other clients must still be served.
			if _, err := conn.WriteTo([]byte(answer), client); errors.Is(err, net.ErrClosed) {
				return err
			}
		}
	}
}
