package tools

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hitless/hitless/lab/debian"
)

// The packages whose programs guests, proxies in BPF besides, and images of pods need. The others in their lists have the shared libraries
// that these need.
var (
	OfGuests    = []string{"conntrack", "coreutils", "dash", "haproxy", "ipset", "iptables", "nftables"}
	OfCompilers = []string{"bpftool", "clang-19"}
	OfPods      = []string{"bind9-dnsutils", "busybox", "curl", "iproute2", "libc-bin", "netcat-openbsd", "wget"}
)

// Pin returns the text of a list with the programs of packages, as the release has them now, and that of what more adds to it. Security
// updates are left out: the mirror keeps the packages of the release itself, and not those of older updates. dir is the directory of tools
// in the cache.
func Pin(ctx context.Context, dir string, programs, more []string, report func(string)) (text, added string, err error) {
	lists, err := suite().ReleaseLists(ctx, filepath.Join(dir, listsDir), report)
	if err != nil {
		return "", "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", err
	}
	work, err := os.MkdirTemp(dir, unpackPrefix)
	if err != nil {
		return "", "", err
	}
	defer os.RemoveAll(work)
	p := pinner{lists: lists, report: report, fetcher: fetcher{dir: dir, report: func(string) {}}, known: map[string]candidate{}, work: work}
	first, err := p.pin(ctx, programs)
	if err != nil {
		return "", "", err
	}
	all, err := p.pin(ctx, more)
	if err != nil {
		return "", "", err
	}
	return first.String(), all.without(first).String(), nil
}

// pin takes packages and those that they need. It returns all that are taken.
func (p *pinner) pin(ctx context.Context, names []string) (list, error) {
	for _, name := range names {
		if err := p.take(ctx, name); err != nil {
			return nil, err
		}
	}
	for {
		more, err := p.provide(ctx)
		if err != nil {
			return nil, err
		}
		if !more {
			slices.SortFunc(p.taken, func(a, b Package) int { return strings.Compare(a.Name, b.Name) })
			return slices.Clone(p.taken), nil
		}
	}
}

// candidate is a package of the lists.
type candidate struct {
	Package
	depends []string
}

// pinner takes packages until no library is missing.
type pinner struct {
	lists   debian.Apt
	report  func(string)
	fetcher fetcher
	known   map[string]candidate
	work    string
	taken   list
}

// find downloads a package.
func (p *pinner) find(ctx context.Context, name string) (candidate, error) {
	if c, has := p.known[name]; has {
		return c, nil
	}
	text, err := p.lists.Show(ctx, name)
	if err != nil {
		return candidate{}, fmt.Errorf("finding the package %s: %w", name, err)
	}
	c := candidate{depends: dependencies(text)}
	if c.Package, err = listed(text); err != nil {
		return c, fmt.Errorf("finding the package %s: %w", name, err)
	}
	p.report("taking " + c.String())
	gone, err := p.fetcher.download(ctx, list{c.Package})
	if err == nil && len(gone) > 0 {
		err = fmt.Errorf("the mirror names %s in its lists and does not have it; try it again later", c)
	}
	p.known[name] = c
	return c, err
}

func (p *pinner) take(ctx context.Context, name string) error {
	c, err := p.find(ctx, name)
	if err == nil {
		p.taken = append(p.taken, c.Package)
	}
	return err
}

// dependencies are the names of the packages that a package depends on; of alternatives the first.
func dependencies(text string) (names []string) {
	for _, field := range []string{"Pre-Depends:", "Depends:"} {
		for item := range strings.SplitSeq(debian.Field(text, field), ",") {
			if words := strings.Fields(item); len(words) > 0 {
				name, _, _ := strings.Cut(words[0], ":")
				names = append(names, name)
			}
		}
	}
	return names
}

// provide takes the packages that have missing libraries, and reports whether there were any.
func (p *pinner) provide(ctx context.Context) (more bool, err error) {
	lacking, err := p.unpacked(ctx)
	if err != nil || len(lacking) == 0 {
		return false, err
	}
	needing := slices.SortedFunc(maps.Keys(lacking), func(a, b Package) int { return strings.Compare(a.Name, b.Name) })
	for _, needs := range needing {
		if err := p.provider(ctx, p.known[needs.Name], lacking[needs]); err != nil {
			return false, err
		}
	}
	return true, nil
}

// unpacked unpacks all packages that are taken, and returns what they lack.
func (p *pinner) unpacked(ctx context.Context) (map[Package]*MissingError, error) {
	root := filepath.Join(p.work, "root")
	if err := os.RemoveAll(root); err != nil {
		return nil, err
	}
	t := newTree(root)
	for _, one := range p.taken {
		if err := t.add(ctx, one, p.fetcher.file(one)); err != nil {
			return nil, err
		}
	}
	if err := t.resolve(); err != nil {
		return nil, err
	}
	return t.missing()
}

// provider takes the package that has a library, unless it is taken already. It is one of those that the package which needs it depends on.
func (p *pinner) provider(ctx context.Context, needs candidate, m *MissingError) error {
	for _, name := range needs.depends {
		c, err := p.find(ctx, name)
		if err != nil {
			continue // a virtual package, which has no library
		}
		t := newTree(filepath.Join(p.work, "one"))
		err = errors.Join(t.add(ctx, c.Package, p.fetcher.file(c.Package)), os.RemoveAll(t.dir))
		if err != nil {
			return err
		}
		for file := range t.owner {
			if filepath.Base(file) == filepath.Base(m.Library) {
				if !slices.Contains(p.taken, c.Package) {
					p.taken = append(p.taken, c.Package)
				}
				return nil
			}
		}
	}
	return fmt.Errorf("pinning the guest's tools: %w, and no package that %s depends on has it", m, needs)
}
