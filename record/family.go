package record

import "net/netip"

// Family is an address family, or both. The zero value is IPv4.
type Family string

// The families, in the words of the parameter family.
const (
	IPv4      Family = "ipv4"
	IPv6      Family = "ipv6"
	DualStack Family = "dual"
)

// Families are the words of the parameter family.
func Families() []string { return []string{string(IPv4), string(IPv6), string(DualStack)} }

// Each returns the single families, the primary one first.
func (f Family) Each() []Family {
	switch f {
	case IPv6:
		return []Family{IPv6}
	case DualStack:
		return []Family{IPv4, IPv6}
	}
	return []Family{IPv4}
}

// Primary is the family of the API server and of the nodes' first addresses.
func (f Family) Primary() Family { return f.Each()[0] }

// API is the name of a single family in the Kubernetes API, as the IPFamily of a Service and the AddressType of an EndpointSlice.
func (f Family) API() string {
	if f == IPv6 {
		return "IPv6"
	}
	return "IPv4"
}

// FamilyOf is the single family of an address; an IPv4 address in IPv6 form is IPv4.
func FamilyOf(a netip.Addr) Family {
	if a.Unmap().Is4() {
		return IPv4
	}
	return IPv6
}

// Among returns the first of the addresses that has a single family, and false when none has it. Text that is no address has none.
func (f Family) Among(addresses ...string) (address string, ok bool) {
	for _, text := range addresses {
		if a, err := netip.ParseAddr(text); err == nil && FamilyOf(a) == f {
			return text, true
		}
	}
	return "", false
}

// Named is a name of something that exists once in each single family: that of IPv4 is the plain name.
func (f Family) Named(name string) string {
	if f == IPv6 {
		return name + "-" + string(IPv6)
	}
	return name
}

// Nth returns address number n of a prefix, 0 to 255, which replaces the last byte.
func Nth(p netip.Prefix, n int) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	b[len(b)-1] = byte(n)
	addr, _ := netip.AddrFromSlice(b)
	return addr
}
