// Package build provides the upstream programs of a lab: the Kubernetes control plane and kube-proxy of any version since 1.11, and
// etcd. It compiles them from their published Go modules with the go command of this machine, and verifies the modules with the
// checksum database. Or it downloads upstream's release artifacts, and verifies their published checksums. It caches the binaries. A
// directory of prebuilt binaries can replace both.
//
// The steps of a build are the same for every version: it downloads the program's module; takes the versions of dependencies from its go.mod
// (1.15 and later, etcd) or from Godeps.json and a table of pins (up to 1.14); follows imports from the main package to find the
// modules that are needed; and writes a go.mod that replaces each of them with exactly the wanted version. Sources are not patched.
// A substituted version is listed in the notes of the binary.
//
// The built binaries differ from upstream's release artifacts: the sources are the same, except for the substitutions in the notes, but
// the compiler is another. The package does not start programs. It builds hitless only for
// guests, where this machine is of another platform (Self).
package build

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/sync/errgroup"

	"github.com/hitless/hitless/internal/cache"
)

// Binary is an executable program.
type Binary struct {
	Target Target
	Path   string   `json:"-"` // absolute; its base name is the program's name when it was built here
	Sha256 string   // of the file, in lower-case hex
	Go     string   // version of Go that compiled it, as go1.26.8; empty when it is not known
	Notes  []string // differences from upstream's release, such as substituted versions, as sentences
	Source Programs `json:",omitempty"` // Released, Prebuilt, or empty when it was built here
}

// Builder builds targets. The zero value uses defaultCache and reports no progress.
type Builder struct {
	// Cache is the directory of built binaries; defaultCache when empty.
	Cache string
	// Prebuilt is a directory of binaries that replace builds. A file NAME@VERSION is used for that target; a file NAME is used
	// when its --version prints the wanted version.
	Prebuilt string
	// Programs tells whether binaries are built or downloaded; Built when empty. Each has entries of its own in the cache.
	Programs Programs
	// Low gives compilations a low priority, for a run that goes on meanwhile.
	Low bool
	// Progress, if set, gets each stage, and a step every 10 s during compilation and downloads, one at a time.
	Progress func(Step)

	reporting sync.Mutex // around Progress

	tool  toolchain     // the go command when nil
	stall time.Duration // after which a download without a byte ends; stallTime when 0
}

// Build returns the binaries of the targets in their order, and builds or downloads those that are not in the cache. One go build makes
// the programs of one version of a module. Several processes can use the same cache.
//
// When ctx ends, the started processes are killed, and no unfinished files stay but the beginning of a download, which the next call
// continues. Errors name the target and wrap ErrNotServed, ErrNotReleased, ErrChecksum, ErrUnverified, ErrOffline or ErrCompile where
// one of them is the reason.
func (b *Builder) Build(ctx context.Context, targets ...Target) ([]Binary, error) {
	d, err := embedded()
	if err != nil {
		return nil, err
	}
	s, err := b.store()
	if err != nil {
		return nil, err
	}
	done, all := map[Target]Binary{}, b.buildAll
	if b.Programs == Released {
		all = b.downloadAll
	}
	if err := all(ctx, d, s, targets, done); err != nil {
		return nil, err
	}
	list := make([]Binary, len(targets))
	for i, t := range targets {
		list[i] = done[t]
	}
	return list, nil
}

// atOnce is how many groups are built at a time: while one is downloaded or linked, the CPUs have the packages of the other.
const atOnce = 2

// buildAll adds the binaries of the targets to done, and builds those that are not in the cache. The first error ends the other builds.
func (b *Builder) buildAll(ctx context.Context, d *dataset, s store, targets []Target, done map[Target]Binary) error {
	groups, err := b.missing(ctx, d, s, targets, done)
	if err != nil {
		return err
	}
	made := make([]map[Target]Binary, len(groups))
	builds, ctx := errgroup.WithContext(ctx)
	builds.SetLimit(atOnce)
	for i, g := range groups {
		made[i] = map[Target]Binary{}
		builds.Go(func() error {
			if err := b.buildGroup(ctx, d, s, g, made[i]); err != nil {
				return fmt.Errorf("building %s: %w", g, errors.Join(err, g.damage))
			}
			return nil
		})
	}
	if err := builds.Wait(); err != nil {
		return err
	}
	for _, m := range made {
		maps.Copy(done, m)
	}
	return nil
}

// Cached returns the binary of a target from the prebuilt directory or the cache, without building or downloading it.
func (b *Builder) Cached(t Target) (Binary, bool) {
	s, err := b.store()
	if err != nil {
		return Binary{}, false
	}
	bin, err := b.ready(context.Background(), s, t)
	return bin, err == nil
}

func (b *Builder) store() (store, error) {
	dir := b.Cache
	if dir == "" {
		var err error
		if dir, err = defaultCache(); err != nil {
			return store{}, err
		}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return store{}, fmt.Errorf("finding the cache of built programs: %w", err)
	}
	return store{dir: dir}, nil
}

func (b *Builder) toolchain() toolchain {
	if b.tool != nil {
		return b.tool
	}
	return goCommand{}
}

// ready returns a target that needs no build and no download. The error is errMissing or a *cache.Damage if one helps.
func (b *Builder) ready(ctx context.Context, s store, t Target) (Binary, error) {
	if b.Prebuilt != "" {
		bin, found, err := b.prebuilt(ctx, t)
		if found || err != nil {
			return bin, err
		}
	}
	if b.Programs == Released {
		return s.findReleased(ctx, t)
	}
	info, err := b.toolchain().describe(ctx)
	if err != nil && !errors.Is(err, errNoGo) {
		return Binary{}, err
	}
	return s.find(ctx, t, info.Version)
}

// group is the targets of one go build.
type group struct {
	root     module.Version
	targets  []Target
	programs []program
	damage   error // of the entries that are built again
}

// String names the targets.
func (g *group) String() string {
	var names []string
	for _, t := range g.targets {
		names = append(names, t.Name)
	}
	return strings.Join(names, " + ") + "@" + g.root.Version
}

// missing adds the targets that need no build to done, and returns the groups to build in the order of the targets.
func (b *Builder) missing(ctx context.Context, d *dataset, s store, targets []Target, done map[Target]Binary) ([]*group, error) {
	ready, err := b.lookUp(ctx, s, targets)
	if err != nil {
		return nil, err
	}
	var groups []*group
	for i, t := range targets {
		if slices.Contains(targets[:i], t) {
			continue
		}
		p, err := d.program(t)
		if err != nil {
			return nil, err
		}
		if ready[i].err == nil {
			done[t] = ready[i].Binary
			continue
		}
		root := module.Version{Path: p.Module, Version: t.Version}
		at := slices.IndexFunc(groups, func(g *group) bool { return g.root == root })
		if at < 0 {
			at = len(groups)
			groups = append(groups, &group{root: root})
		}
		groups[at].targets = append(groups[at].targets, t)
		groups[at].programs = append(groups[at].programs, p)
		if damage := new(cache.Damage); errors.As(ready[i].err, &damage) {
			b.report(t, damage.Error()+"; it is built again")
			groups[at].damage = errors.Join(groups[at].damage, damage)
		}
	}
	return groups, nil
}

// found is a target that needs no build, or the reason why it does.
type found struct {
	Binary
	err error
}

// lookUp finds the targets that are ready. It verifies them concurrently: to read a control plane (300 MB) takes a while.
func (b *Builder) lookUp(ctx context.Context, s store, targets []Target) ([]found, error) {
	all := make([]found, len(targets))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, t := range targets {
		group.Go(func() error {
			bin, err := b.ready(ctx, s, t)
			all[i] = found{bin, err}
			if err == nil || errors.Is(err, errMissing) || errors.As(err, new(*cache.Damage)) {
				return nil
			}
			return fmt.Errorf("looking up %s: %w", t, err)
		})
	}
	return all, group.Wait()
}

// buildGroup builds the targets of a group that are still missing once it has the lock.
func (b *Builder) buildGroup(ctx context.Context, d *dataset, s store, g *group, done map[Target]Binary) (err error) {
	info, err := b.toolchain().describe(ctx)
	if err != nil {
		return err
	}
	lock, err := s.lock(ctx, g.root, func() { b.report(g, "waiting for another process that builds it") })
	if err != nil {
		return err
	}
	defer lock.Close()
	open := &group{root: g.root}
	for i, t := range g.targets {
		if bin, err := s.find(ctx, t, info.Version); err == nil { // another process has built it
			done[t] = bin
			continue
		}
		open.targets, open.programs = append(open.targets, t), append(open.programs, g.programs[i])
	}
	if len(open.targets) == 0 {
		return nil
	}
	dir, remove, err := s.workspace(g.root)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	run := &groupBuild{Builder: b, info: info, store: s, group: open, dir: dir, start: time.Now()}
	return run.make(ctx, d, done)
}

// packages are those from which the walk begins.
func (g *group) packages() []string {
	var list []string
	for _, p := range g.programs {
		list = append(list, p.packages()...)
	}
	return list
}
