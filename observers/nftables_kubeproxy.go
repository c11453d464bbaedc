//go:build linux

package observers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// kubeProxyTable reads the table of kube-proxy 1.37 in nftables mode: a verdict map from address, protocol and port to the
// Service's chain, whose rule translates to an element of a map with random keys.
type kubeProxyTable struct {
	netlink    *netlink.Conn
	rules      *nftables.Conn
	generation string
}

const (
	kubeProxyTableName  = "kube-proxy"
	kubeProxyServiceIPs = "service-ips"
)

func openKubeProxyTable(node Node) (*kubeProxyTable, error) {
	t := &kubeProxyTable{}
	err := node.Do(func() (err error) {
		if t.netlink, err = netlink.Dial(unix.NETLINK_NETFILTER, nil); err != nil {
			return err
		}
		if t.rules, err = nftables.New(nftables.AsLasting()); err != nil {
			t.netlink.Close()
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("opening netlink for nftables on %s: %w", node.Name, err)
	}
	return t, nil
}

func (t *kubeProxyTable) Close() {
	t.netlink.Close()
	_ = t.rules.CloseLasting() // nothing was written
}

func (t *kubeProxyTable) Changed() (bool, error) {
	before := t.generation
	var err error
	if t.generation, err = readGeneration(t.netlink); err != nil {
		return false, fmt.Errorf("reading the nftables generation: %w", err)
	}
	return t.generation != before, nil
}

func (t *kubeProxyTable) Serves(address netip.AddrPort, backends []netip.AddrPort) (bool, error) {
	service, err := t.elements(kubeProxyServiceIPs, serviceKey(address))
	if err != nil || len(service) != 1 {
		return false, err
	}
	rules, err := t.rules.GetRules(&nftables.Table{Name: kubeProxyTableName, Family: nftables.TableFamilyIPv4}, &nftables.Chain{Name: service[0].chain})
	if err != nil {
		return false, ignoreNotFound(err)
	}
	var found []mapValue
	for _, r := range rules {
		for _, e := range r.Exprs {
			lookup, is := e.(*expr.Lookup)
			if !is || !lookup.IsDestRegSet {
				continue
			}
			values, err := t.elements(lookup.SetName, nil)
			if err != nil {
				return false, err
			}
			found = append(found, values...)
		}
	}
	return sameBackends(backends, found), nil
}

// mapValue is the value of a map's element: a chain of a verdict, or a backend.
type mapValue struct {
	chain   string
	backend netip.AddrPort
}

func sameBackends(want []netip.AddrPort, found []mapValue) bool {
	left := map[netip.AddrPort]bool{}
	for _, b := range want {
		left[b] = true
	}
	for _, v := range found {
		if !left[v.backend] {
			return false
		}
		delete(left, v.backend)
	}
	return len(left) == 0
}

// serviceKey is the key of a Service with TCP: each field is padded to four bytes.
func serviceKey(address netip.AddrPort) []byte {
	key := append(address.Addr().AsSlice(), unix.IPPROTO_TCP, 0, 0, 0)
	return append(binary.BigEndian.AppendUint16(key, address.Port()), 0, 0)
}

// elements returns the values of a map: that of a key, or all when key is nil. A map or key that does not exist has none.
func (t *kubeProxyTable) elements(set string, key []byte) ([]mapValue, error) {
	e := netlink.NewAttributeEncoder()
	e.String(unix.NFTA_SET_ELEM_LIST_TABLE, kubeProxyTableName)
	e.String(unix.NFTA_SET_ELEM_LIST_SET, set)
	flags := netlink.Request | netlink.Dump
	if key != nil {
		flags = netlink.Request
		encodeKey(e, key)
	}
	attributes, err := e.Encode()
	if err != nil {
		return nil, err
	}
	answers, err := t.netlink.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETSETELEM, Flags: flags},
		Data:   append([]byte{unix.NFPROTO_IPV4, unix.NFNETLINK_V0, 0, 0}, attributes...)})
	if err != nil {
		return nil, ignoreNotFound(err)
	}
	var all []mapValue
	for _, a := range answers {
		if len(a.Data) <= nfgenmsgSize {
			continue
		}
		values, err := parseElements(a.Data[nfgenmsgSize:])
		if err != nil {
			return nil, fmt.Errorf("reading the map %s: %w", set, err)
		}
		all = append(all, values...)
	}
	return all, nil
}

func encodeKey(e *netlink.AttributeEncoder, key []byte) {
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

func ignoreNotFound(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// parseElements reads a message of elements (linux/netfilter/nf_tables.h). The data of each is a verdict with a chain, or an
// address and a port that is padded to four bytes.
func parseElements(message []byte) (all []mapValue, err error) {
	err = attributesAt(message, []uint16{unix.NFTA_SET_ELEM_LIST_ELEMENTS, unix.NFTA_LIST_ELEM, unix.NFTA_SET_ELEM_DATA}, func(data []byte) error {
		return errors.Join(
			attributesAt(data, []uint16{unix.NFTA_DATA_VERDICT}, func(data []byte) error {
				verdict, err := parseVerdict(data)
				if err == nil && verdict.Chain != "" {
					all = append(all, mapValue{chain: verdict.Chain})
				}
				return err
			}),
			attributesAt(data, []uint16{unix.NFTA_DATA_VALUE}, func(value []byte) error {
				if len(value) != 8 {
					return fmt.Errorf("%v is not an address and port", value)
				}
				addr, _ := netip.AddrFromSlice(value[:4])
				all = append(all, mapValue{backend: netip.AddrPortFrom(addr, binary.BigEndian.Uint16(value[4:]))})
				return nil
			}))
	})
	return all, err
}

// attributesAt calls f with the value of each attribute at a path of types.
func attributesAt(b []byte, path []uint16, f func([]byte) error) error {
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
			err = attributesAt(d.Bytes(), path[1:], f)
		}
		if err != nil {
			return err
		}
	}
	return d.Err()
}
