package cache

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

func stampOf(info fs.FileInfo) stamp {
	st := info.Sys().(*syscall.Stat_t) // on macOS, always
	return stamp{st.Size, st.Mtimespec.Nano(), st.Ctimespec.Nano(), st.Ino, uint64(st.Dev)}
}

// exchange gives two directories each other's names in one step, where the file system can do that.
func exchange(a, b string) error { return unix.RenamexNp(a, b, unix.RENAME_SWAP) }
