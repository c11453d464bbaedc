package kubelet

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
)

// mostHostBits bounds the part of a range that is used: the last byte identifies the pod's link, and its addresses of other families.
const mostHostBits = 8

// addresses allocates the pod addresses of a node: from .2 upward (.1 is the node), then again from .2, so that a
// released address is not reused soon. The same requests get the same addresses.
type addresses struct {
	mu    sync.Mutex
	cidr  netip.Prefix
	first netip.Addr
	last  netip.Addr // the broadcast address of IPv4, never allocated
	next  netip.Addr
	used  []netip.Addr
	freed chan struct{} // closed and replaced when an address is released
}

func newAddresses(cidr netip.Prefix) *addresses {
	cidr = cidr.Masked()
	bits := cidr.Addr().AsSlice()
	for i, free := len(bits)-1, min(cidr.Addr().BitLen()-cidr.Bits(), mostHostBits); free > 0; i, free = i-1, free-8 {
		bits[i] |= byte(1<<min(8, free) - 1)
	}
	last, _ := netip.AddrFromSlice(bits)
	first := cidr.Addr().Next().Next()
	return &addresses{cidr: cidr, first: first, next: first, last: last, freed: make(chan struct{})}
}

// take allocates the next free address, or returns an error when there is none.
func (a *addresses) take() (netip.Addr, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for begin, looked := a.next, false; !looked || a.next != begin; looked = true {
		addr := a.next
		if a.next = addr.Next(); a.next == a.last {
			a.next = a.first
		}
		if !slices.Contains(a.used, addr) {
			a.used = append(a.used, addr)
			return addr, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("no free address is left in %s", a.cidr)
}

// reserve allocates a given address and waits until it is free. It returns an error if the address is outside of the
// pod range or ctx ends.
func (a *addresses) reserve(ctx context.Context, addr netip.Addr) error {
	if !a.cidr.Contains(addr) || addr.Less(a.first) || addr == a.last {
		return fmt.Errorf("%s is not one of the pod addresses %s to %s", addr, a.first, a.last.Prev())
	}
	for {
		a.mu.Lock()
		freed := a.freed
		taken := slices.Contains(a.used, addr)
		if !taken {
			a.used = append(a.used, addr)
		}
		a.mu.Unlock()
		if !taken {
			return nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the address %s: %w", addr, ctx.Err())
		}
	}
}

// release frees an address.
func (a *addresses) release(addr netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used = slices.DeleteFunc(a.used, func(u netip.Addr) bool { return u == addr })
	close(a.freed)
	a.freed = make(chan struct{})
}
