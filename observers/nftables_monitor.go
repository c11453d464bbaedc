//go:build linux

package observers

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/record"
)

// notificationDelay is the longest time between a change in the kernel and the receipt of its notification. The analysis
// assumes the same for every observer.
const notificationDelay = 20 * time.Millisecond

// nftMonitor records changes of a node's nftables, which also hold the rules of iptables.
//
// The kernel notifies of each rule and element of a transaction, and of the new generation at its end. A socket filter passes
// the generation only, so that a transaction of any size wakes up the node once and overflows no buffer; then the rules on the
// way of the watched addresses are read. A mirror of all rules would cost more time, and one lost message would corrupt it.
type nftMonitor struct {
	*tableRecorder
	ns     Node
	buffer int // bytes of the receive buffer; 0 for the kernel's default

	life       int
	generation *netlink.Conn
	rules      *nftables.Conn
	stop       func() // stops receiving

	mu      sync.Mutex
	pending nftNotice
}

// nftNotice sums up the notifications since the last read.
type nftNotice struct {
	any      bool
	overflow bool          // the kernel dropped notifications
	first    time.Duration // receipt of the first one
	program  string        // that committed the changes; empty for several
	err      error         // notifications have ended
}

func newNFTMonitor(node Node, buffer int, addresses func() []ServiceAddress, recorder record.Recorder, now func() time.Duration) (*nftMonitor, error) {
	m := &nftMonitor{ns: node, buffer: buffer}
	m.tableRecorder = newTableRecorder(node.Name, record.TableNFTables, addresses, m.readRules, recorder, now)
	if err := m.open(); err != nil {
		return nil, err
	}
	return m, nil
}

// open starts receiving in the node's present namespace.
func (m *nftMonitor) open() error {
	m.life = m.ns.Generation()
	var notifications *netlink.Conn
	var opened []func()
	err := m.ns.Do(func() (err error) {
		if notifications, err = subscribeGenerations(m.buffer); err != nil {
			return err
		}
		opened = append(opened, func() { notifications.Close() })
		if m.generation, err = netlink.Dial(unix.NETLINK_NETFILTER, nil); err != nil {
			return err
		}
		opened = append(opened, func() { m.generation.Close() })
		if m.rules, err = nftables.New(nftables.AsLasting()); err != nil {
			return err
		}
		opened = append(opened, func() { _ = m.rules.CloseLasting() }) // nothing was written
		return nil
	})
	if err != nil {
		for _, end := range opened {
			end()
		}
		return fmt.Errorf("subscribing to the nftables of %s: %w", m.node, err)
	}
	stopped := make(chan struct{})
	var receiver sync.WaitGroup
	receiver.Go(func() { m.receive(notifications, stopped) })
	m.stop = func() {
		close(stopped)
		notifications.Close()
		receiver.Wait()
		m.generation.Close()
		_ = m.rules.CloseLasting() // nothing was written
	}
	return nil
}

// subscribeGenerations opens a socket for new generations in the namespace of the calling thread.
func subscribeGenerations(buffer int) (*netlink.Conn, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, err
	}
	if buffer > 0 {
		err = conn.SetReadBuffer(buffer)
	}
	if err == nil {
		err = filterGenerations(conn)
	}
	if err == nil {
		err = conn.JoinGroup(unix.NFNLGRP_NFTABLES)
	}
	if err != nil {
		conn.Close()
	}
	return conn, err
}

// filterGenerations drops all other messages by the type in their headers (linux/netlink.h). BPF loads it in network order.
func filterGenerations(conn *netlink.Conn) error {
	const newGeneration, typeOffset = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN, 4
	kind := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, newGeneration))
	const wholeMessage = 1 << 16
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: typeOffset},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(kind), Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: wholeMessage},
		{Code: unix.BPF_RET | unix.BPF_K},
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) {
		inner = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	})
	return errors.Join(err, inner)
}

func (m *nftMonitor) receive(conn *netlink.Conn, stopped <-chan struct{}) {
	for {
		messages, err := conn.Receive()
		select {
		case <-stopped:
			return
		default:
		}
		n := nftNotice{any: true, first: m.now()}
		switch {
		case errors.Is(err, unix.ENOBUFS):
			n.overflow = true
		case err != nil:
			n.err = err
		case len(messages) > 0:
			n.program = committer(messages[len(messages)-1])
		}
		m.addNotice(n)
		if n.err != nil {
			return
		}
	}
}

// committer returns the name of the program that committed a generation.
func committer(m netlink.Message) string {
	return string(bytes.TrimRight(attribute(m.Data, unix.NFTA_GEN_PROC_NAME), "\x00"))
}

// addNotice merges a notice with the pending one and starts a read.
func (m *nftMonitor) addNotice(n nftNotice) {
	m.mu.Lock()
	if before := m.pending; before.any {
		n = nftNotice{any: true, overflow: n.overflow || before.overflow, first: min(n.first, before.first), program: n.program, err: errors.Join(before.err, n.err)}
		if before.program != n.program {
			n.program = ""
		}
	}
	m.pending = n
	m.mu.Unlock()
	notify(m.changed)
}

func (m *nftMonitor) takeNotice() nftNotice {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.pending
	m.pending = nftNotice{}
	return n
}

func (m *nftMonitor) run(ctx context.Context) {
	defer func() { m.stop() }()
	rest := time.NewTimer(0)
	defer rest.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-rest.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-m.changed:
		}
		began := time.Now()
		if err := m.readAndRecord(); err != nil {
			m.recordEnd(err)
			return
		}
		rest.Reset(max(minReadInterval, idleFactor*time.Since(began)))
	}
}

// readAndRecord reads the rules and records changes. A read during which the generation changed is discarded and repeated.
func (m *nftMonitor) readAndRecord() error {
	if m.ns.Generation() != m.life {
		m.stop()
		m.takeNotice()
		if err := m.open(); err != nil {
			m.stop = func() {}
			return err
		}
	}
	notice := m.takeNotice()
	if notice.err != nil {
		return notice.err
	}
	before, err := m.readGeneration()
	if err != nil {
		return err
	}
	at := m.now()
	found, readErr := m.look()
	end := m.now()
	after, err := m.readGeneration()
	if err != nil {
		return err
	}
	if before != after {
		if notice.any {
			m.addNotice(notice)
		}
		return nil
	}
	if readErr != nil {
		return readErr
	}
	from := m.lastAt
	if notice.overflow {
		m.warn(fmt.Sprintf("nftables of %s changed faster than notifications were received: its state between %.3f s and %.3f s is not known", m.node, from.Seconds(), at.Seconds()))
	} else if notice.any {
		from = max(from, min(notice.first, at)-notificationDelay)
	}
	m.take(found, from, at, end, notice.program)
	return nil
}

func (m *nftMonitor) readGeneration() (string, error) {
	g, err := readGeneration(m.generation)
	if err != nil {
		return "", fmt.Errorf("reading the nftables generation of %s: %w", m.node, err)
	}
	return g, nil
}

// nfgenmsgSize is the length of struct nfgenmsg, the header of nfnetlink messages.
const nfgenmsgSize = 4

// readGeneration returns an opaque value that differs after each committed transaction.
func readGeneration(conn *netlink.Conn) (string, error) {
	answers, err := conn.Execute(netlink.Message{Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: netlink.Request},
		Data: []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0}})
	if err != nil {
		return "", err
	}
	if len(answers) != 1 {
		return "", fmt.Errorf("%d answers instead of one", len(answers))
	}
	// The rest of the answer is the thread that asked, which may be another one each time.
	id := attribute(answers[0].Data, unix.NFTA_GEN_ID)
	if id == nil {
		return "", fmt.Errorf("an answer of %d bytes without a generation", len(answers[0].Data))
	}
	return string(id), nil
}

// attribute returns the value of an attribute of an nfnetlink message; nil if it has none.
func attribute(message []byte, kind uint16) (value []byte) {
	if len(message) < nfgenmsgSize {
		return nil
	}
	d, err := netlink.NewAttributeDecoder(message[nfgenmsgSize:])
	if err != nil {
		return nil
	}
	for d.Next() {
		if d.Type() == kind {
			value = d.Bytes()
		}
	}
	return value
}

// readRules returns the backends of those addresses that the rules translate.
func (m *nftMonitor) readRules(addresses []ServiceAddress) (backendTable, error) {
	t, rules := backendTable{}, newKernelRules(m.rules)
	for _, s := range addresses {
		found, err := possibleBackends(rules, m.ns.Addrs, s)
		if err != nil {
			return nil, fmt.Errorf("evaluating the rules for %s: %w", s.Address, err)
		}
		if len(found) > 0 {
			t[s] = found
		}
	}
	return t, nil
}
