package balancer

import (
	"fmt"
	"net/netip"

	"github.com/hitless/hitless/record"
)

// pool allocates external addresses: from number 10 upward in the order of requests, then released ones, the least recently
// used first. The same requests get the same addresses in every run.
type pool struct {
	from       netip.Prefix
	next, last netip.Addr // never allocated so far; next is past last when all were
	returned   []netip.Addr
	used       map[netip.Addr]string // owner by address
}

// firstExternal and lastExternal are the numbers of the first and the last address of a pool in its range.
const firstExternal, lastExternal = 10, 254

func newPool(from netip.Prefix) *pool {
	return &pool{from: from, next: record.Nth(from, firstExternal), last: record.Nth(from, lastExternal), used: map[netip.Addr]string{}}
}

// take allocates the next address.
func (p *pool) take(owner string) (netip.Addr, error) {
	for !p.last.Less(p.next) {
		addr := p.next
		p.next = addr.Next()
		if p.used[addr] == "" {
			p.used[addr] = owner
			return addr, nil
		}
	}
	if len(p.returned) == 0 {
		return netip.Addr{}, fmt.Errorf("all %d external addresses of the lab are in use; delete a Service of type LoadBalancer",
			len(p.used))
	}
	addr := p.returned[0]
	p.returned = p.returned[1:]
	p.used[addr] = owner
	return addr, nil
}

// claim allocates the given address; text is as in a Service.
func (p *pool) claim(owner, text string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%q is not an IP address: %w", text, err)
	}
	if first := record.Nth(p.from, firstExternal); !p.from.Contains(addr) || addr.Less(first) || p.last.Less(addr) {
		return netip.Addr{}, fmt.Errorf("%s is not an external address of the lab; ask for one from %s to %s", addr, first, p.last)
	}
	if by := p.used[addr]; by != "" {
		return netip.Addr{}, fmt.Errorf("%s is in use by %s", addr, by)
	}
	for i, r := range p.returned {
		if r == addr {
			p.returned = append(p.returned[:i:i], p.returned[i+1:]...)
			break
		}
	}
	p.used[addr] = owner
	return addr, nil
}

// release frees an address.
func (p *pool) release(addr netip.Addr) {
	if _, known := p.used[addr]; !known {
		return
	}
	delete(p.used, addr)
	if addr.Less(p.next) { // an address from next on will be allocated in order
		p.returned = append(p.returned, addr)
	}
}
