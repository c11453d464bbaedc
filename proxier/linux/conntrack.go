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

	ctTupleIP, ctTupleProto                  = 1, 2
	ctV4Src, ctV4Dst, ctV6Src, ctV6Dst       = 1, 2, 3, 4
	ctProtoNum, ctProtoSrc, ctProtoDst       = 1, 2, 3
	ctFilterOrig                             = 1
	filterDst, filterProtocol, filterDstPort = 1 << 1, 1 << 3, 1 << 5 // flags of ctFilterOrig (net/netfilter/nf_internals.h)
)

// conntrack deletes flows. Each call uses its own socket with a deadline, so a lost reply blocks no other call.
type conntrack struct {
	deadline time.Duration
	noReply  func()
}

// flow is one conntrack entry.
type flow struct {
	family      uint8
	destination kernel.Key // destination of the original direction
	replySource netip.AddrPort
	orig        []byte // raw tuple of the original direction, which identifies the entry
	id          []byte
	zone        []byte // empty without a zone
}

func (c conntrack) deleteStale(all []kernel.FlowFilter) error {
	conn, err := mdnetlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err == nil {
		defer conn.Close()
		err = conn.SetDeadline(time.Now().Add(c.deadline))
	}
	if err != nil {
		return fmt.Errorf("opening a netlink socket for conntrack: %w", err)
	}
	wanted := map[query]map[kernel.Key]kernel.FlowFilter{}
	for _, f := range all {
		q := query{familyOf(f.Key.Addr), f.Key.Protocol}
		if wanted[q] == nil {
			wanted[q] = map[kernel.Key]kernel.FlowFilter{}
		}
		wanted[q][f.Key] = f
	}
	for _, q := range slices.SortedFunc(maps.Keys(wanted), query.compare) {
		request, err := q.listRequest(slices.Collect(maps.Keys(wanted[q])))
		if err == nil {
			err = c.deleteMatching(conn, request, wanted[q])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// query is one listing. The kernel walks its whole table for each listing, so all virtual servers of a protocol share
// one.
type query struct {
	family   uint8
	protocol kernel.Protocol
}

func (s query) compare(o query) int {
	return cmp.Or(cmp.Compare(s.family, o.family), cmp.Compare(s.protocol, o.protocol))
}

// deleteMatching lists flows and deletes the stale ones. Kernels before 5.8, and before 5.15 for unreplied flows,
// ignore the filter and return more, so each flow is checked here in any case.
func (c conntrack) deleteMatching(conn *mdnetlink.Conn, request mdnetlink.Message, wanted map[kernel.Key]kernel.FlowFilter) error {
	request.Header.Flags = mdnetlink.Request | mdnetlink.Dump
	replies, err := conn.Execute(request)
	if err != nil {
		return fmt.Errorf("listing conntrack flows: %w; this needs the module nf_conntrack_netlink", c.checkTimeout(err))
	}
	for _, reply := range replies {
		f, err := parseFlow(reply.Data)
		if err != nil {
			return fmt.Errorf("listing conntrack flows: %w", err)
		}
		filter, ours := wanted[f.destination]
		if !ours || !filter.Stale(f.replySource) {
			continue
		}
		deletion, err := f.deleteRequest()
		if err == nil {
			_, err = conn.Execute(deletion)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) { // a flow that ended meanwhile needs no deletion
			return fmt.Errorf("deleting a flow to %v: %w", f.destination, c.checkTimeout(err))
		}
	}
	return nil
}

func (c conntrack) checkTimeout(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.noReply()
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

// message prepends an nfgenmsg header to the attributes.
func message(kind uint16, family uint8, attributes []byte) mdnetlink.Message {
	return mdnetlink.Message{Header: mdnetlink.Header{Type: mdnetlink.HeaderType(kind), Flags: mdnetlink.Request},
		Data: append([]byte{family, unix.NFNETLINK_V0, 0, 0}, attributes...)}
}

// listRequest returns a listing of possibly stale flows: those of the protocol, of one virtual server if there is
// only one, and for a protocol that drains only unreplied ones.
func (s query) listRequest(keys []kernel.Key) (mdnetlink.Message, error) {
	e := mdnetlink.NewAttributeEncoder()
	e.ByteOrder = binary.NativeEndian
	match := uint32(filterProtocol)
	if len(keys) == 1 {
		match |= filterDst | filterDstPort
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

// deleteRequest identifies the entry by tuple and ID, so that a successor of the flow is not deleted. Without a tuple
// the kernel would delete the whole table.
func (f flow) deleteRequest() (mdnetlink.Message, error) {
	if len(f.orig) == 0 || len(f.id) == 0 {
		return mdnetlink.Message{}, fmt.Errorf("the entry has no tuple or ID: tuple %x, id %x", f.orig, f.id)
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

func parseFlow(data []byte) (flow, error) {
	if len(data) < 4 {
		return flow{}, fmt.Errorf("an entry of %d bytes is too short", len(data))
	}
	f := flow{family: data[0]}
	d, err := mdnetlink.NewAttributeDecoder(data[4:])
	if err != nil {
		return flow{}, err
	}
	var to, replySource tupleEnd
	for d.Next() {
		switch d.Type() {
		case ctTupleOrig:
			f.orig = d.Bytes()
			to, err = parseTupleEnd(f.orig, ctV4Dst, ctV6Dst, ctProtoDst)
		case ctTupleReply:
			replySource, err = parseTupleEnd(d.Bytes(), ctV4Src, ctV6Src, ctProtoSrc)
		case ctID:
			f.id = d.Bytes()
		case ctZone:
			f.zone = d.Bytes()
		}
		if err != nil {
			return flow{}, err
		}
	}
	f.destination = kernel.Key{Addr: to.addr, Protocol: kernel.Protocol(to.protocol), Port: to.port}
	f.replySource = netip.AddrPortFrom(replySource.addr, replySource.port)
	return f, d.Err()
}

// tupleEnd is one end of a tuple.
type tupleEnd struct {
	addr     netip.Addr
	protocol uint8
	port     uint16
}

func parseTupleEnd(tuple []byte, v4, v6, port uint16) (tupleEnd, error) {
	var e tupleEnd
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
