package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/lab/topology"
)

// Tuple is a connection as its client made it.
type Tuple struct {
	Source, Target netip.AddrPort
	UDP            bool
}

// lookupOf returns what asks a node's connection tracking for the far end of a connection's answers: the backend that the
// kernel chose. It keeps the node's namespace by its socket, takes the new one when the node has been made anew, and is for one
// goroutine.
func lookupOf(node *topology.Node) (look func(Tuple) (backend netip.AddrPort, known bool, err error), err error) {
	var socket nl.SocketHandle
	life := 0
	open := func() error {
		life = node.Life()
		err := node.Do(func() (err error) {
			socket.Socket, err = nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_NETFILTER)
			return err
		})
		if err == nil {
			err = socket.Socket.SetReceiveTimeout(&patience)
		}
		if err != nil {
			return fmt.Errorf("opening netlink for connection tracking on %s: %w", node.Name, err)
		}
		return nil
	}
	if err := open(); err != nil {
		return nil, err
	}
	return func(t Tuple) (netip.AddrPort, bool, error) {
		if node.Life() != life {
			socket.Socket.Close()
			if err := open(); err != nil {
				return netip.AddrPort{}, false, err
			}
		}
		return lookUp(&socket, t)
	}, nil
}

// patience is for an answer of the kernel, which gives it at once or not at all.
var patience = unix.Timeval{Sec: 5}

// lookUp asks for one connection (nfnetlink_conntrack.h of Linux, IPCTNL_MSG_CT_GET): no table is gone through.
func lookUp(socket *nl.SocketHandle, t Tuple) (backend netip.AddrPort, known bool, err error) {
	family, protocol := uint8(unix.AF_INET), uint8(unix.IPPROTO_TCP)
	if t.Target.Addr().Is6() {
		family = unix.AF_INET6
	}
	if t.UDP {
		protocol = unix.IPPROTO_UDP
	}
	// The kernel says that its one answer is one of several; the acknowledgement after it is the last.
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|nl.IPCTNL_MSG_CT_GET, unix.NLM_F_ACK)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: socket}
	req.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	req.AddData(t.attribute(protocol))
	answers, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if errors.Is(err, unix.ENOENT) {
		return backend, false, nil
	}
	if err != nil {
		return backend, false, fmt.Errorf("asking for the connection of %s to %s: %w", t.Source, t.Target, err)
	}
	if len(answers) != 1 || len(answers[0]) < nl.SizeofNfgenmsg {
		return backend, false, fmt.Errorf("asking for the connection of %s to %s: %d answers", t.Source, t.Target, len(answers))
	}
	backend, err = answerer(answers[0][nl.SizeofNfgenmsg:])
	return backend, err == nil, err
}

// attribute is the tuple as the kernel reads it.
func (t Tuple) attribute(protocol uint8) *nl.RtAttr {
	source, target := nl.CTA_IP_V4_SRC, nl.CTA_IP_V4_DST
	if t.Target.Addr().Is6() {
		source, target = nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
	}
	tuple := nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_ORIG, nil)
	ip := tuple.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_IP, nil)
	ip.AddRtAttr(source, t.Source.Addr().AsSlice())
	ip.AddRtAttr(target, t.Target.Addr().AsSlice())
	proto := tuple.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_PROTO, nil)
	proto.AddRtAttr(nl.CTA_PROTO_NUM, []byte{protocol})
	proto.AddRtAttr(nl.CTA_PROTO_SRC_PORT, nl.BEUint16Attr(t.Source.Port()))
	proto.AddRtAttr(nl.CTA_PROTO_DST_PORT, nl.BEUint16Attr(t.Target.Port()))
	return tuple
}

// answerer is the source of a connection's answers.
func answerer(attributes []byte) (netip.AddrPort, error) {
	var address netip.Addr
	var port uint16
	err := each(attributes, func(kind uint16, reply []byte) error {
		if kind != nl.CTA_TUPLE_REPLY {
			return nil
		}
		return each(reply, func(part uint16, inner []byte) error {
			return each(inner, func(field uint16, value []byte) error {
				switch {
				case part == nl.CTA_TUPLE_IP && (field == nl.CTA_IP_V4_SRC || field == nl.CTA_IP_V6_SRC):
					address, _ = netip.AddrFromSlice(value)
				case part == nl.CTA_TUPLE_PROTO && field == nl.CTA_PROTO_SRC_PORT && len(value) == 2:
					port = binary.BigEndian.Uint16(value)
				}
				return nil
			})
		})
	})
	if err == nil && (!address.IsValid() || port == 0) {
		err = errors.New("the kernel's answer has no source of the answers")
	}
	return netip.AddrPortFrom(address, port), err
}

// each calls a function with each of the attributes.
func each(data []byte, do func(kind uint16, value []byte) error) error {
	attributes, err := nl.ParseRouteAttr(data)
	if err != nil {
		return fmt.Errorf("reading the kernel's answer: %w", err)
	}
	for _, a := range attributes {
		if err := do(a.Attr.Type&nl.NLA_TYPE_MASK, a.Value); err != nil {
			return err
		}
	}
	return nil
}
