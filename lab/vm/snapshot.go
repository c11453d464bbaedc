package vm

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hitless/hitless/internal/cache"
)

// A snapshot is a guest as it was when it stopped itself (Pause): its memory and the state of its devices, in a file that has its
// checksum in its name. Whatever of its guest's inputs changes, another snapshot is made.
const (
	snapshotPrefix = "lab-"
	snapshotSuffix = ".guest"
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
		f, err := cache.TryHold(name)
		if err != nil {
			continue // pruned meanwhile
		}
		_ = cache.MarkUsed(name)
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
	f, err := cache.Create(dir)
	if err != nil {
		return fmt.Errorf("saving the guest: %w", err)
	}
	defer f.Discard()
	if free, err := cache.FreeBytes(dir); err != nil || free < snapshotRoom {
		return errors.Join(fmt.Errorf("saving the guest: less than %d GB are free in %s", snapshotRoom>>30, dir), err)
	}
	if err := m.save(f.File); err != nil {
		return fmt.Errorf("saving the guest: %w", err)
	}
	name := snapshotSum(f.File, key)
	if name == "" {
		return fmt.Errorf("saving the guest: reading %s for its checksum failed", f.Name())
	}
	if err := f.Finish(name); err != nil {
		return fmt.Errorf("saving the guest: %w", err)
	}
	return pruneSnapshots(dir)
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

func pruneSnapshots(dir string) error {
	return cache.Prune(dir, snapshotPrefix, cache.Limit{Keep: keptSnapshots}, time.Now())
}
