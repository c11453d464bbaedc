package vm

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hitless/hitless/internal/cache"
)

// A snapshot is a paused guest (Pause): its memory and device state in a file whose name contains the key of the
// guest's inputs and the content's checksum.
const (
	snapshotSuffix = ".guest"
	// minFreeBytes is the disk space that must stay free; below it no snapshot is saved.
	minFreeBytes = 4 << 30
)

// snapshotKind is what snapshots of one pause have in common.
type snapshotKind struct {
	prefix string // of their names
	keep   int    // most recently used ones that stay
}

// snapshotKinds are the kinds by pause. Guests of all subjects boot alike: those snapshots must not give way to the many that only runs
// with one subject can use.
var snapshotKinds = map[pause]snapshotKind{atBooted: {"booted-", 8}, atSettled: {"lab-", 4}}

// stem is the begin of the names of the snapshots of a pause with the key.
func (at pause) stem(key string) string { return snapshotKinds[at].prefix + key }

// snapshot is an open snapshot; pruning skips it. The checksum is computed while QEMU starts and reads the file,
// which takes as long.
type snapshot struct {
	*os.File
	at           pause         // where the saved guest stands
	expectedName func() string // the name by its content
}

// openSnapshot opens the snapshot of a pause with the key; nil if there is none.
func openSnapshot(dir string, at pause, key string) *snapshot {
	stem := at.stem(key)
	for _, name := range snapshotsOf(dir, stem) {
		f, err := cache.TryHold(name)
		if err != nil {
			continue // pruned meanwhile
		}
		_ = cache.MarkUsed(name)
		s := &snapshot{File: f, at: at, expectedName: sync.OnceValue(func() string { return snapshotName(f, stem) })}
		go s.expectedName()
		return s
	}
	return nil
}

// snapshotsOf are the files of the snapshots with a stem.
func snapshotsOf(dir, stem string) []string {
	names, _ := filepath.Glob(filepath.Join(dir, stem+"-*"+snapshotSuffix)) // the pattern is valid
	return names
}

// verify returns an error if the content does not match the checksum. A guest from a damaged snapshot must not run.
func (s *snapshot) verify() error {
	return snapshotDamage(s.Name(), s.expectedName())
}

// restore makes QEMU read the guest. After a snapshotError the guest has executed nothing.
func (s *snapshot) restore(m *monitor) error {
	err := m.restore(s.File)
	if damaged := s.verify(); damaged != nil { // more precise than QEMU's error
		err = damaged
	}
	if err != nil {
		return &snapshotError{err}
	}
	return nil
}

// snapshotDamage compares the name of a snapshot with the name by its content, which is empty for what cannot be read.
func snapshotDamage(file, byContent string) error {
	if byContent == filepath.Base(file) {
		return nil
	}
	found := "no readable file"
	if byContent != "" {
		found = "crc32c " + snapshotSum(byContent)
	}
	return &cache.Damage{Entry: file, File: cache.Itself, Expected: "crc32c " + snapshotSum(file), Found: found}
}

// snapshotSum is the checksum in the name of a snapshot.
func snapshotSum(file string) string {
	name := strings.TrimSuffix(filepath.Base(file), snapshotSuffix)
	return name[strings.LastIndexByte(name, '-')+1:]
}

// Close waits for the checksum and closes the file.
func (s *snapshot) Close() error {
	s.expectedName()
	return s.File.Close()
}

// snapshotName returns the file name for a snapshot's content and the stem of its name, which are prefix and key. It is empty if the content
// cannot be read. It does not move the file offset, which QEMU shares.
func snapshotName(f io.ReaderAt, stem string) string {
	sum := crc32.New(castagnoli)
	if _, err := io.CopyBuffer(sum, io.NewSectionReader(f, 0, math.MaxInt64), make([]byte, 1<<20)); err != nil {
		return ""
	}
	return fmt.Sprintf("%s-%08x%s", stem, sum.Sum32(), snapshotSuffix)
}

// saveSnapshot saves the stopped guest as a file atomically, unless a guest that booted at the same time has been saved meanwhile.
func saveSnapshot(m *monitor, dir string, at pause, key string) error {
	stem := at.stem(key)
	if len(snapshotsOf(dir, stem)) > 0 {
		return nil
	}
	f, err := cache.Create(dir)
	if err != nil {
		return fmt.Errorf("saving the guest: %w", err)
	}
	defer f.Discard()
	if free, err := cache.FreeBytes(dir); err != nil || free < minFreeBytes {
		return errors.Join(fmt.Errorf("saving the guest: less than %d GB are free in %s", minFreeBytes>>30, dir), err)
	}
	if err := m.save(f.File); err != nil {
		return fmt.Errorf("saving the guest: %w", err)
	}
	name := snapshotName(f.File, stem)
	if name == "" {
		return fmt.Errorf("saving the guest: reading %s for its checksum failed", f.Name())
	}
	if err := f.Finish(name); err != nil {
		return fmt.Errorf("saving the guest: %w", err)
	}
	return pruneSnapshots(dir)
}

// save makes QEMU write the stopped guest to the file.
func (m *monitor) save(f *os.File) error {
	// The default bandwidth is for migration over a network.
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

// restore makes QEMU, started with -incoming defer, read the guest from the file.
func (m *monitor) restore(f *os.File) error {
	if _, err := m.execute("getfd", map[string]any{"fdname": "snapshot"}, f); err != nil {
		return err
	}
	if _, err := m.execute("migrate-incoming", map[string]any{"uri": "fd:snapshot"}); err != nil {
		return err
	}
	return m.awaitMigration()
}

// pruneSnapshots removes the least recently used snapshots of each kind.
func pruneSnapshots(dir string) error {
	var errs []error
	for _, kind := range snapshotKinds {
		errs = append(errs, cache.Prune(dir, kind.prefix, cache.Limit{Keep: kind.keep}, time.Now()))
	}
	return errors.Join(errs...)
}
