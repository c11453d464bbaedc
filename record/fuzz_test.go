package record

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// Attempts that can be read are those that were written.
func FuzzAttempts(f *testing.F) {
	whole := encode(f, []Attempt{{Lane: 1, Class: OK, Backend: "web-1", Source: netip.MustParseAddrPort("10.200.0.1:2000")},
		{Lane: 1, Seq: 1, Class: ConnectTimeout, Detail: "ETIMEDOUT", Offender: netip.MustParseAddr("10.0.0.2")}})
	f.Add(whole)
	f.Add(whole[:len(whole)/3])
	f.Add([]byte(AttemptsMagic + "S\xff\xff\xff\xff\xff\xff\xff\xff\x7fA"))
	f.Fuzz(func(t *testing.T, data []byte) {
		read, err := decode(data)
		again, againErr := decode(encode(t, read))
		if againErr != nil || !cmp.Equal(read, again, sameAddresses, cmpopts.EquateEmpty()) {
			t.Fatalf("%d attempts were read (%v) and written; they came back as %d (%v)", len(read), err, len(again), againErr)
		}
	})
}
