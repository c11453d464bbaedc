package record

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// framed is an attempts.bin with one block of these frames, whose checksum is right.
func framed(frames string) []byte {
	return []byte(AttemptsMagic + string(newBlockHead().encode([]byte(frames))) + frames)
}

// Attempts that can be read are those that were written.
func FuzzAttempts(f *testing.F) {
	whole := encode(f, []Attempt{{Lane: 1, Class: OK, Backend: "web-1", Source: netip.MustParseAddrPort("10.200.0.1:2000")},
		{Lane: 1, Seq: 1, Class: ConnectTimeout, Detail: "ETIMEDOUT", Offender: netip.MustParseAddr("10.0.0.2")}})
	f.Add(whole)
	f.Add(whole[:len(whole)/3])
	f.Add(framed("S\xff\xff\xff\xff\xff\xff\xff\xff\x7fA"))
	f.Add(framed("B\x01\xff\xff\xff\xff\x0f"))
	f.Add([]byte(AttemptsMagic + blockMark + "\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		intactText(survey(bytes.NewReader(data), int64(len(data))))
		read, err := decode(data)
		again, againErr := decode(encode(t, read))
		if againErr != nil || !cmp.Equal(read, again, sameAddresses, cmpopts.EquateEmpty()) {
			t.Fatalf("%d attempts were read (%v) and written; they came back as %d (%v)", len(read), err, len(again), againErr)
		}
	})
}
