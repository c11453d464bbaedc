package build

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/mod/module"
)

// resolution finds and downloads the modules of one build.
type resolution struct {
	tool     toolchain
	info     goInfo
	dir      string // directory in which the go command is called for downloads
	source   source
	progress func(string)
	fetched  int // modules so far, for progress
}

// wish is a module that is being looked for.
type wish struct {
	path       string
	candidates []candidate
	refused    error // why the best candidate could not be had
}

// fetch gets modules by import path. The candidates of all of them are tried side by side, the best first.
func (r *resolution) fetch(ctx context.Context, paths []string) ([]provider, error) {
	got := map[string]provider{}
	var open []wish
	for _, path := range paths {
		if dir, ok := r.source.local(path); ok {
			got[path] = provider{Path: path, Dir: dir, Local: true}
			continue
		}
		list, err := r.source.candidates(path)
		if err != nil {
			return nil, err
		}
		open = append(open, wish{path: path, candidates: list})
	}
	for len(open) > 0 {
		var err error
		if open, err = r.attempt(ctx, open, got); err != nil {
			return nil, err
		}
	}
	list := make([]provider, len(paths))
	for i, path := range paths {
		list[i] = got[path]
	}
	return list, nil
}

// attempt downloads the first candidate of each wish. It returns the wishes that have to go on with the next one.
func (r *resolution) attempt(ctx context.Context, open []wish, got map[string]provider) ([]wish, error) {
	mods := make([]module.Version, len(open))
	for i, w := range open {
		mods[i] = w.candidates[0].Mod
	}
	r.fetched += len(mods)
	r.progress(fmt.Sprintf("downloading %s, %d so far", count(len(mods), "module"), r.fetched))
	results, err := r.tool.download(ctx, r.dir, true, mods)
	if err != nil {
		return nil, err
	}
	var again []wish
	for i, w := range open {
		p, err := r.accept(ctx, w, results[i])
		if err == nil {
			got[w.path] = p
			continue
		}
		if !errors.Is(err, ErrNotServed) {
			return nil, err
		}
		if w.refused == nil {
			w.refused = err
		}
		if w.candidates = w.candidates[1:]; len(w.candidates) == 0 {
			return nil, w.refused
		}
		again = append(again, w)
	}
	return again, nil
}

// accept turns a download into a provider. A module that the checksum database does not know is taken unverified, and
// that is noted; a database that cannot be asked, or that contradicts, is an error.
func (r *resolution) accept(ctx context.Context, w wish, d download) (provider, error) {
	c := w.candidates[0]
	p := provider{Path: w.path, Real: c.Mod}
	if c.Note != "" {
		p.Notes = append(p.Notes, c.Note)
	}
	if d.Error != "" && reason(d.Error) == errUnlisted {
		again, err := r.tool.download(ctx, r.dir, false, []module.Version{c.Mod})
		if err != nil {
			return provider{}, err
		}
		d = again[0]
		p.Notes = append(p.Notes, fmt.Sprintf("%s %s is not verified: %v", c.Mod.Path, c.Mod.Version, errUnlisted))
	}
	if d.Error != "" {
		message := strings.TrimPrefix(d.Error, c.Mod.String()+": ")
		return provider{}, fmt.Errorf("%s: %w: %s", c.Mod, reason(d.Error), r.info.plain(firstLines(message)))
	}
	p.Dir, p.Sum, p.GoModSum = d.Dir, d.Sum, d.GoModSum
	return p, nil
}

// root downloads the module that holds the main packages.
func (r *resolution) root(ctx context.Context, m module.Version) (provider, error) {
	r.progress("resolving")
	results, err := r.tool.download(ctx, r.dir, true, []module.Version{m})
	if err != nil {
		return provider{}, err
	}
	return r.accept(ctx, wish{path: m.Path, candidates: []candidate{{Mod: m}}}, results[0])
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
