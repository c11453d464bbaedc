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

// nftView reads the table that kube-proxy 1.37 makes in its nftables mode: a map from address, protocol and port to the
// chain of a Service, whose rule translates to an address and port from a map of random numbers.
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
	service, err := v.elements(proxyMap, mapKey(want.addr))
	if err != nil || len(service) != 1 {
		return false, err
	}
	rules, err := v.rules.GetRules(&nftables.Table{Name: proxyTable, Family: nftables.TableFamilyIPv4}, &nftables.Chain{Name: service[0].chain})
	if err != nil {
		return false, gone(err)
	}
	var found []target
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

// target is where an element of a map leads to.
type target struct {
	chain string
	real  netip.AddrPort
}

// same reports whether targets are the ports of all pods and no others.
func same(reals []netip.Addr, found []target) bool {
	left := map[netip.AddrPort]bool{}
	for _, a := range reals {
		left[netip.AddrPortFrom(a, podPort)] = true
	}
	for _, t := range found {
		if !left[t.real] {
			return false
		}
		delete(left, t.real)
	}
	return len(left) == 0
}

// mapKey is the key of a Service: each field is padded to four bytes.
func mapKey(addr netip.Addr) []byte {
	key := append(addr.AsSlice(), unix.IPPROTO_TCP, 0, 0, 0)
	return append(binary.BigEndian.AppendUint16(key, servicePort), 0, 0)
}

// elements returns where the elements of a map lead to, all or that with the key. What is not there has none.
func (v *nftView) elements(set string, key []byte) ([]target, error) {
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
	var all []target
	for _, a := range answers {
		found, err := targets(a)
		if err != nil {
			return nil, fmt.Errorf("reading the map %s: %w", set, err)
		}
		all = append(all, found...)
	}
	return all, nil
}

// gone takes the word that something does not exist for no error.
func gone(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// targets reads a message of elements (linux/netfilter/nf_tables.h). In each, the data is a verdict with a chain, or a value:
// an address and a port, which is padded to four bytes.
func targets(message []byte) (all []target, err error) {
	err = inside(message, []uint16{unix.NFTA_SET_ELEM_LIST_ELEMENTS, unix.NFTA_LIST_ELEM, unix.NFTA_SET_ELEM_DATA}, func(data []byte) error {
		return errors.Join(
			inside(data, []uint16{unix.NFTA_DATA_VERDICT, unix.NFTA_VERDICT_CHAIN}, func(name []byte) error {
				all = append(all, target{chain: strings.TrimRight(string(name), "\x00")})
				return nil
			}),
			inside(data, []uint16{unix.NFTA_DATA_VALUE}, func(value []byte) error {
				if len(value) != 8 {
					return fmt.Errorf("%v is no address and port", value)
				}
				addr, _ := netip.AddrFromSlice(value[:4])
				all = append(all, target{real: netip.AddrPortFrom(addr, binary.BigEndian.Uint16(value[4:]))})
				return nil
			}))
	})
	return all, err
}

// inside calls f with each attribute at a path of types.
func inside(b []byte, path []uint16, f func([]byte) error) error {
	d, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return err
	}
	for d.Next() {
		switch {
		case d.Type() != path[0]:
		case len(path) == 1:
			err = f(d.Bytes())
		default:
			err = inside(d.Bytes(), path[1:], f)
		}
		if err != nil {
			return err
		}
	}
	return d.Err()
}
