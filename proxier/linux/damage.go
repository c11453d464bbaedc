package linux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	mdnetlink "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// damage listens to what nftables tells of its changes, and notes when a table, chain, rule or set of the proxier's tables is
// deleted, as by `nft flush ruleset` or a firewall that loads its rules anew. The kernel wakes nobody while nftables is left alone.
type damage struct {
	conn     *mdnetlink.Conn
	received chan struct{}
}

// damageBuffer has room for what a start with ten thousand Services makes the kernel tell of the proxier's own elements.
const damageBuffer = 8 << 20

// watchDamage begins to listen, in the network namespace of the calling thread.
func watchDamage() (*damage, error) {
	conn, err := mdnetlink.Dial(unix.NETLINK_NETFILTER, &mdnetlink.Config{Groups: 1 << (unix.NFNLGRP_NFTABLES - 1)})
	if err != nil {
		return nil, fmt.Errorf("listening to changes of nftables: %w; it needs CAP_NET_ADMIN", err)
	}
	if err := conn.SetReadBuffer(damageBuffer); err != nil {
		conn.Close()
		return nil, fmt.Errorf("making room for changes of nftables: %w", err)
	}
	d := &damage{conn, make(chan struct{}, 1)}
	go d.listen()
	return d, nil
}

func (d *damage) close() { d.conn.Close() }

// listen returns when the socket is closed. Messages that found no room in its buffer may have told of anything.
func (d *damage) listen() {
	for {
		messages, err := d.conn.Receive()
		switch {
		case errors.Is(err, unix.ENOBUFS):
		case err != nil:
			return
		case !slices.ContainsFunc(messages, takesOurs):
			continue
		}
		select {
		case d.received <- struct{}{}:
		default:
		}
	}
}

// tableAttribute holds the name of the table in messages about tables, chains, rules and sets alike.
const tableAttribute = 1

// attributeType masks the two flags in an attribute's type (NLA_TYPE_MASK).
const attributeType = 0x3fff

// genmsgLength is that of struct nfgenmsg, which comes before the attributes.
const genmsgLength = 4

// takesOurs reports whether a message tells that something of the proxier's tables was deleted. The proxier itself deletes rules only
// to write them again at once.
func takesOurs(m mdnetlink.Message) bool {
	kind := uint16(m.Header.Type)
	if kind>>8 != unix.NFNL_SUBSYS_NFTABLES || len(m.Data) < genmsgLength {
		return false
	}
	switch kind & 0xff {
	case unix.NFT_MSG_DELTABLE, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_DELRULE, unix.NFT_MSG_DELSET:
	default:
		return false
	}
	for rest := m.Data[genmsgLength:]; len(rest) >= unix.NLA_HDRLEN; {
		size := int(binary.NativeEndian.Uint16(rest))
		if size < unix.NLA_HDRLEN || size > len(rest) {
			return false
		}
		if binary.NativeEndian.Uint16(rest[2:])&attributeType == tableAttribute {
			return string(rest[unix.NLA_HDRLEN:size]) == Table+"\x00"
		}
		rest = rest[min(len(rest), align(size)):]
	}
	return false
}
