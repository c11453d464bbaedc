//go:build linux

package observers

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"golang.org/x/sys/unix"
)

// evaluation follows the first packet of a connection through the rules on every possible path and collects the backends that
// the kernel may choose. It depends on no proxy: it evaluates the rules of nftables and those that iptables writes.
type evaluation struct {
	ruleset
	packet   packet
	table    *nftables.Table
	accepted bool // an accept verdict is possible: the packet goes on to the next table without translation
	found    map[netip.AddrPort]int
}

// outcome tells the places where a packet may be after a rule: at the next rule, or back in the calling chain.
type outcome struct{ next, returned bool }

// possibleBackends returns the backends that new connections to a Service address may reach over the node with the addresses
// node, each with weight 1.
func possibleBackends(r ruleset, node []netip.Addr, s ServiceAddress) (map[netip.AddrPort]int, error) {
	ev := &evaluation{ruleset: r, packet: firstPacket(s, node), found: map[netip.AddrPort]int{}}
	bases, err := r.natChains(ev.packet.family, ev.packet.hook)
	if err != nil {
		return nil, err
	}
	var last *nftables.Chain
	for _, base := range bases {
		// A connection is translated once. The order of two chains of the same priority is not known.
		if last != nil && *last.Priority != *base.Priority {
			break
		}
		ev.table, ev.accepted = base.Table, false
		returned, err := ev.chain(base.Name)
		if err != nil {
			return nil, fmt.Errorf("the table %s: %w", base.Table.Name, err)
		}
		if !returned && !ev.accepted {
			last = base
		}
	}
	return ev.found, nil
}

// chain reports whether the packet may return from a chain.
func (ev *evaluation) chain(name string) (returned bool, err error) {
	rules, err := ev.rules(ev.table, name)
	if err != nil {
		return false, err
	}
	for _, rule := range rules {
		then, err := ev.rule(rule.Exprs, unknownRegisters())
		if err != nil {
			return false, fmt.Errorf("the chain %s: %w", name, err)
		}
		if returned = returned || then.returned; !then.next {
			return returned, nil
		}
	}
	return true, nil
}

// rule evaluates the remaining expressions of a rule.
func (ev *evaluation) rule(left []expr.Any, r registers) (outcome, error) {
	matches := yes
	for i, e := range left {
		match := yes
		switch e := e.(type) {
		case *expr.Lookup:
			if e.IsDestRegSet {
				then, err := ev.lookUpValue(e, left[i+1:], r)
				then.next = then.next || matches != yes
				return then, err
			}
			var err error
			if match, err = ev.inSet(e, &r); err != nil {
				return outcome{}, err
			}
		case *expr.Verdict:
			then, err := ev.verdict(e)
			then.next = then.next || matches != yes
			return then, err
		case *expr.Redir, *expr.Reject:
			return outcome{next: matches != yes}, nil
		case *expr.NAT:
			ev.translate(e, &r)
			return outcome{next: matches != yes}, nil
		case *expr.Target:
			switch e.Name {
			case "DNAT":
				return outcome{next: matches != yes}, ev.target(e)
			case "REDIRECT", "REJECT":
				return outcome{next: matches != yes}, nil
			}
		default:
			match = ev.step(e, &r)
		}
		if matches = min(matches, match); matches == no {
			break
		}
	}
	return outcome{next: true}, nil
}

// step evaluates an expression that neither ends a rule nor looks into a set. Unknown expressions evaluate to maybe.
func (ev *evaluation) step(e expr.Any, r *registers) truth {
	switch e := e.(type) {
	case *expr.Counter, *expr.Log, *expr.Dynset, *expr.Objref, *expr.Notrack:
	case *expr.Meta:
		if !e.SourceRegister {
			r.store(e.Register, ev.packet.meta(e.Key))
		}
	case *expr.Payload:
		if e.OperationType == expr.PayloadLoad {
			r.store(e.DestRegister, ev.packet.payload(e.Base, e.Offset, e.Len))
		}
	case *expr.Fib:
		r.store(e.Register, ev.packet.fib(e))
	case *expr.Ct:
		if !e.SourceRegister {
			r.store(e.Register, unknownBytes(16))
		}
	case *expr.Numgen:
		r.storeRandom(e)
	case *expr.Immediate:
		r.store(e.Register, knownBytes(e.Data))
	case *expr.Bitwise:
		r.store(e.DestRegister, applyMask(r.load(e.SourceRegister, int(e.Len)), e))
	case *expr.Cmp:
		return compare(r.load(e.Register, len(e.Data)), e)
	case *expr.Match:
		return ev.packet.match(e)
	default:
		return maybe
	}
	return yes
}

func (ev *evaluation) verdict(v *expr.Verdict) (outcome, error) {
	switch v.Kind {
	case expr.VerdictJump:
		returned, err := ev.chain(v.Chain)
		return outcome{next: returned}, err
	case expr.VerdictGoto:
		returned, err := ev.chain(v.Chain)
		return outcome{returned: returned}, err
	case expr.VerdictReturn:
		return outcome{returned: true}, nil
	case expr.VerdictContinue, expr.VerdictBreak:
		return outcome{next: true}, nil
	case expr.VerdictAccept:
		ev.accepted = true
	}
	return outcome{}, nil
}

// inSet reports whether a register's value is in a set.
func (ev *evaluation) inSet(e *expr.Lookup, r *registers) (truth, error) {
	_, is, err := ev.lookUp(e, r)
	if e.Invert {
		is = yes - is
	}
	return is, err
}

// lookUpValue evaluates the rest of a rule with each value that a map lookup may return.
func (ev *evaluation) lookUpValue(e *expr.Lookup, rest []expr.Any, r registers) (all outcome, err error) {
	values, is, err := ev.lookUp(e, &r)
	if err != nil {
		return all, err
	}
	all.next = is != yes
	for _, value := range values {
		var then outcome
		if e.DestRegister == unix.NFT_REG_VERDICT {
			var v *expr.Verdict
			if v, err = parseVerdict(value.Val); err == nil {
				then, err = ev.verdict(v)
			}
		} else {
			other := r
			other.store(e.DestRegister, knownBytes(value.Val))
			then, err = ev.rule(rest, other)
		}
		if err != nil {
			return all, err
		}
		all = outcome{all.next || then.next, all.returned || then.returned}
	}
	return all, nil
}

// lookUp returns the elements that a register's value may equal, and whether it equals one of them.
func (ev *evaluation) lookUp(e *expr.Lookup, r *registers) (may []nftables.SetElement, is truth, err error) {
	all, err := ev.elements(ev.table, e.SetName)
	if err != nil {
		return nil, no, err
	}
	for _, element := range all {
		if element.IntervalEnd || element.KeyEnd != nil || len(element.Key) == 0 { // a set of ranges: any element may contain the value
			return all, maybe, nil
		}
		switch equal(r.load(e.SourceRegister, len(element.Key)), element.Key) {
		case yes:
			return []nftables.SetElement{element}, yes, nil
		case maybe:
			may, is = append(may, element), maybe
		}
	}
	if r.randomModulus(e.SourceRegister) == len(all) && len(all) > 0 {
		is = yes // each random number has an element
	}
	return may, is, nil
}

// translate adds the backend of a dnat statement of nftables.
func (ev *evaluation) translate(e *expr.NAT, r *registers) {
	if e.Type != expr.NATTypeDestNAT {
		return
	}
	address, port := ev.packet.to.Addr(), ev.packet.to.Port()
	if e.RegAddrMin != 0 {
		address, _ = netip.AddrFromSlice(concrete(r.load(e.RegAddrMin, address.BitLen()/8)))
	}
	if e.RegProtoMin != 0 {
		value := concrete(r.load(e.RegProtoMin, 2))
		if value == nil {
			return
		}
		port = binary.BigEndian.Uint16(value)
	}
	if address.IsValid() {
		ev.found[netip.AddrPortFrom(address, port)] = 1
	}
}

// target adds the backend of a DNAT target of iptables.
func (ev *evaluation) target(e *expr.Target) error {
	to, is := e.Info.(*xt.NatRange2)
	if !is {
		return fmt.Errorf("revision %d of the iptables target DNAT is not supported", e.Rev)
	}
	address, port := ev.packet.to.Addr(), ev.packet.to.Port()
	if to.Flags&uint(xt.NatRangeMapIPs) != 0 {
		address, _ = netip.AddrFromSlice(to.MinIP)
	}
	if to.Flags&uint(xt.NatRangeProtoSpecified) != 0 {
		port = to.MinPort
	}
	ev.found[netip.AddrPortFrom(address.Unmap(), port)] = 1
	return nil
}
