//go:build unix

package testfiles

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"
)

// These addresses refuse connections and datagrams, and no other program can bind them.
func TestRefusingAddresses(t *testing.T) {
	at := Refusing(t).String()
	if _, err := net.Dial("tcp", at); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a connection to %s gave %v", at, err)
	}
	if l, err := net.Listen("tcp", at); err == nil {
		l.Close()
		t.Errorf("another program can listen on %s", at)
	}
	at = RefusingUDP(t).String()
	c, err := net.Dial("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("?")); err != nil {
		t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a datagram to %s gave %v", at, err)
	}
	if l, err := net.ListenPacket("udp", at); err == nil {
		l.Close()
		t.Errorf("another program can receive at %s", at)
	}
}
