package vm

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"
)

// Who has made a file's checksum already saves the image from reading the file, and gets the same image.
func TestAKnownFileIsAsOneThatIsRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(file, []byte("a program"), 0o755); err != nil {
		t.Fatal(err)
	}
	digest := func(add func(*Image) error) string {
		t.Helper()
		img := NewImage()
		err := add(img)
		if err != nil {
			t.Fatal(err)
		}
		d, err := img.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	known := func(content string) func(*Image) error {
		sum := sha256.Sum256([]byte(content))
		return func(img *Image) error { return img.AddKnown("/program", file, 0o755, hex.EncodeToString(sum[:])) }
	}
	read := digest(func(img *Image) error { img.Add("/program", file, 0o755); return nil })
	if got := digest(known("a program")); got != read {
		t.Errorf("known it is %s, read %s", got, read)
	}
	if got := digest(known("another one")); got == read {
		t.Error("what is known of the file is not in the digest")
	}
	if err := NewImage().AddKnown("/program", file, 0o755, "abc"); err == nil {
		t.Error("a checksum of three letters was taken")
	}
}
