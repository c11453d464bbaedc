package vm

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"
)

// A file with a given checksum is not read, and gives the same image digest.
func TestAGivenChecksumReplacesReadingTheFile(t *testing.T) {
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
	withSum := func(content string) func(*Image) error {
		sum := sha256.Sum256([]byte(content))
		return func(img *Image) error { return img.AddWithSum("/program", file, 0o755, hex.EncodeToString(sum[:])) }
	}
	readDigest := digest(func(img *Image) error { img.Add("/program", file, 0o755); return nil })
	if got := digest(withSum("a program")); got != readDigest {
		t.Errorf("the digest with a given checksum is %s, with the file read %s", got, readDigest)
	}
	if got := digest(withSum("another one")); got == readDigest {
		t.Error("the given checksum does not change the digest")
	}
	if err := NewImage().AddWithSum("/program", file, 0o755, "abc"); err == nil {
		t.Error("a checksum of three letters was accepted")
	}
}
