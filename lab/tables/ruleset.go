package tables

import (
	"cmp"
	"slices"

	"github.com/google/nftables"
)

// kernelRules reads from the kernel what a walk asks for, and each chain and each set once: of many Services no more than lies
// on the way to those that are asked about.
type kernelRules struct {
	conn   *nftables.Conn
	chains []*nftables.Chain
	ruled  map[part][]*nftables.Rule
	filled map[part][]nftables.SetElement
}

// part is a chain or a set of a table.
type part struct {
	family      nftables.TableFamily
	table, name string
}

func rulesOf(conn *nftables.Conn) *kernelRules {
	return &kernelRules{conn: conn, ruled: map[part][]*nftables.Rule{}, filled: map[part][]nftables.SetElement{}}
}

func (k *kernelRules) bases(family nftables.TableFamily, hook nftables.ChainHook) (bases []*nftables.Chain, err error) {
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
	return once(k.ruled, part{table.Family, table.Name, chain}, func() ([]*nftables.Rule, error) {
		return k.conn.GetRules(table, &nftables.Chain{Name: chain})
	})
}

func (k *kernelRules) elements(table *nftables.Table, set string) ([]nftables.SetElement, error) {
	return once(k.filled, part{table.Family, table.Name, set}, func() ([]nftables.SetElement, error) {
		return k.conn.GetSetElements(&nftables.Set{Table: table, Name: set})
	})
}

func once[T any](had map[part][]T, p part, read func() ([]T, error)) ([]T, error) {
	if all, has := had[p]; has {
		return all, nil
	}
	all, err := read()
	if err == nil {
		had[p] = all
	}
	return all, err
}
