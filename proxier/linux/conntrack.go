package linux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	mdnetlink "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/proxier/kernel"
)

// Messages and attributes of linux/netfilter/nfnetlink_conntrack.h.
const (
	conntrackGet    = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1
	conntrackDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2

	ctTupleOrig, ctTupleReply, ctID, ctZone, ctFilter = 1, 2, 12, 18, 25

	ctTupleIP, ctTupleProto              = 1, 2
	ctV4Src, ctV4Dst, ctV6Src, ctV6Dst   = 1, 2, 3, 4
	ctProtoNum, ctProtoSrc, ctProtoDst   = 1, 2, 3
	ctFilterOrig                         = 1
	matchDst, matchProtocol, matchToPort = 1 << 1, 1 << 3, 1 << 5 // flags of ctFilterOrig, net/netfilter/nf_internals.h
)

// separately is up to how many virtual servers are asked for one by one, so that the kernel sends their flows only. For
// more, one walk through the whole table is cheaper.
const separately = 16

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

func (c conntrack) forget(all []kernel.Flows) error {
	conn, err := mdnetlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err == nil {
		defer conn.Close()
		err = conn.SetDeadline(time.Now().Add(c.deadline))
	}
	if err != nil {
		return fmt.Errorf("opening a netlink handle on conntrack: %w", err)
	}
	wanted := map[kernel.Key]kernel.Flows{}
	families := map[uint8]bool{}
	for _, f := range all {
		wanted[f.Key] = f
		families[familyOf(f.Key.Addr)] = true
	}
	if len(all) <= separately {
		for _, f := range all {
			ask, err := question(f.Key)
			if err == nil {
				err = c.walk(conn, ask, wanted)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		if !families[family] {
			continue
		}
		if err := c.walk(conn, message(conntrackGet, family, nil), wanted); err != nil {
			return err
		}
	}
	return nil
}

// walk asks for flows and deletes the stale ones. A kernel before 5.8 does not know the filter and sends all; what is
// deleted is decided here in any case.
func (c conntrack) walk(conn *mdnetlink.Conn, ask mdnetlink.Message, wanted map[kernel.Key]kernel.Flows) error {
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
		return fmt.Errorf("%w within %v: %w", kernel.ErrLost, c.deadline, err)
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

// question asks for the flows to a virtual server.
func question(k kernel.Key) (mdnetlink.Message, error) {
	e := mdnetlink.NewAttributeEncoder()
	e.ByteOrder = binary.NativeEndian
	e.Nested(ctTupleOrig, func(tuple *mdnetlink.AttributeEncoder) error {
		tuple.Nested(ctTupleIP, func(ip *mdnetlink.AttributeEncoder) error {
			dst := uint16(ctV4Dst)
			if k.Addr.Is6() {
				dst = ctV6Dst
			}
			ip.Bytes(dst, k.Addr.AsSlice())
			return nil
		})
		tuple.Nested(ctTupleProto, func(proto *mdnetlink.AttributeEncoder) error {
			proto.Uint8(ctProtoNum, uint8(k.Protocol))
			proto.Bytes(ctProtoDst, binary.BigEndian.AppendUint16(nil, k.Port))
			return nil
		})
		return nil
	})
	e.Nested(ctFilter, func(filter *mdnetlink.AttributeEncoder) error {
		filter.Uint32(ctFilterOrig, matchDst|matchProtocol|matchToPort)
		return nil
	})
	data, err := e.Encode()
	return message(conntrackGet, familyOf(k.Addr), data), err
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
