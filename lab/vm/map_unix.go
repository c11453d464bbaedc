//go:build unix

package vm

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// mapFile maps a part of a file into memory, which others see change. unmap ends that.
func mapFile(f *os.File, offset int64, length int, write bool) ([]byte, error) {
	may := unix.PROT_READ
	if write {
		may |= unix.PROT_WRITE
	}
	return unix.Mmap(int(f.Fd()), offset, length, may, unix.MAP_SHARED)
}

func unmap(memory []byte) error { return unix.Munmap(memory) }

// socketPair returns two ends that child processes do not inherit.
func socketPair() ([2]int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(ends[0])
		unix.CloseOnExec(ends[1])
	}
	return ends, err
}

// rights is the control message that passes a descriptor on.
func rights(fd int) []byte { return unix.UnixRights(fd) }

// kernelRelease is the release of this machine's kernel.
func kernelRelease() (string, error) {
	var u unix.Utsname
	err := unix.Uname(&u)
	return unix.ByteSliceToString(u.Release[:]), err
}
