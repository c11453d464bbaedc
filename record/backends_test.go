package record

import (
	"net/netip"
	"testing"
)

// The text of equal lists is equal, whatever the order of the map.
func TestBackendsAreWrittenInOrder(t *testing.T) {
	got := NewBackendList(map[netip.AddrPort]int{netip.MustParseAddrPort("10.0.0.2:1"): 0, netip.MustParseAddrPort("10.0.0.1:2"): 7}).String()
	if got != "10.0.0.1:2=7,10.0.0.2:1=0" || NewBackendList(nil).String() != "" {
		t.Errorf("%q", got)
	}
}
