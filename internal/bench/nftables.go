package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/lab/topology"
)

// nftView reads the tables that kube-proxy makes in its nftables mode: a map from address, protocol and port to the chain of
// a Service, whose map of random numbers goes to the chains of its endpoints, which are named after them.
type nftView struct {
	raw        *netlink.Conn
	rules      *nftables.Conn
	generation []byte
}

// What kube-proxy calls its table and its map.
const (
	proxyTable = "kube-proxy"
	proxyMap   = "service-ips"
)

func openNFTables(node *topology.Node) (view, error) {
	raw, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: node.Fd()})
	if err != nil {
		return nil, fmt.Errorf("opening a netlink handle on nftables: %w", err)
	}
	rules, err := nftables.New(nftables.WithNetNSFd(node.Fd()))
	if err != nil {
		raw.Close()
		return nil, fmt.Errorf("opening a netlink handle on nftables: %w", err)
	}
	return &nftView{raw: raw, rules: rules}, nil
}

func (v *nftView) close() { v.raw.Close() }

// ask sends one request and returns the bodies of the answers, without their headers (nfgenmsg).
func (v *nftView) ask(kind int, flags netlink.HeaderFlags, attributes []byte) ([][]byte, error) {
	header := []byte{unix.NFPROTO_IPV4, unix.NFNETLINK_V0, 0, 0}
	answers, err := v.raw.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind), Flags: netlink.Request | flags},
		Data:   append(header, attributes...)})
	if err != nil {
		return nil, err
	}
	var bodies [][]byte
	for _, a := range answers {
		if len(a.Data) > 4 {
			bodies = append(bodies, a.Data[4:])
		}
	}
	return bodies, nil
}

// changed compares the number that the kernel gives to each state of its tables.
func (v *nftView) changed() (bool, error) {
	answers, err := v.ask(unix.NFT_MSG_GETGEN, 0, nil)
	if err != nil {
		return false, fmt.Errorf("asking for the generation of the nftables tables: %w", err)
	}
	if len(answers) != 1 {
		return false, fmt.Errorf("asking for the generation of the nftables tables: %d answers", len(answers))
	}
	same := slices.Equal(v.generation, answers[0])
	v.generation = answers[0]
	return !same, nil
}

func (v *nftView) has(want *virtual) (bool, error) {
	chains, err := v.elements(proxyMap, mapKey(want.addr))
	if err != nil || len(chains) != 1 {
		return false, err
	}
	rules, err := v.rules.GetRules(&nftables.Table{Name: proxyTable, Family: nftables.TableFamilyIPv4}, &nftables.Chain{Name: chains[0]})
	if err != nil {
		return false, gone(err)
	}
	var found []string
	for _, r := range rules {
		for _, e := range r.Exprs {
			lookup, is := e.(*expr.Lookup)
			if !is || !lookup.IsDestRegSet {
				continue
			}
			to, err := v.elements(lookup.SetName, nil)
			if err != nil {
				return false, err
			}
			found = append(found, to...)
		}
	}
	return same(want.reals, found), nil
}

// same reports whether chains of endpoints are those of all addresses and no others.
func same(reals []netip.Addr, chains []string) bool {
	ends := map[string]bool{}
	for _, a := range reals {
		ends[fmt.Sprintf("%s/%d", a, podPort)] = true
	}
	for _, c := range chains {
		_, end, _ := strings.Cut(c, "__")
		if !ends[end] {
			return false
		}
		delete(ends, end)
	}
	return len(ends) == 0
}

// mapKey is the key of a Service: each field is padded to four bytes.
func mapKey(addr netip.Addr) []byte {
	key := append(addr.AsSlice(), unix.IPPROTO_TCP, 0, 0, 0)
	return append(binary.BigEndian.AppendUint16(key, servicePort), 0, 0)
}

// elements returns the chains that the elements of a map go to, of all or of that with the key. What is not there has none.
func (v *nftView) elements(set string, key []byte) ([]string, error) {
	e := netlink.NewAttributeEncoder()
	e.String(unix.NFTA_SET_ELEM_LIST_TABLE, proxyTable)
	e.String(unix.NFTA_SET_ELEM_LIST_SET, set)
	flags := netlink.HeaderFlags(netlink.Dump)
	if key != nil {
		flags = 0
		e.Nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func(list *netlink.AttributeEncoder) error {
			list.Nested(unix.NFTA_LIST_ELEM, func(element *netlink.AttributeEncoder) error {
				element.Nested(unix.NFTA_SET_ELEM_KEY, func(data *netlink.AttributeEncoder) error {
					data.Bytes(unix.NFTA_DATA_VALUE, key)
					return nil
				})
				return nil
			})
			return nil
		})
	}
	attributes, err := e.Encode()
	if err != nil {
		return nil, err
	}
	answers, err := v.ask(unix.NFT_MSG_GETSETELEM, flags, attributes)
	if err != nil {
		return nil, gone(err)
	}
	var chains []string
	for _, a := range answers {
		found, err := verdicts(a)
		if err != nil {
			return nil, fmt.Errorf("reading the map %s: %w", set, err)
		}
		chains = append(chains, found...)
	}
	return chains, nil
}

// gone takes the word that something does not exist for no error.
func gone(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// verdicts returns the chains in a message of elements: ELEMENTS, LIST_ELEM, DATA, VERDICT and CHAIN inside each other
// (linux/netfilter/nf_tables.h).
func verdicts(message []byte) ([]string, error) {
	var chains []string
	path := []uint16{unix.NFTA_SET_ELEM_LIST_ELEMENTS, unix.NFTA_LIST_ELEM, unix.NFTA_SET_ELEM_DATA, unix.NFTA_DATA_VERDICT, unix.NFTA_VERDICT_CHAIN}
	var walk func(b []byte, depth int) error
	walk = func(b []byte, depth int) error {
		d, err := netlink.NewAttributeDecoder(b)
		if err != nil {
			return err
		}
		for d.Next() {
			switch {
			case d.Type() != path[depth]:
			case depth == len(path)-1:
				chains = append(chains, d.String())
			default:
				if err := walk(d.Bytes(), depth+1); err != nil {
					return err
				}
			}
		}
		return d.Err()
	}
	return chains, walk(message, 0)
}
