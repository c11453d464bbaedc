package linux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	mdnetlink "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// damage listens to what nftables tells of its changes, and notes when a table, chain, rule or set of the proxier's tables is
// deleted, as by `nft flush ruleset` or a firewall that loads its rules anew. The kernel wakes nobody while nftables is left alone.
type damage struct {
	conn     listened
	received chan struct{}
	failed   func(error)
	closed   atomic.Bool
}

// listened is what is used of an *mdnetlink.Conn.
type listened interface {
	Receive() ([]mdnetlink.Message, error)
	Close() error
}

func newDamage(conn listened, failed func(error)) *damage {
	return &damage{conn: conn, received: make(chan struct{}, 1), failed: failed}
}

// damageBuffer has room for what a start with ten thousand Services makes the kernel tell of the proxier's own elements.
const damageBuffer = 8 << 20

// watchDamage begins to listen, in the network namespace of the calling thread. Failed is told what went wrong later.
func watchDamage(failed func(error)) (*damage, error) {
	conn, err := mdnetlink.Dial(unix.NETLINK_NETFILTER, &mdnetlink.Config{Groups: 1 << (unix.NFNLGRP_NFTABLES - 1)})
	if err != nil {
		return nil, fmt.Errorf("listening to changes of nftables: %w; it needs CAP_NET_ADMIN", err)
	}
	if err := conn.SetReadBuffer(damageBuffer); err != nil {
		conn.Close()
		return nil, fmt.Errorf("making room for changes of nftables: %w", err)
	}
	d := newDamage(conn, failed)
	go d.listen()
	return d, nil
}

func (d *damage) close() {
	d.closed.Store(true)
	d.conn.Close()
}

// mostFailures is how many errors may follow each other: a socket that fails for good would keep a processor busy.
const mostFailures = 10

// listen returns when the socket is closed, or fails for good. Messages that found no room in its buffer, or could not be read, may
// have told of anything.
func (d *damage) listen() {
	for failures := 0; failures < mostFailures; {
		messages, err := d.conn.Receive()
		switch {
		case d.closed.Load():
			return
		case errors.Is(err, unix.ENOBUFS):
			failures = 0
		case err != nil:
			failures++
		default:
			failures = 0
			if !slices.ContainsFunc(messages, takesOurs) {
				continue
			}
		}
		select {
		case d.received <- struct{}{}:
		default:
		}
		if failures > 0 {
			d.failed(fmt.Errorf("listening to changes of nftables: %w", err))
		}
	}
	d.failed(fmt.Errorf("listening to changes of nftables: given up after %d errors; what somebody deletes is made again by the next "+
		"reconciliation only, until a restart", mostFailures))
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
