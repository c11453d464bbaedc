package linux

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"time"

	mdnetlink "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/proxier/kernel"
)

// Messages and attributes of linux/netfilter/nfnetlink_conntrack.h.
const (
	conntrackGet    = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1
	conntrackDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2

	ctTupleOrig, ctTupleReply, ctStatus, ctID, ctZone = 1, 2, 3, 12, 18
	ctFilter, ctStatusMask                            = 25, 26
	seenReply                                         = 1 << 1 // IPS_SEEN_REPLY

	ctTupleIP, ctTupleProto              = 1, 2
	ctV4Src, ctV4Dst, ctV6Src, ctV6Dst   = 1, 2, 3, 4
	ctProtoNum, ctProtoSrc, ctProtoDst   = 1, 2, 3
	ctFilterOrig                         = 1
	matchDst, matchProtocol, matchToPort = 1 << 1, 1 << 3, 1 << 5 // flags of ctFilterOrig, net/netfilter/nf_internals.h
)

// conntrack forgets flows. Each call has a socket of its own with a deadline, so a lost reply can hold up nothing.
type conntrack struct {
	deadline time.Duration
	lost     func()
}

// flow is one entry of the table.
type flow struct {
	family  uint8
	to      kernel.Key // where its packets go
	answers netip.AddrPort
	orig    []byte // the whole tuple, which names the entry
	id      []byte
	zone    []byte // empty outside zones
}

func (c conntrack) forget(all []kernel.FlowFilter) error {
	conn, err := mdnetlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err == nil {
		defer conn.Close()
		err = conn.SetDeadline(time.Now().Add(c.deadline))
	}
	if err != nil {
		return fmt.Errorf("opening a netlink handle on conntrack: %w", err)
	}
	wanted := map[subject]map[kernel.Key]kernel.FlowFilter{}
	for _, f := range all {
		of := subject{familyOf(f.Key.Addr), f.Key.Protocol}
		if wanted[of] == nil {
			wanted[of] = map[kernel.Key]kernel.FlowFilter{}
		}
		wanted[of][f.Key] = f
	}
	for _, of := range slices.SortedFunc(maps.Keys(wanted), subject.compare) {
		ask, err := of.question(slices.Collect(maps.Keys(wanted[of])))
		if err == nil {
			err = c.walk(conn, ask, wanted[of])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// subject is what the kernel is asked for at once. It walks through its whole table for any question, so there is one for
// all virtual servers of a protocol.
type subject struct {
	family   uint8
	protocol kernel.Protocol
}

func (s subject) compare(o subject) int {
	return cmp.Or(cmp.Compare(s.family, o.family), cmp.Compare(s.protocol, o.protocol))
}

// walk asks for flows and deletes the stale ones. An older kernel (before 5.8, and 5.15 for what nobody has answered) does
// not know the filter and sends more; what is deleted is decided here in any case.
func (c conntrack) walk(conn *mdnetlink.Conn, ask mdnetlink.Message, wanted map[kernel.Key]kernel.FlowFilter) error {
	ask.Header.Flags = mdnetlink.Request | mdnetlink.Dump
	replies, err := conn.Execute(ask)
	if err != nil {
		return fmt.Errorf("listing the flows that conntrack remembers: %w; it needs the module nf_conntrack_netlink", c.checked(err))
	}
	for _, reply := range replies {
		f, err := readFlow(reply.Data)
		if err != nil {
			return fmt.Errorf("listing the flows that conntrack remembers: %w", err)
		}
		of, ours := wanted[f.to]
		if !ours || !of.Stale(f.answers) {
			continue
		}
		deletion, err := f.deletion()
		if err == nil {
			_, err = conn.Execute(deletion)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) { // one that has ended by itself is as it should be
			return fmt.Errorf("forgetting a flow to %v: %w", f.to, c.checked(err))
		}
	}
	return nil
}

func (c conntrack) checked(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.lost()
		return fmt.Errorf("%w within %v: %w", kernel.ErrNoReply, c.deadline, err)
	}
	return err
}

func familyOf(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// message puts an nfgenmsg before the attributes.
func message(kind uint16, family uint8, attributes []byte) mdnetlink.Message {
	return mdnetlink.Message{Header: mdnetlink.Header{Type: mdnetlink.HeaderType(kind), Flags: mdnetlink.Request},
		Data: append([]byte{family, unix.NFNETLINK_V0, 0, 0}, attributes...)}
}

// question asks for the flows that may be stale: of the protocol, to the virtual server if there is but one, and for a
// protocol that drains only for those that nobody has answered.
func (s subject) question(keys []kernel.Key) (mdnetlink.Message, error) {
	e := mdnetlink.NewAttributeEncoder()
	e.ByteOrder = binary.NativeEndian
	match := uint32(matchProtocol)
	if len(keys) == 1 {
		match |= matchDst | matchToPort
	}
	e.Nested(ctTupleOrig, func(tuple *mdnetlink.AttributeEncoder) error {
		tuple.Nested(ctTupleIP, func(ip *mdnetlink.AttributeEncoder) error {
			dst := uint16(ctV4Dst)
			if s.family == unix.AF_INET6 {
				dst = ctV6Dst
			}
			ip.Bytes(dst, keys[0].Addr.AsSlice())
			return nil
		})
		tuple.Nested(ctTupleProto, func(proto *mdnetlink.AttributeEncoder) error {
			proto.Uint8(ctProtoNum, uint8(s.protocol))
			proto.Bytes(ctProtoDst, binary.BigEndian.AppendUint16(nil, keys[0].Port))
			return nil
		})
		return nil
	})
	e.Nested(ctFilter, func(filter *mdnetlink.AttributeEncoder) error {
		filter.Uint32(ctFilterOrig, match)
		return nil
	})
	if s.protocol.Drains() {
		e.Bytes(ctStatus, make([]byte, 4))
		e.Bytes(ctStatusMask, binary.BigEndian.AppendUint32(nil, seenReply))
	}
	data, err := e.Encode()
	return message(conntrackGet, s.family, data), err
}

// deletion names the entry by its tuple and its id, so that no other is deleted that took its place. Without a tuple the
// kernel would take it for an order to empty the table.
func (f flow) deletion() (mdnetlink.Message, error) {
	if len(f.orig) == 0 || len(f.id) == 0 {
		return mdnetlink.Message{}, fmt.Errorf("the kernel names it incompletely: tuple %x, id %x", f.orig, f.id)
	}
	e := mdnetlink.NewAttributeEncoder()
	e.Bytes(unix.NLA_F_NESTED|ctTupleOrig, f.orig)
	e.Bytes(ctID, f.id)
	if len(f.zone) > 0 {
		e.Bytes(ctZone, f.zone)
	}
	data, err := e.Encode()
	m := message(conntrackDelete, f.family, data)
	m.Header.Flags |= mdnetlink.Acknowledge
	return m, err
}

func readFlow(data []byte) (flow, error) {
	if len(data) < 4 {
		return flow{}, fmt.Errorf("an entry of %d bytes is none", len(data))
	}
	f := flow{family: data[0]}
	d, err := mdnetlink.NewAttributeDecoder(data[4:])
	if err != nil {
		return flow{}, err
	}
	var to, answers end
	for d.Next() {
		switch d.Type() {
		case ctTupleOrig:
			f.orig = d.Bytes()
			to, err = readEnd(f.orig, ctV4Dst, ctV6Dst, ctProtoDst)
		case ctTupleReply:
			answers, err = readEnd(d.Bytes(), ctV4Src, ctV6Src, ctProtoSrc)
		case ctID:
			f.id = d.Bytes()
		case ctZone:
			f.zone = d.Bytes()
		}
		if err != nil {
			return flow{}, err
		}
	}
	f.to = kernel.Key{Addr: to.addr, Protocol: kernel.Protocol(to.protocol), Port: to.port}
	f.answers = netip.AddrPortFrom(answers.addr, answers.port)
	return f, d.Err()
}

// end is one end of a tuple.
type end struct {
	addr     netip.Addr
	protocol uint8
	port     uint16
}

func readEnd(tuple []byte, v4, v6, port uint16) (end, error) {
	var e end
	d, err := mdnetlink.NewAttributeDecoder(tuple)
	if err != nil {
		return e, err
	}
	for d.Next() {
		inner, err := mdnetlink.NewAttributeDecoder(d.Bytes())
		if err != nil {
			return e, err
		}
		for inner.Next() {
			switch kind := inner.Type(); {
			case d.Type() == ctTupleIP && (kind == v4 || kind == v6):
				e.addr, _ = netip.AddrFromSlice(inner.Bytes())
			case d.Type() == ctTupleProto && kind == ctProtoNum:
				e.protocol = inner.Uint8()
			case d.Type() == ctTupleProto && kind == port && len(inner.Bytes()) == 2:
				e.port = binary.BigEndian.Uint16(inner.Bytes())
			}
		}
		if err := inner.Err(); err != nil {
			return e, err
		}
	}
	return e, d.Err()
}
