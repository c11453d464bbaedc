package build

import (
	"context"
	"errors"
	"fmt"
	goversion "go/version"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/mod/semver"
)

// groupBuild is a running build of a group.
type groupBuild struct {
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

func (m *groupBuild) make(ctx context.Context, d *dataset, done map[Target]Binary) error {
	r, err := m.resolve(ctx, d)
	if err != nil {
		return err
	}
	if m.mod, err = r.goMod(); err != nil {
		return err
	}
	m.sum = r.goSum()
	todo := m.uncompiled(ctx, done)
	if len(todo.targets) == 0 {
		return m.index(done)
	}
	if err := r.write(filepath.Join(m.dir, "module")); err != nil {
		return err
	}
	for _, p := range todo.programs {
		if err := p.writeMain(filepath.Join(m.dir, "module")); err != nil {
			return err
		}
	}
	if err := m.compile(ctx, todo); err != nil {
		return err
	}
	for i, t := range todo.targets {
		p := todo.programs[i]
		bin := Binary{Target: t, Path: filepath.Join(m.dir, "out", executable(p)), Go: m.info.Version, Notes: m.notes(p)}
		bin, err := m.store.publish(bin, m.key(t, p), m.mod, m.sum)
		if err != nil {
			return err
		}
		m.reportDone(bin)
		done[t] = bin
	}
	return m.index(done)
}

// resolve determines the modules of the group and their versions, and downloads them.
func (m *groupBuild) resolve(ctx context.Context, d *dataset) (recipe, error) {
	r := &resolution{
		tool: m.toolchain(), info: m.info, dir: filepath.Join(m.dir, "download"),
		progress: func(line string) { m.report(m.group, line) },
	}
	// Without a go.mod here the go command would use one of a parent directory.
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
	if part, is := d.leftOutOf(m.group.root); is {
		if root, err = part.apply(root, filepath.Join(m.dir, "changed")); err != nil {
			return recipe{}, err
		}
	}
	line, godebug := r.source.directives()
	if compareGo("go"+line, m.info.Version) > 0 {
		return recipe{}, fmt.Errorf("it needs Go %s, and this is %s; install a newer Go", line, m.info.Version)
	}
	m.walk = newWalker(r.source, r.fetch, m.info, root)
	packages := m.group.packages()
	for _, p := range m.group.programs {
		m.walk.tests[p.Package] = p.Kind == testsTool
	}
	if err := m.walk.walk(ctx, packages...); err != nil {
		return recipe{}, err
	}
	return recipe{GoLine: line, Godebug: godebug, Modules: m.walk.used(packages...)}, nil
}

// compareGo compares Go versions; an invalid one, such as a development version, is the newest.
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

func (m *groupBuild) key(t Target, p program) string {
	return key(t, p, m.info.Version, m.mod, m.sum)
}

// uncompiled returns the group without the targets that an earlier build made from the same sources, which it adds to done.
func (m *groupBuild) uncompiled(ctx context.Context, done map[Target]Binary) *group {
	todo := &group{root: m.group.root}
	for i, t := range m.group.targets {
		p := m.group.programs[i]
		if bin, err := m.store.entry(ctx, entryName(t, m.key(t, p)), t); err == nil {
			done[t] = bin
			continue
		}
		todo.targets, todo.programs = append(todo.targets, t), append(todo.programs, p)
	}
	return todo
}

// index writes the index of the group's targets.
func (m *groupBuild) index(done map[Target]Binary) error {
	for _, t := range m.group.targets {
		if err := m.store.writeIndex(t, m.info.Version, filepath.Base(filepath.Dir(done[t].Path))); err != nil {
			return err
		}
	}
	return nil
}

// compile runs the go builds of a group, one for its main packages and one for each package of tests, and reports progress.
func (m *groupBuild) compile(ctx context.Context, g *group) error {
	size := len(m.walk.packages)
	m.report(g, fmt.Sprintf("compiling %s of %s", count(size, "package"), count(len(m.walk.used(g.packages()...)), "module")))
	var begun atomic.Int64
	begin := time.Now()
	finished := make(chan error, 1)
	go func() {
		for _, j := range m.jobs(g) {
			j.Compiles = func(pkg string) {
				if _, counts := m.walk.packages[pkg]; counts { // those of the standard library do not
					begun.Add(1)
				}
			}
			if err := m.toolchain().build(ctx, j); err != nil {
				finished <- err
				return
			}
		}
		finished <- nil
	}()
	tick := time.NewTicker(stepTick)
	defer tick.Stop()
	for {
		select {
		case err := <-finished:
			return m.compiled(g, err)
		case <-tick.C:
			m.step(g, compiling(int(begun.Load()), size, time.Since(begin)))
		}
	}
}

// jobs are the go builds of a group.
func (m *groupBuild) jobs(g *group) []job {
	common := job{Dir: filepath.Join(m.dir, "module"), Ldflags: ldflags(g.programs[0], g.root.Version),
		Out: filepath.Join(m.dir, "out") + string(filepath.Separator), Temp: filepath.Join(m.dir, "tmp"), Low: m.Low}
	programs, all := common, []job{}
	for _, p := range g.programs {
		if p.Kind != testsTool {
			programs.Packages = append(programs.Packages, p.mainPackage())
			continue
		}
		tests := common
		tests.Packages, tests.Tests, tests.Out = []string{p.Package}, true, filepath.Join(common.Out, executable(p))
		all = append(all, tests)
	}
	if len(programs.Packages) > 0 {
		all = append(all, programs)
	}
	return all
}

// compiling is the progress of a compilation that has begun some of its packages. The rest is expected to take as long for each.
func compiling(begun, all int, passed time.Duration) Step {
	s := Step{Text: fmt.Sprintf("compiling, %d of %s, %.0f s so far", begun, count(all, "package"), passed.Seconds())}
	if begun*fewest > all {
		s.Left = passed * time.Duration(all-begun) / time.Duration(begun)
		s.Text += fmt.Sprintf(", about %.0f s left", s.Left.Seconds())
	}
	return s
}

// fewest is the part of the packages, as 1/fewest, from which their time tells that of the rest.
const fewest = 20

// compiled converts the error of a go build.
func (m *groupBuild) compiled(g *group, err error) error {
	var failure *compileError
	if !errors.As(err, &failure) {
		return err
	}
	return fmt.Errorf("%w of %s with %s, whose last lines are:\n%s",
		ErrCompile, g, m.info.Version, m.info.plain(lastLines(failure.Output)))
}

func (m *groupBuild) reportDone(bin Binary) {
	var size int64
	if info, err := os.Stat(bin.Path); err == nil {
		size = info.Size()
	}
	m.report(bin.Target, fmt.Sprintf("done, %s in %.0f s", megabytes(size), time.Since(m.start).Seconds()))
}

// notes returns the differences from upstream's release of a program.
func (m *groupBuild) notes(p program) []string {
	notes := []string{"not upstream's release artifact: compiled from its published modules with " + m.info.Version}
	for _, used := range m.walk.used(p.packages()...) {
		notes = append(notes, used.Notes...)
	}
	return notes
}

// versionPackages are the packages with the version variables of Kubernetes, by release. The linker ignores those that are not
// linked.
var versionPackages = []string{"k8s.io/kubernetes/pkg/version", "k8s.io/client-go/pkg/version", "k8s.io/component-base/version"}

// ciliumVersion is the variable that Cilium parses as VERSION REVISION TIME. A module has neither revision nor time.
const ciliumVersion = "-X 'github.com/cilium/cilium/pkg/version.ciliumVersion=%s 0000000 1970-01-01T00:00:00Z'"

// ldflags strips the binary and, as upstream's build scripts, sets the version of Kubernetes and Cilium. etcd has its version in its
// sources.
func ldflags(p program, version string) string {
	flags := "-s -w"
	switch p.Module {
	case "github.com/cilium/cilium":
		return flags + " " + fmt.Sprintf(ciliumVersion, strings.TrimPrefix(version, "v"))
	case "k8s.io/kubernetes":
	default:
		return flags
	}
	major, minor, _ := strings.Cut(strings.TrimPrefix(semver.MajorMinor(version), "v"), ".")
	for _, pkg := range versionPackages {
		flags += fmt.Sprintf(" -X %s.gitVersion=%s -X %s.gitMajor=%s -X %s.gitMinor=%s", pkg, version, pkg, major, pkg, minor)
	}
	return flags
}
