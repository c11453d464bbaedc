//go:build linux

package guest

import (
	"math"
	"testing"
)

// Small seeds keep the histories that they have always had; of large seeds no bit is ignored.
func TestTheBalancersSeedDependsOnAllBits(t *testing.T) {
	for _, seed := range []int64{1, 2, 7, 1 << 31, math.MaxUint32} {
		if got := balancerSeed(seed); got != uint32(seed) {
			t.Errorf("seed %d gives the balancer %d", seed, got)
		}
	}
	seen := map[uint32]int64{}
	for bit := 32; bit < 64; bit++ {
		seed := int64(uint64(1)<<bit | 1)
		if other, twice := seen[balancerSeed(seed)]; twice || balancerSeed(seed) == 1 {
			t.Errorf("seed %d gives the balancer the same %d as %d", seed, balancerSeed(seed), max(other, 1))
		}
		seen[balancerSeed(seed)] = seed
	}
}

// The plan carries the seed from the host to the guest.
func TestThePlanKeepsAllBitsOfTheSeed(t *testing.T) {
	for _, seed := range []int64{math.MinInt64, -1, 1<<53 + 1, math.MaxInt64} {
		data, err := Plan{Seed: seed}.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if p, err := readPlan(data); err != nil || p.Seed != seed {
			t.Errorf("seed %d is read as %d, %v", seed, p.Seed, err)
		}
	}
}
