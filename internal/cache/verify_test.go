package cache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/testfiles"
)

// later is a time from which the ctime of files that a test wrote is old enough for stamps.
func later() time.Time { return time.Now().Add(time.Hour) }

// sealedEntry makes a directory with two files as an entry.
func sealedEntry(t *testing.T) (dir string, m Manifest) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "entry")
	fillEntry(t, dir)
	m, err := ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, m
}

func fillEntry(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "boot"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"boot/kernel", "notes"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("the content of "+name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := Seal(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
}

func TestCheckFindsEachDamage(t *testing.T) {
	for name, damage := range testfiles.Damages() {
		t.Run(name, func(t *testing.T) {
			dir, m := sealedEntry(t)
			for range 2 { // without and with stamps
				if err := checkAt(t.Context(), dir, m, later()); err != nil {
					t.Fatal(err)
				}
			}
			damage(t, filepath.Join(dir, "boot", "kernel"))
			for what, err := range map[string]error{"Check": Check(t.Context(), dir, m), "CheckAll": CheckAll(t.Context(), dir, m, nil)} {
				var found *Damage
				if !errors.As(err, &found) {
					t.Fatalf("%s: %v", what, err)
				}
				for _, part := range []string{filepath.Join(dir, "boot", "kernel"), m["boot/kernel"], found.Found} {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%s: the error does not name %q: %v", what, part, err)
					}
				}
			}
		})
	}
}

// A damaged manifest never hides a file, and a missing one is told from a missing entry.
func TestADamagedManifestIsFound(t *testing.T) {
	for name, damage := range testfiles.Damages() {
		dir, _ := sealedEntry(t)
		damage(t, filepath.Join(dir, manifestName))
		_, err := ReadManifest(dir)
		if wantUnsealed := name == "deleted"; errors.As(err, new(*UnsealedError)) != wantUnsealed || errors.As(err, new(*Damage)) == wantUnsealed {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ReadManifest(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing entry: %v", err)
	}
	dir, want := sealedEntry(t)
	text, err := os.ReadFile(filepath.Join(dir, manifestName))
	if err != nil {
		t.Fatal(err)
	}
	for i := range text {
		changed := slices.Clone(text)
		changed[i] ^= 1
		if m, err := parseManifest(dir, changed); err == nil && !maps.Equal(m, want) {
			t.Errorf("byte %d changed: the manifest is %v", i, m)
		}
	}
}

// A file whose stamp is known is not read again. Its stamp is known once its ctime is so old that each change gives another one.
func TestStamps(t *testing.T) {
	dir, m := sealedEntry(t)
	reads := func(now time.Time) (n int) {
		t.Helper()
		known := readStamps(dir)
		known.now = now
		if err := check(t.Context(), dir, m, &known, func(int) { n++ }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for i, step := range []struct {
		now  time.Time
		read bool
	}{{time.Now(), true}, {time.Now(), true}, {later(), true}, {later(), false}, {time.Now(), false}} {
		if got := reads(step.now) > 0; got != step.read {
			t.Errorf("check %d has read files: %t", i, got)
		}
	}
	for name, damage := range testfiles.Damages() {
		if reads(later()) != 0 {
			t.Errorf("before %s: files are read", name)
		}
		damage(t, stampsFile(dir))
		if reads(later()) == 0 {
			t.Errorf("stamps that are damaged (%s) were used", name)
		}
		if err := os.RemoveAll(stampsFile(dir)); err != nil {
			t.Fatal(err)
		}
		reads(later())
	}
}

// A program that restores size and mtime in the same inode cannot restore the ctime. The red twin: without ctime the stamps are equal.
func TestARestoredMtimeDoesNotHideAChange(t *testing.T) {
	dir, m := sealedEntry(t)
	file := filepath.Join(dir, "boot", "kernel")
	if err := checkAt(t.Context(), dir, m, later()); err != nil {
		t.Fatal(err)
	}
	before := readStamps(dir).Files["boot/kernel"].Stamp
	testfiles.Damages()["one flipped byte"](t, file)
	if err := os.Chtimes(file, time.Unix(0, before.Mtime), time.Unix(0, before.Mtime)); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	after := stampOf(info)
	if after.Ctime = before.Ctime; after != before {
		t.Fatalf("more than the ctime differs: %+v, %+v", before, after)
	}
	if err := Check(t.Context(), dir, m); !errors.As(err, new(*Damage)) {
		t.Errorf("the change was not found: %v", err)
	}
}

// source is a sealed directory that a test makes, and counts how often.
func source(t *testing.T, dir string, verify bool) (s Source[string], made *atomic.Int32, lines *[]string) {
	made, lines = new(atomic.Int32), new([]string)
	var mu sync.Mutex
	s = Source[string]{
		Lock: filepath.Join(filepath.Dir(dir), "lock"),
		Open: func() (string, error) {
			m, err := ReadManifest(dir)
			if err == nil && verify {
				err = Check(t.Context(), dir, m)
			}
			if err != nil {
				return "", err
			}
			text, err := os.ReadFile(filepath.Join(dir, "boot", "kernel"))
			return string(text), err
		},
		Report: func(line string) { mu.Lock(); defer mu.Unlock(); *lines = append(*lines, line) },
	}
	s.Make = func() (string, error) {
		made.Add(1)
		fresh := dir + ".fresh"
		fillEntry(t, fresh)
		if err := ReplaceDir(fresh, dir); err != nil {
			return "", err
		}
		return s.Open()
	}
	return s, made, lines
}

// Every damage is reported once and repaired. The red twin without verification uses the flipped byte.
func TestVerifiedMakesDamagedEntriesAgain(t *testing.T) {
	const intact = "the content of boot/kernel"
	for name, damage := range testfiles.Damages() {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "entry")
			s, made, lines := source(t, dir, true)
			use := func(makes int32, reports int) {
				t.Helper()
				got, err := Verified(t.Context(), s)
				if err != nil || got != intact || made.Load() != makes || len(*lines) != reports {
					t.Errorf("%q, %v after %d makes and the reports %q", got, err, made.Load(), *lines)
				}
			}
			use(1, 0)
			use(1, 0)
			damage(t, filepath.Join(dir, "boot", "kernel"))
			if name == "one flipped byte" {
				blind, _, _ := source(t, dir, false)
				if got, err := Verified(t.Context(), blind); err != nil || got == intact {
					t.Errorf("without verification: %q, %v", got, err)
				}
			}
			use(2, 1)
			use(2, 1)
			if left := names(t, filepath.Dir(dir)); slices.Contains(left, "entry.fresh") {
				t.Errorf("left are %q", left)
			}
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(dir, []byte("no directory"), 0o644); err != nil {
				t.Fatal(err)
			}
			use(3, 2)
		})
	}
}

// Several processes find the same damage: one of them makes the entry again.
func TestVerifiedMakesOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "entry")
	s, made, _ := source(t, dir, true)
	if _, err := Verified(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	testfiles.Damages()["truncated"](t, filepath.Join(dir, "notes"))
	var users sync.WaitGroup
	for range 4 {
		users.Go(func() {
			if got, err := Verified(t.Context(), s); err != nil || got == "" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	users.Wait()
	if made.Load() != 2 {
		t.Errorf("the entry was made %d times", made.Load())
	}
}

// A damaged entry that cannot be made again is not used. The error names it and its damage.
func TestVerifiedNamesWhatItCannotMake(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "entry")
	s, _, _ := source(t, dir, true)
	if _, err := Verified(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	testfiles.Damages()["empty"](t, filepath.Join(dir, "notes"))
	offline := errors.New("no network")
	s.Make = func() (string, error) { return "", offline }
	_, err := Verified(t.Context(), s)
	if !errors.Is(err, offline) || !errors.As(err, new(*Damage)) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := CheckAll(ctx, dir, Manifest{"notes": ""}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
}

// A warm check is that of a kernel: a thousand files whose stamps are known.
func BenchmarkCheckWarm(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "entry")
	if err := os.Mkdir(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	for i := range 1144 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("module-%04d.ko", i)), []byte("a module"), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	if err := Seal(b.Context(), dir); err != nil {
		b.Fatal(err)
	}
	check := func() {
		m, err := ReadManifest(dir)
		if err == nil {
			err = checkAt(b.Context(), dir, m, later())
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	check()
	for b.Loop() {
		check()
	}
}
