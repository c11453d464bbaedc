package linux

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/google/nftables"
	mdnetlink "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/proxier/kernel"
)

// Table is the name of the nftables tables (families ip and ip6). Newer versions adopt existing tables with their
// elements, so a set whose type changes needs a new name.
const Table = "hitless-proxier"

// Limits of one netlink attribute (64 KiB) and of the socket's send buffer.
const (
	elementsPerMessage     = 1000
	elementsPerTransaction = 4000
)

// family holds the differences between IPv4 and IPv6.
type family struct {
	table               *nftables.Table
	name                string // name in messages
	addrType            nftables.SetDatatype
	source, destination uint32 // offsets in the IP header
	icmp                kernel.Protocol
	portUnreachable     uint8 // ICMP code of port unreachable
}

var (
	ipv4 = family{&nftables.Table{Name: Table, Family: nftables.TableFamilyIPv4}, "ip", nftables.TypeIPAddr, 12, 16, unix.IPPROTO_ICMP, 3}
	ipv6 = family{&nftables.Table{Name: Table, Family: nftables.TableFamilyIPv6}, "ip6", nftables.TypeIP6Addr, 8, 24, unix.IPPROTO_ICMPV6, 4}
)

func (f family) contains(a netip.Addr) bool { return a.BitLen() == f.bits() }
func (f family) bits() int                  { return int(f.addrType.Bytes) * 8 }
func (f family) String() string             { return "the nftables table " + f.name + " " + Table }

// set returns a set of the family's table. Allowed concatenates fields with ranges, which needs Linux 5.6.
func (f family) set(name kernel.Set) *nftables.Set {
	fields := []nftables.SetDatatype{f.addrType, nftables.TypeInetProto, nftables.TypeInetService}
	ranges := name == kernel.Allowed
	switch name {
	case kernel.Hairpin:
		fields = []nftables.SetDatatype{f.addrType, f.addrType}
	case kernel.Isolated:
		return &nftables.Set{Table: f.table, Name: string(name), KeyType: f.addrType}
	case kernel.Allowed:
		fields = append(fields, f.addrType)
	}
	return &nftables.Set{Table: f.table, Name: string(name), KeyType: nftables.MustConcatSetType(fields...),
		Interval: ranges, Concatenation: ranges}
}

// filter manages the nftables tables. Each call uses its own socket with a deadline, so a lost reply blocks no other
// call.
type filter struct {
	options  Options
	families []family
}

func newFilter(o Options, families ...family) *filter {
	if o.Recreated == nil {
		o.Recreated = func(string) {}
	}
	return &filter{options: o, families: families}
}

func (f *filter) conn() (*nftables.Conn, error) {
	deadline := func(c *mdnetlink.Conn) error { return c.SetDeadline(time.Now().Add(f.options.Deadline)) }
	c, err := nftables.New(nftables.WithSockOptions(deadline))
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket for nftables: %w", err)
	}
	return c, nil
}

func (f *filter) checkTimeout(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		f.options.NoReply("nftables")
		return fmt.Errorf("%w within %v: %w", kernel.ErrNoReply, f.options.Deadline, err)
	}
	return err
}

// prepare creates tables, sets, chains and rules in one transaction. Existing rules are replaced atomically, and
// elements stay.
func (f *filter) prepare() error {
	c, err := f.conn()
	if err != nil {
		return err
	}
	for _, family := range f.families {
		c.AddTable(family.table)
		for _, name := range kernel.Sets() {
			if err := c.AddSet(family.set(name), nil); err != nil {
				return fmt.Errorf("preparing nftables set %s: %w", name, err)
			}
		}
		chains := f.chains(family)
		for _, chain := range chains {
			c.AddChain(chain.chain)
			c.FlushChain(chain.chain)
		}
		for _, chain := range chains {
			for _, rule := range chain.rules {
				c.AddRule(&nftables.Rule{Table: family.table, Chain: chain.chain, Exprs: rule})
			}
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("preparing the nftables tables %s: %w; this needs nf_tables with nft_nat, nft_masq and nft_reject, and CAP_NET_ADMIN; "+
			"another program's table of that name must be deleted", Table, f.checkTimeout(err))
	}
	return nil
}

// isComplete reports whether all chains and rules of a family exist.
func (f *filter) isComplete(c *nftables.Conn, family family) (bool, error) {
	found, err := c.ListChainsOfTableFamily(family.table.Family)
	if err != nil {
		return false, f.checkTimeout(err)
	}
	exists := map[string]bool{}
	for _, chain := range found {
		if chain.Table.Name == Table {
			exists[chain.Name] = true
		}
	}
	for _, want := range f.chains(family) {
		if !exists[want.chain.Name] {
			return false, nil
		}
		rules, err := c.GetRules(family.table, want.chain)
		if err != nil || len(rules) != len(want.rules) {
			return false, f.checkTimeout(err)
		}
	}
	return true, nil
}

// keepsRules reports whether chains, rules and sets must not be changed.
func (f *filter) keepsRules() bool { return f.options.ReadOnly || f.options.KeepRules }

// repair recreates missing parts of a family, unless the rules are kept, and returns the existing sets.
func (f *filter) repair(c *nftables.Conn, family family) ([]kernel.Set, error) {
	if f.keepsRules() {
		return f.existingSets(c, family)
	}
	complete, err := f.isComplete(c, family)
	if err != nil || complete {
		return kernel.Sets(), err
	}
	if err := f.prepare(); err != nil {
		return nil, err
	}
	f.options.Recreated("the rules and sets of " + family.String())
	return kernel.Sets(), nil
}

// existingSets returns the sets of a family that exist.
func (f *filter) existingSets(c *nftables.Conn, family family) ([]kernel.Set, error) {
	tables, err := c.ListTablesOfFamily(family.table.Family)
	if err != nil || !slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == Table }) {
		return nil, f.checkTimeout(err)
	}
	found, err := c.GetSets(family.table)
	if err != nil {
		return nil, f.checkTimeout(err)
	}
	missing := func(name kernel.Set) bool {
		return !slices.ContainsFunc(found, func(s *nftables.Set) bool { return s.Name == string(name) })
	}
	return slices.DeleteFunc(kernel.Sets(), missing), nil
}

// read returns the elements of all sets after repairing them.
func (f *filter) read() ([]kernel.Element, error) {
	c, err := f.conn()
	if err != nil {
		return nil, err
	}
	var all []kernel.Element
	for _, family := range f.families {
		sets, err := f.repair(c, family)
		if err != nil {
			return nil, fmt.Errorf("reading %v: %w", family, err)
		}
		for _, name := range sets {
			found, err := c.GetSetElements(family.set(name))
			if err != nil {
				return nil, fmt.Errorf("reading set %s of %v: %w", name, family, f.checkTimeout(err))
			}
			for _, e := range found {
				element, err := family.decode(name, e)
				if err != nil {
					return nil, fmt.Errorf("reading set %s of %v: %w", name, family, err)
				}
				all = append(all, element)
			}
		}
	}
	return all, nil
}

// has reports whether an element exists.
func (f *filter) has(e kernel.Element) (bool, error) {
	c, err := f.conn()
	if err != nil {
		return false, err
	}
	for _, family := range f.families {
		if !family.contains(e.Key.Addr) {
			continue
		}
		found, err := c.GetSetElements(family.set(e.Set))
		if err != nil {
			return false, fmt.Errorf("reading set %s of %v: %w", e.Set, family, f.checkTimeout(err))
		}
		for _, other := range found {
			if decoded, err := family.decode(e.Set, other); err == nil && decoded == e {
				return true, nil
			}
		}
	}
	return false, nil
}

// change adds and removes elements in one transaction, or several for thousands of elements. Removals come first,
// since client prefixes must not overlap.
func (f *filter) change(add, remove []kernel.Element) error {
	for len(add)+len(remove) > 0 {
		r := min(len(remove), elementsPerTransaction)
		a := min(len(add), elementsPerTransaction-r)
		if err := f.transaction(add[:a], remove[:r]); err != nil {
			return err
		}
		add, remove = add[a:], remove[r:]
	}
	return nil
}

func (f *filter) transaction(add, remove []kernel.Element) error {
	c, err := f.conn()
	if err != nil {
		return err
	}
	if err := f.queue(remove, c.SetDeleteElements); err != nil {
		return fmt.Errorf("removing from nftables sets: %w", err)
	}
	if err := f.queue(add, c.SetAddElements); err != nil {
		return fmt.Errorf("adding to nftables sets: %w", err)
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("changing the sets of the nftables tables %s: %w", Table, f.checkTimeout(err))
	}
	return nil
}

// queue passes elements to message by family and set, in fixed order.
func (f *filter) queue(elements []kernel.Element, message func(*nftables.Set, []nftables.SetElement) error) error {
	queued := 0
	for _, family := range f.families {
		for _, name := range kernel.Sets() {
			var keys []nftables.SetElement
			for _, e := range elements {
				if e.Set == name && family.contains(e.Key.Addr) {
					keys = append(keys, encode(e))
				}
			}
			for portion := range slices.Chunk(keys, elementsPerMessage) {
				if err := message(family.set(name), portion); err != nil {
					return err
				}
			}
			queued += len(keys)
		}
	}
	if queued < len(elements) {
		return fmt.Errorf("%d of %d elements are of a family that this node does not support", len(elements)-queued, len(elements))
	}
	return nil
}

// encode returns an element in the kernel's format: each field padded to four bytes.
func encode(e kernel.Element) nftables.SetElement {
	addr := e.Key.Addr.AsSlice()
	switch e.Set {
	case kernel.Hairpin:
		return nftables.SetElement{Key: append(addr, addr...)}
	case kernel.Isolated:
		return nftables.SetElement{Key: addr}
	}
	key := append(addr, byte(e.Key.Protocol), 0, 0, 0, byte(e.Key.Port>>8), byte(e.Key.Port), 0, 0)
	if e.Set != kernel.Allowed {
		return nftables.SetElement{Key: key}
	}
	first, last := e.Source.Addr().AsSlice(), e.Source.Addr().AsSlice()
	for i, m := range net.CIDRMask(e.Source.Bits(), len(last)*8) {
		last[i] |= ^m
	}
	return nftables.SetElement{Key: append(slices.Clone(key), first...), KeyEnd: append(key, last...)}
}

func (f family) decode(set kernel.Set, found nftables.SetElement) (kernel.Element, error) {
	n, key := int(f.addrType.Bytes), found.Key
	want := map[kernel.Set]int{kernel.Hairpin: 2 * n, kernel.Isolated: n, kernel.Allowed: 2*n + 8}[set]
	if want == 0 {
		want = n + 8
	}
	if len(key) != want || set == kernel.Allowed && len(found.KeyEnd) != want {
		return kernel.Element{}, fmt.Errorf("an element of %d and %d bytes has an unknown format", len(key), len(found.KeyEnd))
	}
	addr, _ := netip.AddrFromSlice(key[:n])
	e := kernel.Element{Set: set, Key: kernel.Key{Addr: addr}}
	if set == kernel.Hairpin || set == kernel.Isolated {
		return e, nil
	}
	e.Key.Protocol, e.Key.Port = kernel.Protocol(key[n]), uint16(key[n+4])<<8|uint16(key[n+5])
	if set == kernel.Allowed {
		e.Source = prefix(key[n+8:], found.KeyEnd[n+8:])
	}
	return e, nil
}

// prefix returns the prefix from the first to the last address.
func prefix(first, last []byte) netip.Prefix {
	bits := 0
	for bits < 8*len(first) && (first[bits/8]^last[bits/8])>>(7-bits%8)&1 == 0 {
		bits++
	}
	addr, _ := netip.AddrFromSlice(first)
	return netip.PrefixFrom(addr, bits)
}
