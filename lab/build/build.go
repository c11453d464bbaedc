package build

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/sync/errgroup"
)

// Binary is a program ready to be started.
type Binary struct {
	Target Target
	Path   string   `json:"-"` // absolute; its base name is the program's name when it was built here
	Sha256 string   // of the file, lower-case hex
	Go     string   // version of Go it was compiled with, as go1.26.8; empty when that is not known
	Notes  []string // every substitution and everything else that differs from upstream's release, in plain words
}

// Builder builds targets. The zero value uses DefaultCache and says nothing.
type Builder struct {
	// Cache is the directory of built binaries; DefaultCache when empty.
	Cache string
	// Prebuilt is a directory of ready binaries, used instead of building. A file NAME@VERSION is taken as what its
	// name says; a file NAME only when it says that version itself.
	Prebuilt string
	// Progress, if set, gets a line for each stage, and about every 10 s while the compiler runs. It is called by the
	// goroutine that called Build.
	Progress func(string)

	tool toolchain // the go command when nil
}

// Build makes the targets, or finds them ready, and returns them in the order asked. Programs of the same version of
// the same module are made by one go build. Several processes may build into the same cache at the same time.
//
// When the context ends, everything that was started is killed and nothing half-made stays. Errors name the target;
// those that wrap ErrNotServed, ErrChecksum, ErrOffline or ErrCompile have that reason.
func (b *Builder) Build(ctx context.Context, targets ...Target) ([]Binary, error) {
	d, err := embedded()
	if err != nil {
		return nil, err
	}
	s, err := b.store()
	if err != nil {
		return nil, err
	}
	done := map[Target]Binary{}
	groups, err := b.missing(ctx, d, s, targets, done)
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		if err := b.buildGroup(ctx, d, s, g, done); err != nil {
			return nil, fmt.Errorf("building %s: %w", g, err)
		}
	}
	list := make([]Binary, len(targets))
	for i, t := range targets {
		list[i] = done[t]
	}
	return list, nil
}

// Cached finds a target that is ready, in the directory of ready binaries or in the cache, without building anything.
func (b *Builder) Cached(t Target) (Binary, bool) {
	s, err := b.store()
	if err != nil {
		return Binary{}, false
	}
	bin, found, err := b.ready(context.Background(), s, t)
	return bin, found && err == nil
}

func (b *Builder) store() (store, error) {
	dir := b.Cache
	if dir == "" {
		var err error
		if dir, err = DefaultCache(); err != nil {
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

func (b *Builder) say(what fmt.Stringer, line string) {
	if b.Progress != nil {
		b.Progress(what.String() + ": " + line)
	}
}

// ready looks for a target where nothing needs to be built.
func (b *Builder) ready(ctx context.Context, s store, t Target) (Binary, bool, error) {
	if b.Prebuilt != "" {
		bin, found, err := b.prebuilt(ctx, t)
		if found || err != nil {
			return bin, found, err
		}
	}
	info, err := b.toolchain().describe(ctx)
	if err != nil && !errors.Is(err, errNoGo) {
		return Binary{}, false, err
	}
	bin, found := s.find(t, info.Version)
	return bin, found, nil
}

// group is targets that one go build makes.
type group struct {
	root     module.Version
	targets  []Target
	programs []program
}

// String names the targets.
func (g *group) String() string {
	var names []string
	for _, t := range g.targets {
		names = append(names, t.Name)
	}
	return strings.Join(names, " + ") + "@" + g.root.Version
}

// missing sorts the targets into those that are ready, which go to done, and groups that have to be built, in the order
// in which they were asked for.
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
		if ready[i] != nil {
			done[t] = *ready[i]
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
	}
	return groups, nil
}

// lookUp finds the targets that are ready, each as far as it is; nil stands for one that is not. Their checksums are computed
// side by side: a control plane's 300 MB took most of a warm start.
func (b *Builder) lookUp(ctx context.Context, s store, targets []Target) ([]*Binary, error) {
	found := make([]*Binary, len(targets))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, t := range targets {
		group.Go(func() error {
			bin, ready, err := b.ready(ctx, s, t)
			if err != nil {
				return fmt.Errorf("building %s: %w", t, err)
			}
			if ready {
				found[i] = &bin
			}
			return nil
		})
	}
	return found, group.Wait()
}

// buildGroup builds what is still missing of a group once it has the lock.
func (b *Builder) buildGroup(ctx context.Context, d *dataset, s store, g *group, done map[Target]Binary) (err error) {
	info, err := b.toolchain().describe(ctx)
	if err != nil {
		return err
	}
	lock, err := s.lock(ctx, g.root, func() { b.say(g, "waiting for another process that builds it") })
	if err != nil {
		return err
	}
	defer lock.Close()
	open := &group{root: g.root}
	for i, t := range g.targets {
		if bin, found := s.find(t, info.Version); found { // another process was faster
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
	run := &making{Builder: b, info: info, store: s, group: open, dir: dir, start: time.Now()}
	return run.make(ctx, d, done)
}

func (g *group) packages() []string {
	var list []string
	for _, p := range g.programs {
		list = append(list, p.Package)
	}
	return list
}
