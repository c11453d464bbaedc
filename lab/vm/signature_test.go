package vm

import (
	"bytes"
	"testing"
)

// A signature is taken away whole and nothing else is; what is not signed, or is cut off, stays as it is.
func TestUnsigned(t *testing.T) {
	module := []byte("\x7fELF and what a module is made of")
	signed := func(signature string, length uint32) []byte {
		all := append(bytes.Clone(module), signature...)
		all = append(all, 0, 0, 2, 0, 0, 0, 0, 0, byte(length>>24), byte(length>>16), byte(length>>8), byte(length))
		return append(all, signatureMark...)
	}
	for _, c := range []struct {
		name     string
		in, want []byte
	}{
		{"signed", signed("a signature", 11), module},
		{"not signed", module, module},
		{"nothing", nil, nil},
		{"the mark alone", signatureMark, signatureMark},
		{"longer than the file", signed("short", 1<<31), signed("short", 1<<31)},
	} {
		if got := unsigned(c.in); !bytes.Equal(got, c.want) {
			t.Errorf("%s: %d bytes %q, want %q", c.name, len(got), got, c.want)
		}
	}
}
