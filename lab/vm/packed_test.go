package vm

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/testfiles"
)

func smallImage(t *testing.T) (img *Image, program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("a program"), 0o755); err != nil {
		t.Fatal(err)
	}
	img = NewImage()
	img.Add("/usr/bin/program", program, 0o755)
	return img, program
}

// A damaged image is packed again, and the run says so.
func TestADamagedImageIsPackedAgain(t *testing.T) {
	for name, damage := range testfiles.Damages() {
		t.Run(name, func(t *testing.T) {
			img, _ := smallImage(t)
			dir := t.TempDir()
			var lines []string
			pack := func() Packed {
				t.Helper()
				p, err := img.Pack(t.Context(), dir, func(s string) { lines = append(lines, s) })
				if err != nil {
					t.Fatal(err)
				}
				data, err := os.ReadFile(p.File)
				if sum := sha256.Sum256(data); err != nil || hex.EncodeToString(sum[:]) != p.Sha256 {
					t.Errorf("the image has the digest %x, want %s (%v)", sum, p.Sha256, err)
				}
				return p
			}
			first := pack()
			if second := pack(); second != first || len(lines) != 0 {
				t.Errorf("%+v, then %+v, with the reports %q", first, second, lines)
			}
			damage(t, first.File)
			if again := pack(); again != first {
				t.Errorf("the image packed again is %+v, want %+v", again, first)
			}
			reports := 1
			if name == "deleted" {
				reports = 0 // as if it had never been packed
			}
			if len(lines) != reports || reports > 0 && !strings.Contains(lines[0], first.Sha256) {
				t.Errorf("the reports are %q", lines)
			}
		})
	}
}

// Bytes of a file that differ from its given digest do not get into an image.
func TestAChangedProgramIsNotPacked(t *testing.T) {
	img, program := smallImage(t)
	sum := sha256.Sum256([]byte("a program"))
	if err := img.AddWithSum("/usr/bin/program", program, 0o755, hex.EncodeToString(sum[:])); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := img.Pack(t.Context(), dir, func(string) {}); err != nil {
		t.Fatal(err)
	}
	testfiles.Damages()["one flipped byte"](t, program)
	dir = t.TempDir()
	if p, err := img.Pack(t.Context(), dir, func(string) {}); err == nil || !strings.Contains(err.Error(), program) {
		t.Errorf("%+v, %v", p, err)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*"+imageSuffix)); len(files) != 0 {
		t.Errorf("left are %q", files)
	}
}

// A damaged snapshot fails its verification with both checksums. The red twin is intact.
func TestEachDamageOfASnapshotIsFound(t *testing.T) {
	for name, damage := range testfiles.Damages() {
		dir := t.TempDir()
		file := saveFile(t, dir, "lab-key", "the memory of a guest", 0)
		s := openSnapshot(dir, atSettled, "key")
		if err := s.verify(); err != nil {
			t.Fatal(err)
		}
		s.Close()
		damage(t, file)
		s = openSnapshot(dir, atSettled, "key")
		if s == nil {
			if name != "deleted" {
				t.Errorf("%s: no snapshot", name)
			}
			continue
		}
		if err := s.verify(); err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), fmt.Sprint("crc32c ", snapshotSum(file))) {
			t.Errorf("%s: %v", name, err)
		}
		s.Close()
	}
}

// The image depends on the content of its files alone: not on their folder, owner or time, nor on who packs it.
func TestAnImageIsOfContentAlone(t *testing.T) {
	pack := func(change func(file string) error) string {
		t.Helper()
		img, program := smallImage(t)
		if err := change(program); err != nil {
			t.Fatal(err)
		}
		p, err := img.Pack(t.Context(), t.TempDir(), func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		return p.Sha256
	}
	one := pack(func(string) error { return nil })
	same := pack(func(file string) error {
		_ = os.Chown(file, 1, 1) // only root may
		return errors.Join(os.Chmod(file, 0o700), os.Chtimes(file, time.Unix(1, 0), time.Unix(1, 0)))
	})
	other := pack(func(file string) error { return os.WriteFile(file, []byte("another program"), 0o755) })
	if one != same || one == other {
		t.Errorf("the same content gives %s and %s, another one %s", one, same, other)
	}
}
