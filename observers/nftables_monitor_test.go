//go:build linux

package observers

import (
	"testing"

	"golang.org/x/sys/unix"
)

// An answer about the generation names the thread that asked; only its first attribute is the generation.
func TestAttributesOfAGeneration(t *testing.T) {
	answer := []byte{0, 0, 0, 0, 8, 0, 1, 0, 0, 0, 0, 7, 8, 0, 2, 0, 0, 0, 1, 2, 8, 0, 3, 0, 'n', 'f', 't', 0}
	if got := attribute(answer, unix.NFTA_GEN_ID); string(got) != "\x00\x00\x00\x07" {
		t.Errorf("the generation is %q", got)
	}
	for _, bad := range [][]byte{nil, answer[:3], answer[:4], answer[:10]} {
		if got := attribute(bad, unix.NFTA_GEN_ID); got != nil {
			t.Errorf("%v has the generation %q", bad, got)
		}
	}
}
