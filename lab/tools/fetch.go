package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/lab/debian"
)

// Directories and names in the directory of tools.
const (
	packagesDir    = "packages"
	listsDir       = "lists"
	unpackPrefix   = "unpack-"
	replacedPrefix = "replaced-"
)

// Suite is the name of the release of Debian whose packages are pinned.
const Suite = "debian-12"

func suite() debian.Suite {
	i := slices.IndexFunc(debian.Suites, func(s debian.Suite) bool { return s.Name == Suite })
	return debian.Suites[i]
}

// Fetch returns the tools of the pinned packages of a purpose. It downloads those that are not in the cache, and needs no privileges. A
// package that the mirror does not have any more is replaced by the one of the same release that it has; Set names it. dir is the directory
// of tools in the cache.
func Fetch(ctx context.Context, dir string, p Purpose, report func(string)) (Set, error) {
	l, err := p.pins()
	if err != nil {
		return Set{}, err
	}
	return fetch(ctx, l, dir, report)
}

// Cached returns the tools if they are in the cache, and whether they are. It changes nothing.
func Cached(ctx context.Context, dir string) (Set, bool) {
	l, err := parseList(pinned)
	if err != nil {
		return Set{}, false
	}
	s, err := openSet(ctx, dir, current(l, dir), l)
	return s, err == nil
}

// current is the list with the packages that replace those which were gone at an earlier download. A damaged file of them is written again
// with the next download.
func current(pins list, dir string) list {
	if l, err := readReplaced(filepath.Join(dir, replacedPrefix+pins.digest())); err == nil {
		return l
	}
	return pins
}

// replaced is the content of the file with a list of which packages were replaced. Digest is that of the list.
type replaced struct {
	Packages list   `json:"packages"`
	Digest   string `json:"digest"`
}

// readReplaced reads the file. The error of a damaged one is a *cache.Damage.
func readReplaced(file string) (list, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var r replaced
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, &cache.Damage{Entry: file, Expected: "a list of packages", Found: err.Error()}
	}
	if found := r.Packages.digest(); found != r.Digest {
		return nil, &cache.Damage{Entry: file, Expected: "the digest " + r.Digest, Found: found}
	}
	return r.Packages, nil
}

func fetch(ctx context.Context, pins list, dir string, report func(string)) (Set, error) {
	f := fetcher{dir: dir, report: report}
	set, err := cache.Verified(ctx, cache.Source[Set]{
		Lock: filepath.Join(dir, cache.LockName), Report: report,
		Open: func() (Set, error) { return openSet(ctx, dir, current(pins, dir), pins) },
		Make: func() (Set, error) {
			l, err := f.packages(ctx, pins)
			if err == nil {
				err = f.install(ctx, l)
			}
			if err != nil {
				return Set{}, err
			}
			return openSet(ctx, dir, l, pins)
		},
	})
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("getting the guest's tools: %w", err)
	}
	return set, err
}

// fetcher downloads and unpacks packages. The caller has the lock.
type fetcher struct {
	dir    string
	mirror debian.Mirror
	report func(string)
}

func (f *fetcher) file(p Package) string { return filepath.Join(f.dir, packagesDir, p.file()) }

// packages downloads what is not in the cache, and returns the list with what replaces packages that are gone.
func (f *fetcher) packages(ctx context.Context, pins list) (list, error) {
	l := current(pins, f.dir)
	gone, err := f.download(ctx, l)
	if err != nil || len(gone) == 0 {
		return l, err
	}
	if l, err = f.replace(ctx, l, gone); err != nil {
		return nil, err
	}
	if gone, err = f.download(ctx, l); err == nil && len(gone) > 0 {
		err = fmt.Errorf("the mirror names %s in its lists and does not have it; it may be changing just now: try it again later, or name another mirror in %s",
			gone[0], debian.MirrorVariable)
	}
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(replaced{l, l.digest()}, "", " ")
	if err != nil {
		return nil, err
	}
	return l, cache.WriteFile(filepath.Join(f.dir, replacedPrefix+pins.digest()), append(text, '\n'))
}

// download downloads the packages that are not in the cache, and returns those that the mirror does not have.
func (f *fetcher) download(ctx context.Context, l list) (gone []Package, err error) {
	lacking, err := f.lacking(ctx, l)
	if err != nil || len(lacking) == 0 {
		return nil, err
	}
	address, err := f.mirror.Find(ctx)
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("%d packages", len(lacking))
	if len(lacking) == 1 {
		what = lacking[0].String()
	}
	f.report(fmt.Sprintf("downloading %s of %s with the guest's tools from %s", what, Suite, address))
	dir := filepath.Join(f.dir, packagesDir)
	var mutex sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for _, p := range lacking {
		group.Go(func() error {
			err := f.mirror.Fetch(ctx, debian.File{Path: p.Path, Sha256: p.Sha256}, dir, p.file())
			if errors.Is(err, debian.ErrGone) {
				mutex.Lock()
				defer mutex.Unlock()
				gone, err = append(gone, p), nil
			}
			return err
		})
	}
	err = group.Wait()
	slices.SortFunc(gone, func(a, b Package) int { return strings.Compare(a.Name, b.Name) })
	return gone, err
}

// lacking are the packages that are not in the cache. It reports damaged ones.
func (f *fetcher) lacking(ctx context.Context, l list) (lacking []Package, err error) {
	for _, p := range l {
		file := f.file(p)
		err := cache.Check(ctx, file, cache.Manifest{cache.Itself: p.Sha256})
		switch {
		case err == nil:
			continue
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !errors.Is(err, fs.ErrNotExist):
			f.report(err.Error() + "; it is downloaded again")
		}
		lacking = append(lacking, p)
	}
	return lacking, nil
}

// replace returns the list with the packages that the lists of the release name now.
func (f *fetcher) replace(ctx context.Context, l list, gone []Package) (list, error) {
	advice := "name a mirror that keeps it in " + debian.MirrorVariable + ", or use a newer hitless"
	lists, err := suite().ReleaseLists(ctx, filepath.Join(f.dir, listsDir), f.report)
	if err != nil {
		return nil, fmt.Errorf("the mirror does not have the package %s any more, and which one replaces it is not known: %w; %s", gone[0], err, advice)
	}
	l = slices.Clone(l)
	for _, old := range gone {
		text, err := lists.Show(ctx, old.Name)
		var p Package
		if err == nil {
			p, err = listed(text)
		}
		if err != nil {
			return nil, fmt.Errorf("the mirror does not have the package %s any more, and %s has no other one: %w; %s", old, Suite, err, advice)
		}
		f.report(fmt.Sprintf("the mirror does not have %s any more: %s is used, and is an input of the run", old, p))
		l[slices.Index(l, old)] = p
	}
	return l, nil
}

// install unpacks the packages into their set.
func (f *fetcher) install(ctx context.Context, l list) error {
	work, err := os.MkdirTemp(f.dir, unpackPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	f.report("unpacking the guest's tools")
	t := newTree(filepath.Join(work, "root"))
	for _, p := range l {
		if err := t.add(ctx, p, f.file(p)); err != nil {
			return err
		}
	}
	if err := errors.Join(t.resolve(), t.complete()); err != nil {
		return err
	}
	if err := cache.Seal(ctx, t.dir); err != nil {
		return err
	}
	return cache.ReplaceDir(t.dir, filepath.Join(f.dir, setPrefix+l.digest()))
}
