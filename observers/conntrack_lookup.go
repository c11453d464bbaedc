//go:build linux

package observers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Tuple is a connection as its client sees it.
type Tuple struct {
	Source, Target netip.AddrPort
	UDP            bool
}

// openConntrack returns a conntrack lookup for the translated backend of a connection over the node. The lookup is for one
// goroutine; it opens its socket anew when the node's namespace was replaced.
func openConntrack(node Node) (lookUp func(Tuple) (backend netip.AddrPort, found bool, err error), err error) {
	var socket nl.SocketHandle
	life := 0
	open := func() error {
		life = node.Generation()
		err := node.Do(func() (err error) {
			socket.Socket, err = nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_NETFILTER)
			return err
		})
		if err == nil {
			err = socket.Socket.SetReceiveTimeout(&netlinkTimeout)
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
		if node.Generation() != life {
			socket.Socket.Close()
			if err := open(); err != nil {
				return netip.AddrPort{}, false, err
			}
		}
		return lookUpConntrack(&socket, t)
	}, nil
}

// netlinkTimeout bounds the wait for an answer, which the kernel sends at once or never.
var netlinkTimeout = unix.Timeval{Sec: 5}

// lookUpConntrack gets one connection by its hash (linux/netfilter/nfnetlink_conntrack.h, IPCTNL_MSG_CT_GET).
func lookUpConntrack(socket *nl.SocketHandle, t Tuple) (backend netip.AddrPort, found bool, err error) {
	family, protocol := uint8(unix.AF_INET), uint8(unix.IPPROTO_TCP)
	if t.Target.Addr().Is6() {
		family = unix.AF_INET6
	}
	if t.UDP {
		protocol = unix.IPPROTO_UDP
	}
	// The kernel flags its single answer as multipart; NLM_F_ACK adds the message that ends it.
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|nl.IPCTNL_MSG_CT_GET, unix.NLM_F_ACK)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: socket}
	req.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	req.AddData(t.attribute(protocol))
	answers, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if errors.Is(err, unix.ENOENT) {
		return backend, false, nil
	}
	if err != nil {
		return backend, false, fmt.Errorf("looking up the connection of %s to %s: %w", t.Source, t.Target, err)
	}
	if len(answers) != 1 || len(answers[0]) < nl.SizeofNfgenmsg {
		return backend, false, fmt.Errorf("looking up the connection of %s to %s: %d answers", t.Source, t.Target, len(answers))
	}
	backend, err = replySource(answers[0][nl.SizeofNfgenmsg:])
	return backend, err == nil, err
}

// attribute encodes the tuple for the kernel.
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

// replySource is the source of a connection's replies: the backend.
func replySource(attributes []byte) (netip.AddrPort, error) {
	var address netip.Addr
	var port uint16
	err := eachAttribute(attributes, func(kind uint16, reply []byte) error {
		if kind != nl.CTA_TUPLE_REPLY {
			return nil
		}
		return eachAttribute(reply, func(part uint16, inner []byte) error {
			return eachAttribute(inner, func(field uint16, value []byte) error {
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
		err = errors.New("the kernel's answer lacks the source of the replies")
	}
	return netip.AddrPortFrom(address, port), err
}

func eachAttribute(data []byte, do func(kind uint16, value []byte) error) error {
	attributes, err := nl.ParseRouteAttr(data)
	if err != nil {
		return fmt.Errorf("parsing the kernel's answer: %w", err)
	}
	for _, a := range attributes {
		if err := do(a.Attr.Type&nl.NLA_TYPE_MASK, a.Value); err != nil {
			return err
		}
	}
	return nil
}
