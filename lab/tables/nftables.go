package tables

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/reports"
)

// lag is the longest that what the kernel told waits to be heard. Reports reckon with as much of every watcher.
const lag = 20 * time.Millisecond

// follower watches the nftables of a node, in which the rules of iptables are, too.
//
// The kernel tells of each rule and element that a transaction changes, and at its end that there is a new generation. Only
// that is listened to: a filter in the kernel keeps the rest out, so that a transaction, however large, wakes a node once and
// fills no buffer. Then the rules that matter are read. A copy of all rules that follows each change would take more code and
// more of the guest's time, and would be wrong from the first lost message on; this is right again with the next.
type follower struct {
	*watched
	node   *topology.Node
	buffer int // for what was not heard yet, in bytes; 0 for as much as the kernel gives

	life int
	ask  *netlink.Conn
	conn *nftables.Conn
	deaf func() // ends the hearing

	mu    sync.Mutex
	heard heard
}

// heard is what the kernel told since the last look.
type heard struct {
	any   bool
	lost  bool          // it told more
	first time.Duration // when it was heard
	by    string        // the program that made the changes; empty when there were several
	err   error         // nothing is heard any more
}

func follow(node *topology.Node, buffer int, targets func() []Server, record reports.Recorder, now func() time.Duration) (*follower, error) {
	f := &follower{node: node, buffer: buffer}
	f.watched = watch(node.Name, tableNFTables, func() (Table, error) { return f.read(targets()) }, record, now)
	return f, f.open()
}

// open begins to listen in the namespace that the node has now.
func (f *follower) open() error {
	f.life = f.node.Life()
	var listen *netlink.Conn
	err := f.node.Do(func() (err error) {
		if listen, err = listenTo(f.buffer); err != nil {
			return err
		}
		if f.ask, err = netlink.Dial(unix.NETLINK_NETFILTER, nil); err != nil {
			return err
		}
		f.conn, err = nftables.New(nftables.AsLasting())
		return err
	})
	if err != nil {
		return fmt.Errorf("listening to the nftables of %s: %w", f.name, err)
	}
	over := make(chan struct{})
	var hearing sync.WaitGroup
	hearing.Go(func() { f.hear(listen, over) })
	f.deaf = func() {
		close(over)
		listen.Close()
		hearing.Wait()
		f.ask.Close()
		_ = f.conn.CloseLasting() // nothing was written
	}
	return nil
}

// listenTo opens a socket that hears of new generations, in the namespace of the calling thread.
func listenTo(buffer int) (*netlink.Conn, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, err
	}
	if buffer > 0 {
		err = conn.SetReadBuffer(buffer)
	}
	if err == nil {
		err = onlyGenerations(conn)
	}
	if err == nil {
		err = conn.JoinGroup(unix.NFNLGRP_NFTABLES)
	}
	if err != nil {
		conn.Close()
	}
	return conn, err
}

// onlyGenerations has the kernel keep all other messages from a socket, by the type in their headers (linux/netlink.h). The
// filter reads it as the network would have it.
func onlyGenerations(conn *netlink.Conn) error {
	const newGeneration, typeAt = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN, 4
	kind := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, newGeneration))
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: typeAt},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(kind), Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 16}, // all of it
		{Code: unix.BPF_RET | unix.BPF_K},
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) {
		inner = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	})
	return errors.Join(err, inner)
}

func (f *follower) hear(conn *netlink.Conn, over <-chan struct{}) {
	for {
		messages, err := conn.Receive()
		select {
		case <-over:
			return
		default:
		}
		h := heard{any: true, first: f.now()}
		switch {
		case errors.Is(err, unix.ENOBUFS):
			h.lost = true
		case err != nil:
			h.err = err
		case len(messages) > 0:
			h.by = program(messages[len(messages)-1])
		}
		f.note(h)
		if h.err != nil {
			return
		}
	}
}

// program is what made a generation.
func program(m netlink.Message) (name string) {
	const header = 4 // struct nfgenmsg
	if len(m.Data) < header {
		return ""
	}
	d, err := netlink.NewAttributeDecoder(m.Data[header:])
	if err != nil {
		return ""
	}
	for d.Next() {
		if d.Type() == unix.NFTA_GEN_PROC_NAME {
			name = d.String()
		}
	}
	return name
}

// note adds what was heard to what is not looked at yet, and has it looked at.
func (f *follower) note(h heard) {
	f.mu.Lock()
	if before := f.heard; before.any {
		h = heard{any: true, lost: h.lost || before.lost, first: min(h.first, before.first), by: h.by, err: errors.Join(before.err, h.err)}
		if before.by != h.by {
			h.by = ""
		}
	}
	f.heard = h
	f.mu.Unlock()
	f.wake(f.changed)
}

func (f *follower) run(ctx context.Context) {
	defer func() { f.deaf() }()
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
		case <-f.changed:
		}
		began := time.Now()
		if err := f.compare(); err != nil {
			f.giveUp(err)
			return
		}
		rest.Reset(max(spacing, leisure*time.Since(began)))
	}
}

// compare looks at the rules and records what is other than before. What changes meanwhile has it looked at again.
func (f *follower) compare() error {
	if f.node.Life() != f.life {
		f.deaf()
		f.mu.Lock()
		f.heard = heard{}
		f.mu.Unlock()
		if err := f.open(); err != nil {
			f.deaf = func() {}
			return err
		}
	}
	f.mu.Lock()
	h := f.heard
	f.heard = heard{}
	f.mu.Unlock()
	if h.err != nil {
		return h.err
	}
	before, err := f.generation()
	if err != nil {
		return err
	}
	at := f.now()
	found, wrong := f.look()
	still := f.now()
	after, err := f.generation()
	if err != nil {
		return err
	}
	if before != after {
		if h.any {
			f.note(h)
		}
		return nil
	}
	if wrong != nil {
		return wrong
	}
	from := f.lastAt
	if h.lost {
		f.warn(fmt.Sprintf("nftables of %s changed more often than was heard: what they were between %.3f s and %.3f s is not known", f.name, from.Seconds(), at.Seconds()))
	} else if h.any {
		from = max(from, min(h.first, at)-lag)
	}
	f.tell(found, from, at, h.by)
	f.last, f.lastAt, f.looked = found, still, true
	return nil
}

// generation is the number of the state that the rules are in.
func (f *follower) generation() (string, error) {
	answers, err := f.ask.Execute(netlink.Message{Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: netlink.Request},
		Data: []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0}})
	if err != nil || len(answers) != 1 {
		return "", fmt.Errorf("asking %s for the generation of its nftables: %d answers, %w", f.name, len(answers), err)
	}
	return string(answers[0].Data), nil
}

// read finds what the rules have for those of the virtual servers that they lead anywhere.
func (f *follower) read(targets []Server) (Table, error) {
	t, rules := Table{}, rulesOf(f.conn)
	for _, target := range targets {
		found, err := backends(rules, f.node.Addr, target)
		if err != nil {
			return nil, fmt.Errorf("following the rules for %s: %w", target.Address, err)
		}
		if len(found) > 0 {
			t[target] = found
		}
	}
	return t, nil
}
