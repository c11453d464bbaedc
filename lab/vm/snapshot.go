package vm

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A snapshot is a guest as it was when it stopped itself (Pause): its memory and the state of its devices, in a file that has its
// checksum in its name. Whatever of its guest's inputs changes, another snapshot is made.
const (
	snapshotPrefix = "lab-"
	snapshotSuffix = ".guest"
	halfPrefix     = "new-"
	keptSnapshots  = 4
	// snapshotRoom is what stays free on the disk, in bytes, or none is made: they are a help only.
	snapshotRoom = 8 << 30
)

// snapshot is one that is open: nobody sweeps it away. Its checksum is made while QEMU starts and reads it, which takes as long.
type snapshot struct {
	*os.File
	sum func() string // what its content says that its name is
}

// openSnapshot opens the snapshot of that key, or returns nil when there is none.
func openSnapshot(dir, key string) *snapshot {
	names, _ := filepath.Glob(filepath.Join(dir, snapshotPrefix+key+"-*"+snapshotSuffix))
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil { // being swept
			f.Close()
			continue
		}
		now := time.Now()
		_ = os.Chtimes(name, now, now) // the ones used last are kept
		s := &snapshot{f, sync.OnceValue(func() string { return snapshotSum(f, key) })}
		go s.sum()
		return s
	}
	return nil
}

// intact says whether the content is what was saved. A guest that was made of anything else must not run.
func (s *snapshot) intact() error {
	if is, should := s.sum(), filepath.Base(s.Name()); is != should {
		return fmt.Errorf("the saved guest is damaged: by its content it would be %q, and it is %s", is, should)
	}
	return nil
}

// Close waits until nobody reads it any more.
func (s *snapshot) Close() error {
	s.sum()
	return s.File.Close()
}

// snapshotSum is the name that a file's content gives it, and empty when it cannot be read. Where the file stands is left to others.
func snapshotSum(f *os.File, key string) string {
	sum := crc32.New(castagnoli)
	if _, err := io.CopyBuffer(sum, io.NewSectionReader(f, 0, math.MaxInt64), make([]byte, 1<<20)); err != nil {
		return ""
	}
	return fmt.Sprintf("%s%s-%08x%s", snapshotPrefix, key, sum.Sum32(), snapshotSuffix)
}

// saveSnapshot writes the stopped guest into a file, whole or not at all.
func saveSnapshot(m *monitor, dir, key string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("saving the guest: %w", err)
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil || int64(disk.Bavail)*disk.Bsize < snapshotRoom {
		return errors.Join(fmt.Errorf("saving the guest: less than %d GB are free in %s", snapshotRoom>>30, dir), err)
	}
	f, err := os.CreateTemp(dir, halfPrefix+"*")
	if err != nil {
		return fmt.Errorf("saving the guest: %w", err)
	}
	defer os.Remove(f.Name()) // it has another name when all went well
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH); err != nil { // or it would be taken for a dead run's
		return fmt.Errorf("saving the guest: %w", err)
	}
	if err := m.save(f); err != nil {
		return fmt.Errorf("saving the guest: %w", err)
	}
	name := snapshotSum(f, key)
	if err := os.Rename(f.Name(), filepath.Join(dir, name)); err != nil || name == "" {
		return fmt.Errorf("saving the guest: %w", err)
	}
	return sweepSnapshots(dir)
}

// save has QEMU write the stopped guest into the file.
func (m *monitor) save(f *os.File) error {
	// Its default is what a network between two machines bears.
	if _, err := m.execute("migrate-set-parameters", map[string]any{"max-bandwidth": int64(1) << 40}); err != nil {
		return err
	}
	if _, err := m.execute("getfd", map[string]any{"fdname": "snapshot"}, f); err != nil {
		return err
	}
	if _, err := m.execute("migrate", map[string]any{"uri": "fd:snapshot"}); err != nil {
		return err
	}
	return m.awaitMigration()
}

// restore has QEMU, which was started to wait for it, take the guest from the file.
func (m *monitor) restore(f *os.File) error {
	if _, err := m.execute("getfd", map[string]any{"fdname": "snapshot"}, f); err != nil {
		return err
	}
	if _, err := m.execute("migrate-incoming", map[string]any{"uri": "fd:snapshot"}); err != nil {
		return err
	}
	return m.awaitMigration()
}

// sweepSnapshots removes all but those that were used last and those in use, and what killed runs have left half made.
func sweepSnapshots(dir string) error {
	half, _ := filepath.Glob(filepath.Join(dir, halfPrefix+"*"))
	whole, err := filepath.Glob(filepath.Join(dir, snapshotPrefix+"*"))
	if err != nil {
		return err
	}
	used := map[string]int64{}
	for _, name := range whole {
		if info, err := os.Stat(name); err == nil { // else another has swept it
			used[name] = info.ModTime().UnixNano()
		}
	}
	slices.SortFunc(whole, func(a, b string) int { return cmp.Or(cmp.Compare(used[b], used[a]), cmp.Compare(a, b)) })
	var failed error
	for _, name := range append(half, whole[min(keptSnapshots, len(whole)):]...) {
		failed = errors.Join(failed, removeUnused(name))
	}
	return failed
}
