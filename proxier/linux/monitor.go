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

// ruleMonitor listens to nftables notifications and signals when a table, chain, rule or set of the proxier's tables
// is deleted, for example by `nft flush ruleset` or a firewall reload. It is idle while nftables does not change.
type ruleMonitor struct {
	conn    notificationSocket
	damaged chan struct{}
	onError func(error)
	closed  atomic.Bool
}

// notificationSocket is implemented by *mdnetlink.Conn.
type notificationSocket interface {
	Receive() ([]mdnetlink.Message, error)
	Close() error
}

func newMonitor(conn notificationSocket, failed func(error)) *ruleMonitor {
	return &ruleMonitor{conn: conn, damaged: make(chan struct{}, 1), onError: failed}
}

// monitorBuffer holds the notifications of the proxier's own elements during a start with 10,000 Services.
const monitorBuffer = 8 << 20

// startMonitor starts to listen in the network namespace of the calling thread. onError receives later errors.
func startMonitor(failed func(error)) (*ruleMonitor, error) {
	conn, err := mdnetlink.Dial(unix.NETLINK_NETFILTER, &mdnetlink.Config{Groups: 1 << (unix.NFNLGRP_NFTABLES - 1)})
	if err != nil {
		return nil, fmt.Errorf("monitoring nftables: %w; this needs CAP_NET_ADMIN", err)
	}
	if err := conn.SetReadBuffer(monitorBuffer); err != nil {
		conn.Close()
		return nil, fmt.Errorf("setting the receive buffer of the nftables monitor: %w", err)
	}
	d := newMonitor(conn, failed)
	go d.run()
	return d, nil
}

func (d *ruleMonitor) close() {
	d.closed.Store(true)
	d.conn.Close()
}

// maxFailures bounds consecutive errors, since a socket that fails permanently would use a whole CPU.
const maxFailures = 10

// run receives until the socket is closed or fails permanently. Notifications that were lost or unreadable may have
// been deletions, so an error also signals damage.
func (d *ruleMonitor) run() {
	for failures := 0; failures < maxFailures; {
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
			if !slices.ContainsFunc(messages, isDeletion) {
				continue
			}
		}
		select {
		case d.damaged <- struct{}{}:
		default:
		}
		if failures > 0 {
			d.onError(fmt.Errorf("monitoring nftables: %w", err))
		}
	}
	d.onError(fmt.Errorf("monitoring nftables: stopped after %d errors; until a restart, deleted rules and sets are recreated only by the "+
		"next reconciliation", maxFailures))
}

// tableAttribute is the type of the table name attribute in messages about tables, chains, rules and sets.
const tableAttribute = 1

// attributeType masks the flags in an attribute's type (NLA_TYPE_MASK).
const attributeType = 0x3fff

// genmsgLength is the length of struct nfgenmsg, which precedes the attributes.
const genmsgLength = 4

// isDeletion reports whether a message announces a deletion in the proxier's tables. The proxier itself deletes only
// rules that it replaces in the same transaction.
func isDeletion(m mdnetlink.Message) bool {
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
