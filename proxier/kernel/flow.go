package kernel

import (
	"fmt"
	"net/netip"
	"strings"
)

// Flows are what conntrack remembers of packets to a virtual server. Keep says whose answers may go on.
type Flows struct {
	Key  Key
	Keep []netip.AddrPort // real servers
}

// Stale reports whether a flow to the virtual server must be forgotten, given the address that conntrack expects its
// answers from. One that was not translated at all is stale: it came before the virtual server did, and its packets would
// never be masqueraded while it lasts, which may be for ever. One of a protocol that does not drain is stale too when it
// leads to a real server that is not kept; one that drains ends with its connection.
func (f Flows) Stale(answers netip.AddrPort) bool {
	if answers == netip.AddrPortFrom(f.Key.Addr, f.Key.Port) {
		return true
	}
	if f.Key.Protocol.Drains() {
		return false
	}
	for _, real := range f.Keep {
		if real == answers {
			return false
		}
	}
	return true
}

// ForgetFlows makes conntrack forget the stale flows of virtual servers, and no others.
type ForgetFlows struct{ Of []Flows }

// Name implements Op.
func (ForgetFlows) Name() string { return "forget-flows" }

func (o ForgetFlows) String() string {
	var b strings.Builder
	b.WriteString("forget-flows")
	for i, f := range o.Of {
		if i == maxShown {
			fmt.Fprintf(&b, " and %d more", len(o.Of)-maxShown)
			break
		}
		fmt.Fprintf(&b, " %v", f.Key)
	}
	return b.String()
}

// apply changes nothing that a State remembers.
func (ForgetFlows) apply(*State) error { return nil }
