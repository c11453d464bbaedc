package record

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Backend is an entry for a Service address in a node's kernel table.
type Backend struct {
	Address netip.AddrPort
	Weight  int // of IPVS; 0: it gets no new connections. 1 in other tables.
}

// BackendList is the attribute backends of KernelTable: address:port=weight, comma separated.
type BackendList []Backend

// NewBackendList returns the backends of a table, in the fixed order of their text.
func NewBackendList(weights map[netip.AddrPort]int) BackendList {
	list := make(BackendList, 0, len(weights))
	for address, weight := range weights {
		list = append(list, Backend{address, weight})
	}
	slices.SortFunc(list, func(x, y Backend) int { return strings.Compare(x.String(), y.String()) })
	return list
}

// String formats the backend as address:port=weight.
func (b Backend) String() string { return fmt.Sprintf("%s=%d", b.Address, b.Weight) }

// String formats the list as its attribute.
func (bs BackendList) String() string {
	words := make([]string, len(bs))
	for i, b := range bs {
		words[i] = b.String()
	}
	return strings.Join(words, ",")
}

// MarshalText formats the list.
func (bs BackendList) MarshalText() ([]byte, error) { return []byte(bs.String()), nil }

// UnmarshalText parses the list.
func (bs *BackendList) UnmarshalText(text []byte) error {
	for word := range strings.SplitSeq(string(text), ",") {
		backend, weight, _ := strings.Cut(word, "=")
		address, err := netip.ParseAddrPort(backend)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(weight)
		if err != nil {
			return err
		}
		*bs = append(*bs, Backend{address, n})
	}
	return nil
}
