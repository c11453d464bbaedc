package linux

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/google/nftables"
	mdnetlink "github.com/mdlayher/netlink"

	"github.com/hitless/hitless/proxier/kernel"
)

// Table is the name of the nftables table (family ip). A process that is newer adopts it with its elements; should the
// type of a set have to change one day, the set needs a new name.
const Table = "hitless-proxier"

// Elements go to the kernel in portions: one netlink attribute holds 64 KiB, and one transaction has to fit into the
// socket's send buffer.
const (
	elementsPerMessage     = 1000
	elementsPerTransaction = 4000
)

var (
	portKey = nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeInetProto, nftables.TypeInetService)
	pairKey = nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeIPAddr)
)

// filter is the nftables part. Each call opens a socket of its own with a deadline, so a lost reply can hold up nothing.
type filter struct {
	options Options
	table   *nftables.Table
}

func newFilter(o Options) *filter {
	return &filter{options: o, table: &nftables.Table{Name: Table, Family: nftables.TableFamilyIPv4}}
}

func (f *filter) conn() (*nftables.Conn, error) {
	deadline := func(c *mdnetlink.Conn) error { return c.SetDeadline(time.Now().Add(f.options.Deadline)) }
	c, err := nftables.New(nftables.WithSockOptions(deadline))
	if err != nil {
		return nil, fmt.Errorf("opening a netlink handle on nftables: %w", err)
	}
	return c, nil
}

func (f *filter) checked(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		f.options.Lost("nftables")
		return fmt.Errorf("%w within %v: %w", ErrLost, f.options.Deadline, err)
	}
	return err
}

func (f *filter) set(name kernel.Set) *nftables.Set {
	s := &nftables.Set{Table: f.table, Name: string(name), KeyType: portKey}
	if name == kernel.Hairpin {
		s.KeyType = pairKey
	}
	return s
}

// prepare makes table, sets, chains and rules, all in one transaction: what is there is replaced without a gap, and the
// elements stay.
func (f *filter) prepare() error {
	c, err := f.conn()
	if err != nil {
		return err
	}
	c.AddTable(f.table)
	for _, name := range kernel.Sets() {
		if err := c.AddSet(f.set(name), nil); err != nil {
			return fmt.Errorf("preparing nftables set %s: %w", name, err)
		}
	}
	for _, chain := range f.chains() {
		c.AddChain(chain.chain)
		c.FlushChain(chain.chain)
		for _, rule := range chain.rules {
			c.AddRule(&nftables.Rule{Table: f.table, Chain: chain.chain, Exprs: rule})
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("preparing the nftables table ip %s: %w; it needs nf_tables with nft_nat and nft_masq, and CAP_NET_ADMIN; "+
			"a table of that name which is not the proxier's must be deleted", Table, f.checked(err))
	}
	return nil
}

// complete reports whether all chains and rules are there.
func (f *filter) complete(c *nftables.Conn) (bool, error) {
	found, err := c.ListChainsOfTableFamily(nftables.TableFamilyIPv4)
	if err != nil {
		return false, f.checked(err)
	}
	exists := map[string]bool{}
	for _, chain := range found {
		if chain.Table.Name == Table {
			exists[chain.Name] = true
		}
	}
	for _, want := range f.chains() {
		if !exists[want.chain.Name] {
			return false, nil
		}
		rules, err := c.GetRules(f.table, want.chain)
		if err != nil || len(rules) != len(want.rules) {
			return false, f.checked(err)
		}
	}
	return true, nil
}

// read returns the elements of all sets, after it has made again what somebody took away.
func (f *filter) read() ([]kernel.Element, error) {
	c, err := f.conn()
	if err != nil {
		return nil, err
	}
	complete, err := f.complete(c)
	if err != nil {
		return nil, fmt.Errorf("reading the nftables table ip %s: %w", Table, err)
	}
	if !complete {
		if err := f.prepare(); err != nil {
			return nil, err
		}
	}
	var all []kernel.Element
	for _, name := range kernel.Sets() {
		found, err := c.GetSetElements(f.set(name))
		if err != nil {
			return nil, fmt.Errorf("reading nftables set %s: %w", name, f.checked(err))
		}
		for _, e := range found {
			key, err := decode(name, e.Key)
			if err != nil {
				return nil, fmt.Errorf("reading nftables set %s: %w", name, err)
			}
			all = append(all, kernel.Element{Set: name, Key: key})
		}
	}
	return all, nil
}

// change adds and removes elements in one transaction, or in several when there are thousands.
func (f *filter) change(add, remove []kernel.Element) error {
	for len(add)+len(remove) > 0 {
		a := min(len(add), elementsPerTransaction)
		r := min(len(remove), elementsPerTransaction-a)
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
	if err := f.queue(add, c.SetAddElements); err != nil {
		return fmt.Errorf("adding to nftables sets: %w", err)
	}
	if err := f.queue(remove, c.SetDeleteElements); err != nil {
		return fmt.Errorf("removing from nftables sets: %w", err)
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("changing the sets of nftables table ip %s: %w", Table, f.checked(err))
	}
	return nil
}

// queue hands elements over set by set, in their fixed order.
func (f *filter) queue(elements []kernel.Element, message func(*nftables.Set, []nftables.SetElement) error) error {
	for _, name := range kernel.Sets() {
		var portion []nftables.SetElement
		for _, e := range elements {
			if e.Set != name {
				continue
			}
			portion = append(portion, nftables.SetElement{Key: encode(e)})
			if len(portion) == elementsPerMessage {
				if err := message(f.set(name), portion); err != nil {
					return err
				}
				portion = nil
			}
		}
		if len(portion) > 0 {
			if err := message(f.set(name), portion); err != nil {
				return err
			}
		}
	}
	return nil
}

// encode writes an element's key as the kernel has it: each part padded to four bytes.
func encode(e kernel.Element) []byte {
	addr := e.Key.Addr.As4()
	if e.Set == kernel.Hairpin {
		return append(addr[:], addr[:]...)
	}
	return append(addr[:], byte(e.Key.Protocol), 0, 0, 0, byte(e.Key.Port>>8), byte(e.Key.Port), 0, 0)
}

func decode(set kernel.Set, key []byte) (kernel.Key, error) {
	switch {
	case set == kernel.Hairpin && len(key) == 8:
		return kernel.Key{Addr: netip.AddrFrom4([4]byte(key[:4]))}, nil
	case set != kernel.Hairpin && len(key) == 12:
		return kernel.Key{Addr: netip.AddrFrom4([4]byte(key[:4])), Protocol: kernel.Protocol(key[4]),
			Port: uint16(key[8])<<8 | uint16(key[9])}, nil
	}
	return kernel.Key{}, fmt.Errorf("an element of %d bytes is none of ours", len(key))
}
