package tables

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// ruleset is a node's nftables tables.
type ruleset interface {
	// bases are the chains that translate destinations of a family at a hook, in the order in which the kernel takes them.
	bases(family nftables.TableFamily, hook nftables.ChainHook) ([]*nftables.Chain, error)
	rules(table *nftables.Table, chain string) ([]*nftables.Rule, error)
	elements(table *nftables.Table, set string) ([]nftables.SetElement, error)
}

// walk takes the first packet of a connection through the rules on every way that it may go, and finds the backends that the
// kernel may choose. It knows no proxy: chains of endpoints, maps of random numbers and what iptables makes are all rules.
type walk struct {
	ruleset
	packet packet
	table  *nftables.Table
	passed bool // it may be accepted as it is, and go on with the next table
	found  map[netip.AddrPort]int
}

// after is where a packet may be after a rule: at the next one, or back where its chain was called.
type after struct{ next, back bool }

// backends are those that new connections to a virtual server may go to from a node with the address; each has weight 1.
func backends(r ruleset, node netip.Addr, s Server) (map[netip.AddrPort]int, error) {
	w := &walk{ruleset: r, packet: packetTo(s, node), found: map[netip.AddrPort]int{}}
	bases, err := r.bases(w.packet.family, w.packet.hook)
	if err != nil {
		return nil, err
	}
	var last *nftables.Chain
	for _, base := range bases {
		// A connection is translated once. Which of two chains of one priority comes first, the kernel does not tell.
		if last != nil && *last.Priority != *base.Priority {
			break
		}
		w.table, w.passed = base.Table, false
		back, err := w.chain(base.Name)
		if err != nil {
			return nil, fmt.Errorf("the table %s: %w", base.Table.Name, err)
		}
		if !back && !w.passed {
			last = base
		}
	}
	return w.found, nil
}

// chain reports whether the packet may come back from a chain.
func (w *walk) chain(name string) (back bool, err error) {
	rules, err := w.rules(w.table, name)
	if err != nil {
		return false, err
	}
	for _, rule := range rules {
		then, err := w.rule(rule.Exprs, blank())
		if err != nil {
			return false, fmt.Errorf("the chain %s: %w", name, err)
		}
		if back = back || then.back; !then.next {
			return back, nil
		}
	}
	return true, nil
}

// rule follows what is left of a rule. What nobody can know beforehand, or what is not understood, may match or not.
func (w *walk) rule(left []expr.Any, r registers) (after, error) {
	matches := yes
	for i, e := range left {
		one := yes
		switch e := e.(type) {
		case *expr.Counter, *expr.Log, *expr.Dynset, *expr.Objref, *expr.Notrack:
		case *expr.Meta:
			if !e.SourceRegister {
				r.put(e.Register, w.packet.meta(e.Key))
			}
		case *expr.Payload:
			if e.OperationType == expr.PayloadLoad {
				r.put(e.DestRegister, w.packet.load(e.Base, e.Offset, e.Len))
			}
		case *expr.Fib:
			r.put(e.Register, w.packet.fib(e))
		case *expr.Ct:
			if !e.SourceRegister {
				r.put(e.Register, nothing(16))
			}
		case *expr.Numgen:
			r.draw(e)
		case *expr.Immediate:
			r.put(e.Register, known(e.Data))
		case *expr.Bitwise:
			r.put(e.DestRegister, masked(r.get(e.SourceRegister, int(e.Len)), e))
		case *expr.Cmp:
			one = compare(r.get(e.Register, len(e.Data)), e)
		case *expr.Match:
			one = w.packet.match(e)
		case *expr.Lookup:
			if e.IsDestRegSet {
				then, err := w.choose(e, left[i+1:], r)
				then.next = then.next || matches != yes
				return then, err
			}
			var err error
			if one, err = w.isIn(e, &r); err != nil {
				return after{}, err
			}
		case *expr.Verdict:
			then, err := w.verdict(e)
			then.next = then.next || matches != yes
			return then, err
		case *expr.Redir, *expr.Reject:
			return after{next: matches != yes}, nil
		case *expr.NAT:
			w.translate(e, &r)
			return after{next: matches != yes}, nil
		case *expr.Target:
			switch e.Name {
			case "DNAT":
				return after{next: matches != yes}, w.target(e)
			case "REDIRECT", "REJECT":
				return after{next: matches != yes}, nil
			}
		default:
			one = maybe
		}
		if matches = min(matches, one); matches == no {
			break
		}
	}
	return after{next: true}, nil
}

func (w *walk) verdict(v *expr.Verdict) (after, error) {
	switch v.Kind {
	case expr.VerdictJump:
		back, err := w.chain(v.Chain)
		return after{next: back}, err
	case expr.VerdictGoto:
		back, err := w.chain(v.Chain)
		return after{back: back}, err
	case expr.VerdictReturn:
		return after{back: true}, nil
	case expr.VerdictContinue, expr.VerdictBreak:
		return after{next: true}, nil
	case expr.VerdictAccept:
		w.passed = true
	}
	return after{}, nil
}

// isIn tells whether a set has what is in a register.
func (w *walk) isIn(e *expr.Lookup, r *registers) (truth, error) {
	_, is, err := w.lookUp(e, r)
	if e.Invert {
		is = yes - is
	}
	return is, err
}

// choose follows the rest of a rule with each value that a map may give.
func (w *walk) choose(e *expr.Lookup, rest []expr.Any, r registers) (all after, err error) {
	values, is, err := w.lookUp(e, &r)
	if err != nil {
		return all, err
	}
	all.next = is != yes
	for _, value := range values {
		var then after
		if e.DestRegister == unix.NFT_REG_VERDICT {
			var v *expr.Verdict
			if v, err = verdictOf(value.Val); err == nil {
				then, err = w.verdict(v)
			}
		} else {
			other := r
			other.put(e.DestRegister, known(value.Val))
			then, err = w.rule(rest, other)
		}
		if err != nil {
			return all, err
		}
		all = after{all.next || then.next, all.back || then.back}
	}
	return all, nil
}

// lookUp finds the elements that what is in a register may be, and whether it is one of them.
func (w *walk) lookUp(e *expr.Lookup, r *registers) (may []nftables.SetElement, is truth, err error) {
	all, err := w.elements(w.table, e.SetName)
	if err != nil {
		return nil, no, err
	}
	for _, element := range all {
		if element.IntervalEnd || element.KeyEnd != nil || len(element.Key) == 0 { // a set of ranges: any of it
			return all, maybe, nil
		}
		switch same(r.get(e.SourceRegister, len(element.Key)), element.Key) {
		case yes:
			return []nftables.SetElement{element}, yes, nil
		case maybe:
			may, is = append(may, element), maybe
		}
	}
	if r.drawnFrom(e.SourceRegister) == len(all) && len(all) > 0 {
		is = yes // there is one for each number
	}
	return may, is, nil
}

// verdictOf reads the verdict of a map's element.
func verdictOf(data []byte) (*expr.Verdict, error) {
	d, err := netlink.NewAttributeDecoder(data)
	if err != nil {
		return nil, err
	}
	d.ByteOrder = binary.BigEndian
	v := &expr.Verdict{}
	for d.Next() {
		switch d.Type() {
		case unix.NFTA_VERDICT_CODE:
			v.Kind = expr.VerdictKind(int32(d.Uint32()))
		case unix.NFTA_VERDICT_CHAIN:
			v.Chain = strings.TrimRight(d.String(), "\x00")
		}
	}
	return v, d.Err()
}

// translate takes note of the backend that a rule of nftables translates to.
func (w *walk) translate(e *expr.NAT, r *registers) {
	if e.Type != expr.NATTypeDestNAT {
		return
	}
	address, port := w.packet.to.Addr(), w.packet.to.Port()
	if e.RegAddrMin != 0 {
		address, _ = netip.AddrFromSlice(certain(r.get(e.RegAddrMin, address.BitLen()/8)))
	}
	if e.RegProtoMin != 0 {
		value := certain(r.get(e.RegProtoMin, 2))
		if value == nil {
			return
		}
		port = binary.BigEndian.Uint16(value)
	}
	if address.IsValid() {
		w.found[netip.AddrPortFrom(address, port)] = 1
	}
}

// target takes note of the backend that a rule of iptables translates to.
func (w *walk) target(e *expr.Target) error {
	to, is := e.Info.(*xt.NatRange2)
	if !is {
		return fmt.Errorf("revision %d of the target DNAT of iptables is not known here", e.Rev)
	}
	address, port := w.packet.to.Addr(), w.packet.to.Port()
	if to.Flags&uint(xt.NatRangeMapIPs) != 0 {
		address, _ = netip.AddrFromSlice(to.MinIP)
	}
	if to.Flags&uint(xt.NatRangeProtoSpecified) != 0 {
		port = to.MinPort
	}
	w.found[netip.AddrPortFrom(address.Unmap(), port)] = 1
	return nil
}
