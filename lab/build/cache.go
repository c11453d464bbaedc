package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"

	"github.com/hitless/hitless/internal/cache"
)

// recipeVersion is part of the key. It is increased for changes of the build that no other part of the key shows.
const recipeVersion = "1"

// store is the cache on disk.
//
//	index/NAME@VERSION,GOVERSION,RECIPE.json  the entry of a target, so that a cached one needs no module resolution
//	bin/NAME@VERSION-KEY/                     the binary, its go.mod and go.sum, and binary.json
//	released/NAME@VERSION-KEY/                a released binary, and binary.json
//	self/hitless@VERSION/                     hitless for guests, where this machine is of another platform
//	work/                                     files of running builds, and downloads that are not whole
//	lock/                                     one file per version of a root module, and per release
type store struct{ dir string }

// defaultCache is the directory for built binaries: build in the cache directory.
func defaultCache() (string, error) {
	dir, err := cache.Dir()
	return filepath.Join(dir, "build"), err
}

// compileID identifies the settings of compilation other than the Go version.
func compileID() string {
	return digest(recipeVersion, strings.Join(buildEnv(), " "), strings.Join(buildFlags, " "))
}

// recipeID identifies the settings of resolution and compilation of a target other than the Go version. After a change of the pins, targets
// are resolved again, and compiled again where the sources differ.
func recipeID(t Target) string {
	return digest(compileID(), tableOf(t.Name))[:12]
}

// key identifies a cache entry by all inputs of its build.
func key(t Target, p program, goVersion, goMod, goSum string) string {
	return digest(t.String(), strings.Join(p.packages(), " "), goVersion, compileID(), ldflags(p, t.Version), goMod, goSum)[:24]
}

// digest hashes parts and their lengths.
func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d\n%s\n", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (s store) indexFile(t Target, goVersion string) string {
	return filepath.Join(s.dir, "index", fmt.Sprintf("%s,%s,%s.json", t, goVersion, recipeID(t)))
}

// indexed is the content of a file of the index.
type indexed struct {
	Entry string // directory below bin
}

// find returns the intact entry of a target. Without a Go version, as without a go command, it returns that of the newest one. The
// error of a missing entry is errMissing, that of a damaged one a *cache.Damage.
func (s store) find(ctx context.Context, t Target, goVersion string) (Binary, error) {
	files := []string{s.indexFile(t, goVersion)}
	if goVersion == "" {
		files, _ = filepath.Glob(s.indexFile(t, "*")) // a pattern made of names and versions is never malformed
		slices.SortFunc(files, func(a, b string) int { return -compareGo(goVersionOf(a), goVersionOf(b)) })
	}
	missing := errMissing
	for _, f := range files {
		name, err := entryOf(f)
		if err == nil {
			var b Binary
			if b, err = s.entry(ctx, name, t); err == nil {
				return b, nil
			}
		}
		if !errors.Is(err, fs.ErrNotExist) {
			missing = err
		}
	}
	return Binary{}, missing
}

var errMissing = errors.New("the program is not in the cache")

// entryOf reads a file of the index.
func entryOf(file string) (string, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	var at indexed
	if err != nil || json.Unmarshal(text, &at) != nil || at.Entry == "" || at.Entry != filepath.Base(at.Entry) {
		return "", &cache.Damage{Entry: file, File: cache.Itself, Expected: "the name of an entry", Found: fmt.Sprintf("%.80q", text)}
	}
	return at.Entry, nil
}

// goVersionOf is the Go version in the name of an index file.
func goVersionOf(file string) string {
	parts := strings.Split(filepath.Base(file), ",")
	if len(parts) != 3 {
		return ""
	}
	return parts[1]
}

// entry verifies the entry of a built program.
func (s store) entry(ctx context.Context, name string, t Target) (Binary, error) {
	return s.entryIn(ctx, filepath.Join(s.dir, "bin"), name, t)
}

// entryIn verifies a cache entry. The error of a missing one wraps fs.ErrNotExist, that of a damaged one is a *cache.Damage.
func (s store) entryIn(ctx context.Context, parent, name string, t Target) (Binary, error) {
	dir := filepath.Join(parent, name)
	b, err := readEntry(dir)
	if err != nil {
		return Binary{}, err
	}
	if b.Target != t {
		return Binary{}, otherTarget(dir, t, b)
	}
	b.Path = filepath.Join(dir, t.Name)
	return b, cache.Check(ctx, dir, b.manifest())
}

func otherTarget(dir string, t Target, found Binary) error {
	return &cache.Damage{Entry: dir, File: binaryFile, Expected: t.String(), Found: found.Target.String()}
}

// manifest has the digest of the program. The other files of an entry are for people.
func (b Binary) manifest() cache.Manifest { return cache.Manifest{b.Target.Name: b.Sha256} }

// binaryFile is the file of an entry with its Binary.
const binaryFile = "binary.json"

// readEntry reads the description of an entry.
func readEntry(dir string) (Binary, error) {
	if _, err := os.Lstat(dir); err != nil {
		return Binary{}, err
	}
	text, err := os.ReadFile(filepath.Join(dir, binaryFile))
	var b Binary
	if err == nil {
		err = json.Unmarshal(text, &b)
	}
	if err != nil {
		return Binary{}, &cache.Damage{Entry: dir, File: binaryFile, Expected: "the description of a program", Found: err.Error()}
	}
	return b, nil
}

// entryName is the directory of a target's entry below bin.
func entryName(t Target, key string) string { return t.String() + "-" + key }

// writeIndex writes the index of a target.
func (s store) writeIndex(t Target, goVersion, entry string) error {
	text, err := json.Marshal(indexed{Entry: entry})
	if err != nil {
		return fmt.Errorf("noting %s in the cache: %w", t, err)
	}
	file := s.indexFile(t, goVersion)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("noting %s in the cache: %w", t, err)
	}
	if err := cache.Clear(file); err != nil {
		return fmt.Errorf("noting %s in the cache: %w", t, err)
	}
	return cache.WriteFile(file, text)
}

// publish moves a built binary into the cache in one step, with its go.mod and go.sum. The caller holds the lock.
func (s store) publish(b Binary, key, goMod, goSum string) (Binary, error) {
	entry := filepath.Join(s.dir, "bin", entryName(b.Target, key))
	sum, err := cache.Sha256(context.Background(), b.Path)
	if err != nil {
		return Binary{}, fmt.Errorf("reading what was built: %w", err)
	}
	built := b.Path
	b.Sha256, b.Path = sum, filepath.Join(entry, b.Target.Name)
	fresh, err := fillEntry(b, built, goMod, goSum)
	if err == nil {
		err = cache.ReplaceDir(fresh, entry)
	}
	if err != nil {
		return Binary{}, fmt.Errorf("putting %s into the cache: %w", b.Target, err)
	}
	return b, nil
}

// fillEntry makes a complete cache entry in the directory of a built binary, and moves the binary into it.
func fillEntry(b Binary, built, goMod, goSum string) (string, error) {
	dir := filepath.Join(filepath.Dir(built), entryName(b.Target, "entry"))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	if err := cache.Replace(built, filepath.Join(dir, b.Target.Name)); err != nil {
		return "", err
	}
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return "", err
	}
	for name, content := range map[string]string{"go.mod": goMod, "go.sum": goSum, binaryFile: string(text) + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// lockName is a file name for a version of a root module.
func lockName(m module.Version) string {
	return strings.ReplaceAll(m.Path, "/", "_") + "@" + m.Version
}

// lock takes the lock of a root module's version. While another process has it, waiting is called once.
func (s store) lock(ctx context.Context, m module.Version, waiting func()) (*cache.Lock, error) {
	return s.lockNamed(ctx, lockName(m), waiting)
}

func (s store) lockNamed(ctx context.Context, name string, waiting func()) (*cache.Lock, error) {
	lock, err := cache.Acquire(ctx, filepath.Join(s.dir, "lock", name), waiting)
	if err != nil {
		return nil, fmt.Errorf("locking the cache of programs: %w", err)
	}
	return lock, nil
}

// workspace makes an empty directory for a build, and removes the files of killed builds of the module. The caller holds the lock.
func (s store) workspace(m module.Version) (dir string, remove func() error, err error) {
	parent := filepath.Join(s.dir, "work", lockName(m))
	fail := func(err error) (string, func() error, error) {
		return "", nil, fmt.Errorf("making a directory to build in: %w", err)
	}
	if err := os.RemoveAll(parent); err != nil {
		return fail(err)
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return fail(err)
	}
	dir, err = os.MkdirTemp(parent, "") // a new name, so that a go command that outlived its builder cannot write here
	if err != nil {
		return fail(err)
	}
	for _, sub := range []string{"download", "module", "out", "tmp"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			return fail(err)
		}
	}
	return dir, func() error { return os.RemoveAll(parent) }, nil
}

// CachedAll returns the intact cached versions of a program, oldest first. An unknown program and an empty cache have none.
func (b *Builder) CachedAll(ctx context.Context, name string) ([]Target, error) {
	s, err := b.store()
	if err != nil {
		return nil, err
	}
	info, err := b.toolchain().describe(ctx)
	if err != nil && !errors.Is(err, errNoGo) {
		return nil, err
	}
	files, _ := filepath.Glob(s.indexFile(Target{Name: name, Version: "*"}, "*")) // names have no character of a pattern
	var all []Target
	for _, file := range files {
		head, _, _ := strings.Cut(filepath.Base(file), ",")
		t, err := ParseTarget(head)
		if err != nil || slices.Contains(all, t) {
			continue
		}
		if _, err := s.find(ctx, t, info.Version); err == nil {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(x, y Target) int { return semver.Compare(x.Version, y.Version) })
	return all, nil
}
