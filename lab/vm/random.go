package vm

import (
	"crypto/sha256"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The requests of random(4) that x/sys does not name, as amd64 and arm64 number them.
const (
	rndAddEntropy = 0x40085203
	rndReseed     = 0x5207
)

// SeedPool puts the seed into the guest's random pool, which gives numbers of it from then on (random(4), RNDADDENTROPY and
// RNDRESEEDCRNG). Nothing else is in the pool that differs between guests.
func SeedPool(seed int64) error {
	f, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("seeding the guest's random pool: %w", err)
	}
	defer f.Close()
	added := struct {
		bits, size int32
		seed       [sha256.Size]byte
	}{8 * sha256.Size, sha256.Size, sha256.Sum256(fmt.Appendf(nil, "hitless seed %d", seed))}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), rndAddEntropy, uintptr(unsafe.Pointer(&added))); errno != 0 {
		return fmt.Errorf("seeding the guest's random pool: %w", errno)
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), rndReseed, 0); errno != 0 {
		return fmt.Errorf("seeding the guest's random pool anew: %w", errno)
	}
	return nil
}
