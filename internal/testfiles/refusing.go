package testfiles

import (
	"net"
	"net/netip"
	"testing"
)

// Refusing returns an address of loopback that refuses TCP connections until the test ends. Its port is that of an open connection, so that
// no other program can listen there.
func Refusing(t testing.TB) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return ownAddress(t, "tcp", l.Addr().String())
}

// RefusingUDP returns an address of loopback that refuses datagrams until the test ends. Its port is that of a socket that accepts
// datagrams of another address only.
func RefusingUDP(t testing.TB) netip.AddrPort {
	t.Helper()
	return ownAddress(t, "udp", "127.0.0.1:9")
}

// ownAddress connects a socket, and returns the socket's own address.
func ownAddress(t testing.TB, network, to string) netip.AddrPort {
	t.Helper()
	c, err := net.Dial(network, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return netip.MustParseAddrPort(c.LocalAddr().String())
}
