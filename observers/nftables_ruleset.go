//go:build linux

package observers

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// ruleset is the nftables state of a node.
type ruleset interface {
	// natChains returns the base chains that translate addresses of a family at a hook, in order of their priorities.
	natChains(family nftables.TableFamily, hook nftables.ChainHook) ([]*nftables.Chain, error)
	rules(table *nftables.Table, chain string) ([]*nftables.Rule, error)
	elements(table *nftables.Table, set string) ([]nftables.SetElement, error)
}

// kernelRules reads chains and sets from the kernel when they are asked for, each once. With many Services it reads only what
// lies on the way of the watched ones.
type kernelRules struct {
	conn        *nftables.Conn
	chains      []*nftables.Chain
	chainRules  map[objectKey][]*nftables.Rule
	setElements map[objectKey][]nftables.SetElement
}

// objectKey identifies a chain or a set.
type objectKey struct {
	family      nftables.TableFamily
	table, name string
}

func newKernelRules(conn *nftables.Conn) *kernelRules {
	return &kernelRules{conn: conn, chainRules: map[objectKey][]*nftables.Rule{}, setElements: map[objectKey][]nftables.SetElement{}}
}

func (k *kernelRules) natChains(family nftables.TableFamily, hook nftables.ChainHook) (bases []*nftables.Chain, err error) {
	if k.chains == nil {
		if k.chains, err = k.conn.ListChains(); err != nil {
			return nil, err
		}
	}
	for _, c := range k.chains {
		if c.Type == nftables.ChainTypeNAT && c.Hooknum != nil && *c.Hooknum == hook &&
			(c.Table.Family == family || c.Table.Family == nftables.TableFamilyINet) {
			bases = append(bases, c)
		}
	}
	slices.SortStableFunc(bases, func(a, b *nftables.Chain) int { return cmp.Compare(*a.Priority, *b.Priority) })
	return bases, nil
}

func (k *kernelRules) rules(table *nftables.Table, chain string) ([]*nftables.Rule, error) {
	return cached(k.chainRules, objectKey{table.Family, table.Name, chain}, func() ([]*nftables.Rule, error) {
		return k.conn.GetRules(table, &nftables.Chain{Name: chain})
	})
}

func (k *kernelRules) elements(table *nftables.Table, set string) ([]nftables.SetElement, error) {
	return cached(k.setElements, objectKey{table.Family, table.Name, set}, func() ([]nftables.SetElement, error) {
		return k.conn.GetSetElements(&nftables.Set{Table: table, Name: set})
	})
}

func cached[T any](values map[objectKey][]T, key objectKey, read func() ([]T, error)) ([]T, error) {
	if all, has := values[key]; has {
		return all, nil
	}
	all, err := read()
	if err == nil {
		values[key] = all
	}
	return all, err
}

// parseVerdict reads the verdict of a map's element (linux/netfilter/nf_tables.h, NFTA_DATA_VERDICT).
func parseVerdict(data []byte) (*expr.Verdict, error) {
	d, err := netlink.NewAttributeDecoder(data)
	if err != nil {
		return nil, err
	}
	d.ByteOrder = binary.BigEndian
	v := &expr.Verdict{}
	for d.Next() {
		switch d.Type() {
		case unix.NFTA_VERDICT_CODE:
			v.Kind = expr.VerdictKind(int32(d.Uint32()))
		case unix.NFTA_VERDICT_CHAIN:
			v.Chain = strings.TrimRight(d.String(), "\x00")
		}
	}
	return v, d.Err()
}
