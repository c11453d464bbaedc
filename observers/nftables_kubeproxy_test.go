//go:build linux

package observers

import (
	"net/netip"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// elementsMessage encodes elements as the kernel's answer to NFT_MSG_GETSETELEM.
func elementsMessage(t *testing.T, data ...func(*netlink.AttributeEncoder) error) []byte {
	t.Helper()
	e := netlink.NewAttributeEncoder()
	e.String(unix.NFTA_SET_ELEM_LIST_TABLE, kubeProxyTableName)
	e.Nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func(list *netlink.AttributeEncoder) error {
		for _, d := range data {
			list.Nested(unix.NFTA_LIST_ELEM, func(element *netlink.AttributeEncoder) error {
				element.Nested(unix.NFTA_SET_ELEM_DATA, d)
				return nil
			})
		}
		return nil
	})
	message, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return message
}

func TestParseElements(t *testing.T) {
	chain := func(data *netlink.AttributeEncoder) error {
		data.Nested(unix.NFTA_DATA_VERDICT, func(v *netlink.AttributeEncoder) error {
			v.Uint32(unix.NFTA_VERDICT_CODE, 1)
			v.String(unix.NFTA_VERDICT_CHAIN, "service-A")
			return nil
		})
		return nil
	}
	pod := func(n byte) func(*netlink.AttributeEncoder) error {
		return func(data *netlink.AttributeEncoder) error {
			data.Bytes(unix.NFTA_DATA_VALUE, []byte{10, 128, 0, n, 8080 >> 8, 8080 & 0xff, 0, 0})
			return nil
		}
	}
	if found, err := parseElements(elementsMessage(t, chain)); err != nil || len(found) != 1 || found[0].chain != "service-A" {
		t.Errorf("%+v, %v", found, err)
	}
	found, err := parseElements(elementsMessage(t, pod(1), pod(2)))
	one, two, three := netip.MustParseAddrPort("10.128.0.1:8080"), netip.MustParseAddrPort("10.128.0.2:8080"), netip.MustParseAddrPort("10.128.0.3:8080")
	if err != nil || !sameBackends([]netip.AddrPort{two, one}, found) {
		t.Errorf("%+v, %v", found, err)
	}
	for _, other := range [][]netip.AddrPort{{one}, {one, three}, {one, two, three}} {
		if sameBackends(other, found) {
			t.Errorf("%+v equal %v", found, other)
		}
	}
}
