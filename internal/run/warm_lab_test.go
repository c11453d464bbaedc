//go:build lab

package run_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/internal/run"
)

// cacheOfItsOwn returns a cache that shares kernel and packed files, and has separate snapshots.
func cacheOfItsOwn(t *testing.T) string {
	t.Helper()
	shared, err := cache.Dir()
	if err != nil {
		t.Fatal(err)
	}
	own := t.TempDir()
	for _, name := range []string{"kernel", "initramfs"} {
		if err := os.MkdirAll(filepath.Join(shared, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(shared, name), filepath.Join(own, name)); err != nil {
			t.Fatal(err)
		}
	}
	return own
}

func snapshots(t *testing.T, cache string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(cache, "snapshots", "*.guest"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// latestFirst sorts files by their time of modification.
func latestFirst(t *testing.T, files []string) []string {
	t.Helper()
	modified := func(file string) time.Time {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return info.ModTime()
	}
	return slices.SortedFunc(slices.Values(files), func(a, b string) int { return modified(b).Compare(modified(a)) })
}

// A guest from a snapshot, of its first or of its second pause, has the same history as after a boot, with any seed of the snapshot's run.
// A damaged snapshot is detected before the guest runs.
func TestSnapshotChangesNothing(t *testing.T) {
	t.Parallel()
	cache := cacheOfItsOwn(t)
	begin := func(name string, seed int64, cold, fromSnapshot bool) string {
		t.Helper()
		said := false
		result, _, err := toy(t, func(o *run.Options) {
			o.Cache, o.Seed, o.Cold = cache, seed, cold
			o.Progress = progress.Lines(func(line string) {
				t.Log(name+":", line)
				said = said || strings.Contains(line, "restored from a snapshot")
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		if said != fromSnapshot {
			t.Fatalf("%s: the guest was resumed from a snapshot: %t, want %t", name, said, fromSnapshot)
		}
		return result.HistorySha256
	}
	one := begin("cold", 1, true, false)
	if files := snapshots(t, cache); len(files) != 0 {
		t.Fatalf("a cold run left %q", files)
	}
	if got := begin("the run that saves the guest", 1, false, false); got != one {
		t.Errorf("saving the snapshot changed the history: %s, want %s", got, one)
	}
	files := snapshots(t, cache)
	if len(files) != 2 {
		t.Fatalf("%d snapshots were saved, want one of each pause", len(files))
	}
	if got := begin("from the snapshot", 1, false, true); got != one {
		t.Errorf("a guest from a snapshot has another history: %s, want %s", got, one)
	}
	two := begin("another seed from the snapshot", 2, false, true)
	if two == one {
		t.Error("seeds 1 and 2 gave the same history from one snapshot: the seed is not read again")
	}
	if got := begin("another seed, cold", 2, true, false); got != two {
		t.Errorf("seed 2 has another history after a boot: %s, want %s", got, two)
	}
	// Without one of the two snapshots the guest begins at the other one.
	for _, file := range latestFirst(t, files) {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if got := begin("without "+filepath.Base(file), 1, false, true); got != one {
			t.Errorf("without %s the history is %s, want %s", filepath.Base(file), got, one)
		}
	}
	// Only the checksum detects damaged memory; QEMU ends when it cannot read the file.
	for name, damage := range map[string]func(f *os.File, size int64) error{
		"in its middle": func(f *os.File, size int64) error { return flip(f, size/2) },
		"in its head":   func(f *os.File, _ int64) error { return flip(f, 1) },
		"cut off":       func(f *os.File, size int64) error { return f.Truncate(size * 9 / 10) },
	} {
		for _, file := range snapshots(t, cache) {
			harm(t, file, damage)
		}
		if got := begin("with snapshots damaged "+name, 1, false, false); got != one {
			t.Errorf("snapshots damaged %s have changed the history: %s, want %s", name, got, one)
		}
		if files = snapshots(t, cache); len(files) != 2 {
			t.Fatalf("with snapshots damaged %s, %d are there afterwards, want two new ones", name, len(files))
		}
	}
}

// A kernel or an image with one changed bit, or cut off, does not boot: it is made again, and inputs and history are the same.
func TestADamagedCacheChangesNothing(t *testing.T) {
	t.Parallel()
	shared, err := cache.Dir()
	if err != nil {
		t.Fatal(err)
	}
	own := t.TempDir()
	if _, err := os.Stat(filepath.Join(shared, "kernel")); err == nil { // otherwise it is downloaded
		if err := os.CopyFS(filepath.Join(own, "kernel"), os.DirFS(filepath.Join(shared, "kernel"))); err != nil {
			t.Fatal(err)
		}
	}
	begin := func(name string, damages int) *run.Result {
		t.Helper()
		said := 0
		result, _, err := toy(t, func(o *run.Options) {
			o.Cache = own
			o.Progress = progress.Lines(func(line string) {
				t.Log(name+":", line)
				if strings.Contains(line, "is damaged") {
					said++
				}
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		if said != damages {
			t.Errorf("%s: %d reports of damage, want %d", name, said, damages)
		}
		return result
	}
	whole := begin("intact", 0)
	half := func(f *os.File, size int64) error { return f.Truncate(size / 2) }
	middle := func(f *os.File, size int64) error { return flip(f, size/2) }
	for name, damage := range map[string]func(f *os.File, size int64) error{"with a changed bit": middle, "cut off": half} {
		for pattern, count := range map[string]int{"kernel/*/boot/vmlinuz-*": 1, "initramfs/*.cpio": 2} { // what boots, and the other files
			files, err := filepath.Glob(filepath.Join(own, pattern))
			if err != nil || len(files) < count { // there may be other kernels, which this run does not use
				t.Fatalf("%s: %q, %v", pattern, files, err)
			}
			for _, file := range files {
				harm(t, file, damage)
			}
		}
		if got := begin(name, 3); got.InputsSha256 != whole.InputsSha256 || got.HistorySha256 != whole.HistorySha256 {
			t.Errorf("%s: inputs %s and history %s, want %s and %s", name, got.InputsSha256, got.HistorySha256, whole.InputsSha256, whole.HistorySha256)
		}
	}
}

func harm(t *testing.T, file string, damage func(f *os.File, size int64) error) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		err = damage(f, info.Size())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// flip changes one bit of a byte.
func flip(f *os.File, at int64) error {
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		return err
	}
	b[0] ^= 1
	_, err := f.WriteAt(b, at)
	return err
}
