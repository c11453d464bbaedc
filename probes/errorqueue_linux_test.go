//go:build !portable

package probes

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseErrorOfDamagedData(t *testing.T) {
	whole := make([]byte, 16+unix.SizeofSockaddrInet4)
	whole[4], whole[5], whole[6], whole[16] = unix.SO_EE_ORIGIN_ICMP, 3, 3, unix.AF_INET
	copy(whole[20:], []byte{10, 0, 0, 11})
	if e := parseError(whole); !e.ofRule() || e.offender != netip.MustParseAddr("10.0.0.11") {
		t.Errorf("%v by %v", e, e.offender)
	}
	for n := range len(whole) {
		if e := parseError(whole[:n]); e.offender.IsValid() || e.present() != (n >= 16) {
			t.Errorf("%d bytes: %v by %v", n, e, e.offender)
		}
	}
}
