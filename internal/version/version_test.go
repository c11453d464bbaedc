package version

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// program writes a program with a stamp of this text, which is not padded if it is longer than a stamp.
func program(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "program")
	padded := text + strings.Repeat(string(blank), max(0, textBytes-len(text)))
	data := bytes.Join([][]byte{[]byte("\x7fELF code"), append(append(begin(), padded...), end), []byte("data")}, []byte{0})
	if err := os.WriteFile(file, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

// Programs that differ in their version alone have one digest, and one file for guests. Without a version the file is the program itself.
func TestAVersionChangesNoDigest(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	none := program(t, "")
	want, err := sum(none)
	if err != nil {
		t.Fatal(err)
	}
	if same, err := Plain(t.Context(), none, dir); err != nil || same != none {
		t.Errorf("%s, %v; want the program itself", same, err)
	}
	var file string
	for _, text := range []string{"v1.0.0/0123456789ab", "v22.10.0-rc.1+build/ba9876543210"} {
		p := program(t, text)
		if got, err := sum(p); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
		copied, err := Plain(t.Context(), p, dir)
		if err != nil || filepath.Base(copied) != want || file != "" && copied != file {
			t.Errorf("%s: %s, %v", text, copied, err)
		}
		file = copied
		if of, err := ReleaseOf(p); err != nil || of != text {
			t.Errorf("the release is %q, %v; want %q", of, err, text)
		}
		if of, err := ReleaseOf(copied); err != nil || of != "" {
			t.Errorf("the release of the copy is %q, %v; want none", of, err)
		}
		if !bytes.Equal(read(t, copied), read(t, none)) {
			t.Errorf("%s differs from a program without a version", copied)
		}
		if info, err := os.Stat(copied); err != nil || info.Mode().Perm()&0o100 == 0 {
			t.Errorf("%s cannot be run: %v", copied, err)
		}
	}
}

// Any other difference changes the digest, and so does a text that is no stamp.
func TestOtherBytesChangeTheDigest(t *testing.T) {
	seen := map[string]string{}
	for _, text := range []string{"v1.0.0", strings.Repeat("x", textBytes+1), strings.Repeat("y", textBytes+1)} {
		p := program(t, text)
		got, err := sum(p)
		if err != nil || seen[got] != "" {
			t.Errorf("%q has the digest of %q: %v", text, seen[got], err)
		}
		seen[got] = text
	}
	longer := program(t, "v1.0.0")
	if err := os.WriteFile(longer, append(read(t, longer), 'x'), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := sum(longer); err != nil || seen[got] != "" {
		t.Errorf("a longer program has the digest of another: %v", err)
	}
}

// A damaged copy in the cache is made again.
func TestDamagedCopyIsMadeAgain(t *testing.T) {
	dir, p := t.TempDir(), program(t, "v1.0.0")
	first, err := Plain(t.Context(), p, dir)
	if err != nil {
		t.Fatal(err)
	}
	good := read(t, first)
	if err := os.WriteFile(first, []byte("damaged"), 0o755); err != nil {
		t.Fatal(err)
	}
	if entries, err := Entries(dir); err != nil || len(entries) != 1 || entries[0].Check(t.Context(), nil) == nil {
		t.Errorf("the damage is not seen: %+v, %v", entries, err)
	}
	if again, err := Plain(t.Context(), p, dir); err != nil || !bytes.Equal(read(t, again), good) {
		t.Errorf("%s is not what it was: %v", again, err)
	}
	if entries, err := Entries(dir); err != nil || len(entries) != 1 || entries[0].Check(t.Context(), nil) != nil {
		t.Errorf("the repaired copy is damaged: %+v, %v", entries, err)
	}
}

func TestTwoStampsAreRefused(t *testing.T) {
	p := program(t, "v1.0.0")
	data := read(t, p)
	if err := os.WriteFile(p, append(data, data...), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := sum(p); err == nil || !strings.Contains(err.Error(), "two versions") {
		t.Errorf("%v", err)
	}
}

// The version of a stamp has a revision, and the test's own program has no stamp.
func TestString(t *testing.T) {
	if text := String(); !strings.Contains(text, "go1.") {
		t.Errorf("%q names no version of Go", text)
	}
	defer func(was string) { stamp = was }(stamp)
	stamp = string(begin()) + "v1.2.3/abc" + strings.Repeat(string(blank), textBytes-10) + string(end)
	if text := String(); !strings.HasPrefix(text, "v1.2.3 revision abc go1.") {
		t.Errorf("%q", text)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
