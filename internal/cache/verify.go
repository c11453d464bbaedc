package cache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"syscall"
)

// Manifest has the SHA-256 (in hex) of the files of an entry by their names in it, with slashes. Files that it does not name are
// not part of the entry.
type Manifest map[string]string

// Itself is the name of an entry that is a single file, in its own manifest.
const Itself = "."

// Damage is the error of an entry whose content is not the one that was written.
type Damage struct {
	Entry    string // path
	File     string // name in the entry
	Expected string // such as sha256 0123…
	Found    string // the same, or what is there instead, such as a directory
}

// Error names the file, and what was expected and found.
func (d *Damage) Error() string {
	return fmt.Sprintf("the cache entry %s is damaged: found %s, expected %s", filepath.Join(d.Entry, d.File), d.Found, d.Expected)
}

// UnsealedError is the error of an entry without digests, as older programs wrote them.
type UnsealedError struct{ Entry string }

// Error names the entry.
func (u *UnsealedError) Error() string {
	return fmt.Sprintf("the cache entry %s has no digests, because an older program wrote it", u.Entry)
}

// Check compares an entry with its manifest. It reads the files whose stamps differ from those of the last check. The error of a
// difference is a *Damage; that of a missing entry wraps fs.ErrNotExist.
func Check(ctx context.Context, entry string, m Manifest) error {
	return checkAt(ctx, entry, m, time.Now())
}

func checkAt(ctx context.Context, entry string, m Manifest, now time.Time) error {
	known := readStamps(entry)
	known.now = now
	return check(ctx, entry, m, &known, nil)
}

// CheckAll is Check, and reads every file whatever its stamp. It calls read, which may be nil, with the number of bytes of each piece.
func CheckAll(ctx context.Context, entry string, m Manifest, read func(n int)) error {
	return check(ctx, entry, m, &stamps{}, read)
}

func check(ctx context.Context, entry string, m Manifest, known *stamps, read func(int)) error {
	if _, err := os.Lstat(entry); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		found, err := known.sum(ctx, filepath.Join(entry, filepath.FromSlash(name)), name, m[name], read)
		if err != nil {
			return err
		}
		if found != "sha256 "+m[name] {
			return &Damage{entry, name, "sha256 " + m[name], found}
		}
	}
	known.write(entry)
	return nil
}

// manifestName is the file in a sealed directory with its manifest.
const manifestName = "manifest.json"

// sealed is the content of a manifest's file. Sum is the digest of Files: one changed letter could hide a file.
type sealed struct {
	Files Manifest `json:"files"`
	Sum   string   `json:"sum"`
}

// Digest is the SHA-256 of all names and digests.
func (m Manifest) Digest() string {
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(sum, "%q %s\n", name, m[name])
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// Seal writes the manifest of all regular files of a complete directory into it, before the directory gets its final name.
func Seal(ctx context.Context, dir string) error {
	m := Manifest{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err == nil {
			m[filepath.ToSlash(name)], err = Sha256(ctx, path)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("computing the digests of %s: %w", dir, err)
	}
	text, err := json.MarshalIndent(sealed{m, m.Digest()}, "", " ")
	if err != nil {
		return err
	}
	return WriteFile(filepath.Join(dir, manifestName), append(text, '\n'))
}

// ReadManifest reads the manifest of a sealed directory. The error is an *UnsealedError without one, a *Damage for a damaged one,
// and wraps fs.ErrNotExist without the directory.
func ReadManifest(dir string) (Manifest, error) {
	if _, err := os.Lstat(dir); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &UnsealedError{dir}
	}
	if err != nil {
		return nil, &Damage{dir, manifestName, "a list of digests", err.Error()}
	}
	return parseManifest(dir, text)
}

func parseManifest(dir string, text []byte) (Manifest, error) {
	var s sealed
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, &Damage{dir, manifestName, "a list of digests", err.Error()}
	}
	if sum := s.Files.Digest(); sum != s.Sum {
		return nil, &Damage{dir, manifestName, "the sum " + s.Sum, sum}
	}
	return s.Files, nil
}

// Sha256 returns the SHA-256 of a file's content in hex.
func Sha256(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	err = copyTo(ctx, sum, f, nil)
	return hex.EncodeToString(sum.Sum(nil)), errors.Join(err, f.Close())
}

// copyTo copies until the end or the end of ctx, and calls read for each piece.
func copyTo(ctx context.Context, w io.Writer, r io.Reader, read func(int)) error {
	piece := make([]byte, 64<<10)
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, err := r.Read(piece)
		if _, failed := w.Write(piece[:n]); failed != nil {
			return failed
		}
		if read != nil {
			read(n)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// Source is an entry and the way to make it.
type Source[T any] struct {
	Lock   string            // file that processes lock while they make the entry
	Open   func() (T, error) // verifies the entry; the error of a missing one wraps fs.ErrNotExist
	Make   func() (T, error) // makes the entry, in the place of a damaged one
	Report func(line string) // gets a line about damage and about waiting
}

// Verified returns an entry that is intact. It makes one that is missing or damaged; of several processes one does so. It reports
// damage, and the error of making a damaged entry again has the damage too.
func Verified[T any](ctx context.Context, s Source[T]) (T, error) {
	got, damage := s.Open()
	if damage == nil {
		return got, nil
	}
	lock, err := Acquire(ctx, s.Lock, func() { s.Report("waiting for another process that writes into " + filepath.Dir(s.Lock)) })
	if errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w; set HITLESS_CACHE to a directory that can be written", err)
	}
	if err != nil {
		return got, again(damage, err)
	}
	defer lock.Close()
	if got, damage = s.Open(); damage == nil { // another process has made it
		return got, nil
	}
	if ctx.Err() != nil {
		return got, context.Cause(ctx)
	}
	if !errors.Is(damage, fs.ErrNotExist) {
		s.Report(damage.Error() + "; it is made again")
	}
	got, err = s.Make()
	return got, again(damage, err)
}

// again adds the damage of an entry to the error of making it again.
func again(damage, err error) error {
	if err == nil || errors.Is(damage, fs.ErrNotExist) {
		return err
	}
	return fmt.Errorf("%w; making it again: %w", damage, err)
}
