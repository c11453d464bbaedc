package testfiles

import "testing"

// No two tests have the same address at a time, and an address is free again after its test. One more than there are panics.
func TestLoopbackIsOfOneTest(t *testing.T) {
	for range 2 {
		t.Run("all", func(t *testing.T) {
			seen := map[string]bool{}
			for range len(loopbacks.used) {
				address := Loopback(t)
				if seen[address] {
					t.Errorf("%s has two users", address)
				}
				seen[address] = true
			}
			defer func() {
				if recover() == nil {
					t.Error("there is one more address than there are")
				}
			}()
			t.Error("got " + Loopback(t))
		})
	}
}
