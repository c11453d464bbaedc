package balancer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/hitless/hitless/lab/topology"
	corev1 "k8s.io/api/core/v1"
)

// ruleset is an nftables table in the balancer's namespace. Each commit is one netlink transaction, which is atomic for
// packets.
type ruleset struct {
	ns    *topology.Namespace
	table *nftables.Table
	mu    sync.Mutex
	conn  *nftables.Conn // nil until used, and after an error
}

// newRuleset creates the table of a family; create fills it in the same transaction.
func newRuleset(ns *topology.Namespace, family nftables.TableFamily, name string, create func(*nftables.Conn, *nftables.Table) error) (*ruleset, error) {
	r := &ruleset{ns: ns, table: &nftables.Table{Family: family, Name: name}}
	err := r.commit(func(c *nftables.Conn) error {
		c.AddTable(r.table) // DelTable fails without a table
		c.DelTable(r.table)
		c.AddTable(r.table)
		return create(c, r.table)
	})
	if err != nil {
		return nil, fmt.Errorf("creating the nftables table %s of the balancer: %w (the kernel needs nf_tables, nft_ct, nft_hash, "+
			"nft_reject and nf_conntrack)", name, err)
	}
	return r, nil
}

// commit sends the operations of build as one transaction and returns when they are in force.
func (r *ruleset) commit(build func(*nftables.Conn) error) error {
	return r.with(func(c *nftables.Conn) error {
		if err := build(c); err != nil {
			return err
		}
		return c.Flush()
	})
}

// with calls use with the netlink connection. The connection stays open, because closing one waits about 10 ms for the
// kernel to free deleted objects, which would blur the time of a change. After an error it is replaced, since it may
// hold responses to the failed request.
func (r *ruleset) with(use func(*nftables.Conn) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn == nil {
		c, err := nftables.New(nftables.WithNetNSFd(r.ns.Fd()), nftables.AsLasting())
		if err != nil {
			return fmt.Errorf("opening a netlink socket: %w", err)
		}
		r.conn = c
	}
	err := use(r.conn)
	if err != nil {
		err = errors.Join(err, r.closeConn())
	}
	return err
}

func (r *ruleset) closeConn() error {
	c := r.conn
	r.conn = nil
	if c == nil {
		return nil
	}
	return c.CloseLasting()
}

func (r *ruleset) close() error {
	err := r.commit(func(c *nftables.Conn) error { c.DelTable(r.table); return nil })
	r.mu.Lock()
	defer r.mu.Unlock()
	if err = errors.Join(err, r.closeConn()); err != nil {
		return fmt.Errorf("removing the nftables table %s of the balancer: %w", r.table.Name, err)
	}
	return nil
}

// 4-byte registers count from 8 (linux/netfilter/nf_tables.h, NFT_REG32_00); the old 16-byte registers from 1
// share the same space, 1 being 8 to 11.
const (
	regA   = 8  // scratch
	regKey = 12 // first of the four words of a key
)

// Offsets in a TCP and UDP header.
const (
	portSource, portDest = 0, 2
	tcpFlags             = 13
	flagSYN, flagACK     = 0x02, 0x10
	flagPSH              = 0x08
)

func network(reg, offset, length uint32) expr.Any {
	return &expr.Payload{DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length}
}

func transport(reg, offset, length uint32) expr.Any {
	return &expr.Payload{DestRegister: reg, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: length}
}

func equals(data ...byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: regA, Data: data} }

func differs(data ...byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpNeq, Register: regA, Data: data} }

func masked(mask ...byte) expr.Any {
	return &expr.Bitwise{SourceRegister: regA, DestRegister: regA, Len: uint32(len(mask)), Mask: mask,
		Xor: make([]byte, len(mask))}
}

func mark(value uint32) []byte { return binaryutil.NativeEndian.PutUint32(value) }

func port2(p uint16) []byte { return binary.BigEndian.AppendUint16(nil, p) }

// interfaceName returns the name as the kernel compares it.
func interfaceName(name string) []byte {
	data := make([]byte, 16)
	copy(data, name)
	return data
}

// protocolNumber returns the protocol number of the IP header.
func protocolNumber(p corev1.Protocol) byte {
	switch p {
	case corev1.ProtocolUDP:
		return 17
	case corev1.ProtocolSCTP:
		return 132
	default:
		return 6
	}
}

func verdictOf(kind expr.VerdictKind) expr.Any { return &expr.Verdict{Kind: kind} }

func join(parts ...[]expr.Any) []expr.Any {
	var all []expr.Any
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}
