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
	dir      string // working directory of the go command for downloads
	source   source
	progress func(string)
	fetched  int // modules so far
}

// request is a module that is needed and its remaining candidates.
type request struct {
	path       string
	candidates []candidate
	firstErr   error // the error of the best candidate
}

// fetch downloads modules by import path. It tries the best candidates of all modules together, then the next ones.
func (r *resolution) fetch(ctx context.Context, paths []string) ([]provider, error) {
	got := map[string]provider{}
	var open []request
	for _, path := range paths {
		if dir, ok := r.source.local(path); ok {
			got[path] = provider{Path: path, Dir: dir, Local: true}
			continue
		}
		list, err := r.source.candidates(path)
		if err != nil {
			return nil, err
		}
		open = append(open, request{path: path, candidates: list})
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

// attempt downloads the first candidate of each request. It returns the requests that need their next candidate.
func (r *resolution) attempt(ctx context.Context, open []request, got map[string]provider) ([]request, error) {
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
	var again []request
	for i, w := range open {
		p, err := r.accept(ctx, w, results[i])
		if err == nil {
			got[w.path] = p
			continue
		}
		if !errors.Is(err, ErrNotServed) {
			return nil, err
		}
		if w.firstErr == nil {
			w.firstErr = err
		}
		if w.candidates = w.candidates[1:]; len(w.candidates) == 0 {
			return nil, w.firstErr
		}
		again = append(again, w)
	}
	return again, nil
}

// accept converts a download to a provider. A module without an entry in the checksum database is used unverified, with a note.
// An unreachable database and a mismatch are errors.
func (r *resolution) accept(ctx context.Context, w request, d download) (provider, error) {
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
	return r.accept(ctx, request{path: m.Path, candidates: []candidate{{Mod: m}}}, results[0])
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
