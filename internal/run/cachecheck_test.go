package run

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/testfiles"
)

// put writes a file below a cache that looks an hour old.
func put(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	old := time.Now().Add(-time.Hour)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err = errors.Join(err, os.WriteFile(path, []byte(text), 0o644), os.Chtimes(path, old, old), os.Chtimes(filepath.Dir(path), old, old)); err != nil {
		t.Fatal(err)
	}
	return path
}

func hexSum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

const (
	kernelEntry   = "kernel/linux-image-6.1.0_6.1.1"
	snapshotEntry = "snapshots/lab-0a1b-c2a28270.guest" // crc32c of "memory"
	setEntry      = "tools/set-0a1b2c"
	programEntry  = "build/bin/kube-proxy@v1.37.1-0123456789ab"
	indexEntry    = "build/index/kube-proxy@v1.37.1,go1.26.8,0a0b.json"
)

// wholeCache makes a cache with one intact entry of each kind, and returns a file of each entry by the entry's name.
func wholeCache(t *testing.T) (dir string, files map[string]string) {
	t.Helper()
	dir = t.TempDir()
	image := "initramfs/lab-0a1b-" + hexSum("packed files") + ".cpio"
	packaged := "tools/packages/tool_1_amd64-" + hexSum("a package") + ".deb"
	files = map[string]string{
		setEntry: put(t, dir, setEntry+"/usr/sbin/nft", "a tool"), packaged: put(t, dir, packaged, "a package"),
		kernelEntry: put(t, dir, kernelEntry+"/boot/vmlinuz-6.1.0", "a kernel"), image: put(t, dir, image, "packed files"),
		snapshotEntry: put(t, dir, snapshotEntry, "memory"), programEntry: put(t, dir, programEntry+"/kube-proxy", "a program"),
		indexEntry: put(t, dir, indexEntry, `{"Entry": "`+filepath.Base(programEntry)+`"}`),
	}
	put(t, dir, programEntry+"/binary.json", `{"Target": {"Name": "kube-proxy", "Version": "v1.37.1"}, "Sha256": "`+hexSum("a program")+`"}`)
	for _, entry := range []string{kernelEntry, setEntry} {
		if err := cache.Seal(t.Context(), filepath.Join(dir, entry)); err != nil {
			t.Fatal(err)
		}
	}
	return dir, files
}

// states checks a cache and returns the states of its entries.
func states(t *testing.T, dir string, repair bool) (damaged int, found map[string]CheckedEntry) {
	t.Helper()
	found = map[string]CheckedEntry{}
	damaged, err := CacheCheck{Dir: dir, Repair: repair, Entry: func(e CheckedEntry) { found[e.Name] = e }, Progress: func(int64, int64) {}}.CheckCache(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return damaged, found
}

// Each damage of each kind of entry is found; a repair removes that entry and no other. The red twin is the intact cache.
func TestCacheCheckFindsEachDamage(t *testing.T) {
	_, kinds := wholeCache(t)
	for entry := range kinds {
		for name, damage := range testfiles.Damages() {
			if entry == indexEntry && name == "one flipped byte" || filepath.Dir(entry) != "build/bin" && filepath.Dir(entry) != "kernel" && entry != setEntry && name == "deleted" {
				continue // an index file has no digest; an entry of one file that is deleted is no entry
			}
			t.Run(entry+" "+name, func(t *testing.T) {
				dir, files := wholeCache(t)
				if damaged, found := states(t, dir, false); damaged != 0 || len(found) != len(files) {
					t.Fatalf("of an intact cache %d are damaged: %+v", damaged, found)
				}
				damage(t, files[entry])
				damaged, found := states(t, dir, false)
				if e := found[entry]; damaged != 1 || e.State != cache.Damaged || !strings.Contains(e.Why, entry) {
					t.Errorf("%d are damaged: %+v", damaged, found)
				}
				if damaged, found = states(t, dir, true); damaged != 0 || !found[entry].Removed {
					t.Errorf("after the repair %d are damaged: %+v", damaged, found)
				}
				if damaged, found = states(t, dir, true); damaged != 0 || len(found) > len(files)-1 {
					t.Errorf("after a second repair %d are damaged: %+v", damaged, found)
				}
				for other, file := range files {
					if _, err := os.Stat(file); other != entry && err != nil && !(entry == programEntry && other == indexEntry) {
						t.Errorf("the repair has removed %s", other)
					}
				}
			})
		}
	}
}

// Remnants of killed processes and older programs are left over. Foreign files are unknown, and files being written are in use.
func TestCacheCheckTellsWhatIsLeftOver(t *testing.T) {
	dir, files := wholeCache(t)
	want := map[string]cache.State{
		"kernel/linux-image-5.10_1": cache.LeftOver, "kernel/unpack-123": cache.LeftOver, "initramfs/lab-0a1b2c.cpio": cache.LeftOver,
		"snapshots/.new-1": cache.LeftOver, "snapshots/.new-2": cache.InUse, "build/work/etcd@v1": cache.LeftOver, "build/work/etcd@v2": cache.InUse,
		"notes.txt": cache.Unknown, "initramfs/notes.txt": cache.Unknown, "other": cache.Unknown, "tools/notes.txt": cache.Unknown, "tools/packages/notes.txt": cache.Unknown, "tools/unpack-1": cache.LeftOver,
	}
	for _, name := range []string{"kernel/linux-image-5.10_1/boot/vmlinuz", "kernel/unpack-123/x.deb", "initramfs/lab-0a1b2c.cpio", "snapshots/.new-1", "snapshots/.new-2",
		"build/work/etcd@v1/x", "build/work/etcd@v2/x", "notes.txt", "initramfs/notes.txt", "other/x", "tools/notes.txt", "tools/packages/notes.txt", "tools/unpack-1/x", "build/lock/etcd@v1", "build/lock/etcd@v2"} {
		put(t, dir, name, "text")
	}
	held, err := cache.Hold(filepath.Join(dir, "snapshots/.new-2"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	lock, err := cache.TryLock(filepath.Join(dir, "build/lock/etcd@v2"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	for _, repair := range []bool{false, true} {
		damaged, found := states(t, dir, repair)
		for name, state := range want {
			e := found[name]
			if e.State != state || e.Removed != (repair && state == cache.LeftOver) {
				t.Errorf("%s is %+v, want %s", name, e, state)
			}
			if _, err := os.Stat(filepath.Join(dir, name)); os.IsNotExist(err) != e.Removed {
				t.Errorf("%s: %v", name, err)
			}
		}
		if damaged != 0 || len(found) != len(want)+len(files) {
			t.Errorf("%d are damaged: %+v", damaged, found)
		}
	}
}

func TestCacheCheckEndsWithTheContext(t *testing.T) {
	dir, _ := wholeCache(t)
	ctx, cancel := context.WithCancel(t.Context())
	seen := 0
	_, err := CacheCheck{Dir: dir, Entry: func(CheckedEntry) { seen++ }, Progress: func(int64, int64) { cancel() }}.CheckCache(ctx)
	if !errors.Is(err, context.Canceled) || seen > 1 {
		t.Errorf("%v after %d entries", err, seen)
	}
	if damaged, err := (CacheCheck{Dir: filepath.Join(dir, "none")}).CheckCache(t.Context()); damaged != 0 || err != nil {
		t.Errorf("a cache that does not exist: %d, %v", damaged, err)
	}
}
