package timeline

import "strings"

// The protocols of lanes, which are their names.
const (
	TCPNew    = "tcp-new"
	TCPLong   = "tcp-long"
	HTTPReuse = "http-reuse"
	UDPFresh  = "udp-fresh"
	UDPSticky = "udp-sticky"
)

// Protocols are all protocols in the order in which lanes start: connections that stay open come first.
func Protocols() []string { return []string{TCPLong, HTTPReuse, UDPSticky, UDPFresh, TCPNew} }

// IsUDP reports whether a protocol uses datagrams.
func IsUDP(protocol string) bool { return strings.HasPrefix(protocol, "udp-") }
