package build

import (
	"context"
	"errors"
	"fmt"
	goversion "go/version"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
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

// compileTick is how often a running compilation is mentioned.
const compileTick = 10 * time.Second

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
	var groups []*group
	for i, t := range targets {
		if slices.Contains(targets[:i], t) {
			continue
		}
		p, err := d.program(t)
		if err != nil {
			return nil, err
		}
		bin, found, err := b.ready(ctx, s, t)
		if err != nil {
			return nil, fmt.Errorf("building %s: %w", t, err)
		}
		if found {
			done[t] = bin
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

// buildGroup builds what is still missing of a group once it has the lock.
func (b *Builder) buildGroup(ctx context.Context, d *dataset, s store, g *group, done map[Target]Binary) (err error) {
	info, err := b.toolchain().describe(ctx)
	if err != nil {
		return err
	}
	unlock, err := s.lock(ctx, g.root, func() { b.say(g, "waiting for another process that builds it") })
	if err != nil {
		return err
	}
	defer unlock()
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

// making is one build under way.
type making struct {
	*Builder
	info  goInfo
	store store
	group *group
	dir   string
	start time.Time
	walk  *walker
	mod   string // go.mod
	sum   string // go.sum
}

func (m *making) make(ctx context.Context, d *dataset, done map[Target]Binary) error {
	r, err := m.resolve(ctx, d)
	if err != nil {
		return err
	}
	if m.mod, err = r.goMod(); err != nil {
		return err
	}
	m.sum = r.goSum()
	todo := m.uncompiled(done)
	if len(todo.targets) == 0 {
		return m.index(done)
	}
	module := filepath.Join(m.dir, "module")
	if err := r.write(module); err != nil {
		return err
	}
	if err := m.compile(ctx, todo, module); err != nil {
		return err
	}
	for i, t := range todo.targets {
		p := todo.programs[i]
		bin := Binary{Target: t, Path: filepath.Join(m.dir, "out", executable(p)), Go: m.info.Version, Notes: m.notes(p)}
		bin, err := m.store.publish(bin, m.key(t, p), m.mod, m.sum)
		if err != nil {
			return err
		}
		m.sayDone(bin)
		done[t] = bin
	}
	return m.index(done)
}

// resolve finds out which modules the group needs, at which versions, and downloads them.
func (m *making) resolve(ctx context.Context, d *dataset) (recipe, error) {
	r := &resolution{
		tool: m.toolchain(), info: m.info, dir: filepath.Join(m.dir, "download"),
		progress: func(line string) { m.say(m.group, line) },
	}
	// A go.mod of its own keeps the go command from finding one of the user's in a directory above.
	head := []byte("module download\n\ngo " + oldestGoLine + "\n")
	if err := os.WriteFile(filepath.Join(r.dir, "go.mod"), head, 0o644); err != nil {
		return recipe{}, fmt.Errorf("preparing the downloads: %w", err)
	}
	root, err := r.root(ctx, m.group.root)
	if err != nil {
		return recipe{}, err
	}
	if r.source, err = openSource(d, m.group.root, root.Dir); err != nil {
		return recipe{}, err
	}
	line, godebug := r.source.head()
	if compareGo("go"+line, m.info.Version) > 0 {
		return recipe{}, fmt.Errorf("it needs Go %s, and this is %s; install a newer Go", line, m.info.Version)
	}
	m.walk = newWalker(r.source, r.fetch, m.info, root)
	packages := m.group.packages()
	if err := m.walk.walk(ctx, packages...); err != nil {
		return recipe{}, err
	}
	return recipe{GoLine: line, Godebug: godebug, Modules: m.walk.used(packages...)}, nil
}

// compareGo compares Go versions; one that is not of the usual form (a development version) counts as newest.
func compareGo(a, b string) int {
	switch {
	case goversion.IsValid(a) && goversion.IsValid(b):
		return goversion.Compare(a, b)
	case goversion.IsValid(a):
		return -1
	case goversion.IsValid(b):
		return 1
	}
	return strings.Compare(a, b)
}

func (g *group) packages() []string {
	var list []string
	for _, p := range g.programs {
		list = append(list, p.Package)
	}
	return list
}

func (m *making) key(t Target, p program) string {
	return key(t, p, m.info.Version, m.mod, m.sum)
}

// uncompiled takes out of the group what an earlier build made from exactly the same sources.
func (m *making) uncompiled(done map[Target]Binary) *group {
	todo := &group{root: m.group.root}
	for i, t := range m.group.targets {
		p := m.group.programs[i]
		if bin, found := m.store.entry(entryName(t, m.key(t, p)), t); found {
			done[t] = bin
			continue
		}
		todo.targets, todo.programs = append(todo.targets, t), append(todo.programs, p)
	}
	return todo
}

// index notes the group's targets as cached.
func (m *making) index(done map[Target]Binary) error {
	for _, t := range m.group.targets {
		if err := m.store.remember(t, m.info.Version, filepath.Base(filepath.Dir(done[t].Path))); err != nil {
			return err
		}
	}
	return nil
}

// compile runs the go build of a group, and says every now and then that it does.
func (m *making) compile(ctx context.Context, g *group, module string) error {
	j := job{
		Dir: module, Packages: g.packages(), Ldflags: ldflags(g.programs[0], g.root.Version),
		Out: filepath.Join(m.dir, "out") + string(filepath.Separator), Temp: filepath.Join(m.dir, "tmp"),
	}
	size := len(m.walk.packages)
	m.say(g, fmt.Sprintf("compiling %s of %s", count(size, "package"), count(len(m.walk.used(j.Packages...)), "module")))
	begin := time.Now()
	finished := make(chan error, 1)
	go func() { finished <- m.toolchain().build(ctx, j) }()
	tick := time.NewTicker(compileTick)
	defer tick.Stop()
	for {
		select {
		case err := <-finished:
			return m.compiled(g, err)
		case <-tick.C:
			m.say(g, fmt.Sprintf("compiling, %.0f s so far", time.Since(begin).Seconds()))
		}
	}
}

// compiled puts the outcome of a go build into words.
func (m *making) compiled(g *group, err error) error {
	var refused *compileError
	if !errors.As(err, &refused) {
		return err
	}
	return fmt.Errorf("%w of %s with %s, whose last lines are:\n%s", ErrCompile, g, m.info.Version, m.info.plain(lastLines(refused.Output)))
}

func (m *making) sayDone(bin Binary) {
	var size int64
	if info, err := os.Stat(bin.Path); err == nil {
		size = info.Size()
	}
	m.say(bin.Target, fmt.Sprintf("done, %.1f MB in %.0f s", float64(size)/1e6, time.Since(m.start).Seconds()))
}

// notes says what differs from upstream's release of one program.
func (m *making) notes(p program) []string {
	notes := []string{"not upstream's release artifact: compiled from its published modules with " + m.info.Version}
	for _, used := range m.walk.used(p.Package) {
		notes = append(notes, used.Notes...)
	}
	return notes
}

// executable is the name that the go command gives a main package's binary.
func executable(p program) string {
	prefix, _, ok := module.SplitPathVersion(p.Package)
	if !ok || p.Package != p.Module {
		return path.Base(p.Package)
	}
	return path.Base(prefix)
}

// versionPackages are where Kubernetes versions of all years keep what they say their version is. Setting a variable of
// a package that is not linked in does nothing.
var versionPackages = []string{"k8s.io/kubernetes/pkg/version", "k8s.io/client-go/pkg/version", "k8s.io/component-base/version"}

// ldflags strips the binary and, for Kubernetes, tells it its version, which upstream's build scripts do. etcd has its
// version in its sources.
func ldflags(p program, version string) string {
	flags := "-s -w"
	if p.Module != "k8s.io/kubernetes" {
		return flags
	}
	major, minor, _ := strings.Cut(strings.TrimPrefix(semver.MajorMinor(version), "v"), ".")
	for _, pkg := range versionPackages {
		flags += fmt.Sprintf(" -X %s.gitVersion=%s -X %s.gitMajor=%s -X %s.gitMinor=%s", pkg, version, pkg, major, pkg, minor)
	}
	return flags
}
