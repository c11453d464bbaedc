package build

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/module"

	"github.com/hitless/hitless/internal/testfiles"
)

var (
	apiserver = Target{"kube-apiserver", "v1.37.1"}
	proxy     = Target{"kube-proxy", "v1.37.1"}
	oldProxy  = Target{"kube-proxy", "v1.12.2"}
	etcd      = Target{"etcd", "v3.7.0"}
)

func newBuilder(t *testing.T, f *fakeGo) (*Builder, *[]string) {
	t.Helper()
	var lines []string
	return &Builder{Cache: t.TempDir(), Progress: func(s Step) { lines = append(lines, s.Text) }, tool: f}, &lines
}

func mustBuild(t *testing.T, b *Builder, targets ...Target) []Binary {
	t.Helper()
	list, err := b.Build(t.Context(), targets...)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestBuildGroupsByModuleAndKeepsTheOrder(t *testing.T) {
	f := newFakeGo(t)
	b, lines := newBuilder(t, f)
	got := mustBuild(t, b, proxy, etcd, apiserver, proxy)
	want := []Target{proxy, etcd, apiserver, proxy}
	for i, bin := range got {
		if bin.Target != want[i] || filepath.Base(bin.Path) != want[i].Name || !filepath.IsAbs(bin.Path) || len(bin.Sha256) != 64 || bin.Go != "go1.26.8" {
			t.Errorf("binary %d is %+v, want %v", i, bin, want[i])
		}
	}
	var packages [][]string
	for _, j := range f.jobs {
		packages = append(packages, j.Packages)
	}
	slices.SortFunc(packages, slices.Compare) // both are built at a time
	wantJobs := [][]string{
		{"go.etcd.io/etcd/server/v3"}, {"k8s.io/kubernetes/cmd/kube-proxy", "k8s.io/kubernetes/cmd/kube-apiserver"},
	}
	if diff := cmp.Diff(wantJobs, packages); diff != "" {
		t.Error("go builds: ", diff)
	}
	if got := content(t, got[1].Path); got != "binary of go.etcd.io/etcd/server/v3" {
		t.Errorf("etcd is %q", got)
	}
	text := strings.Join(*lines, "\n")
	for _, part := range []string{
		"kube-proxy + kube-apiserver@v1.37.1: resolving", "downloading 2 modules", "etcd@v3.7.0: compiling 2 packages of 2 modules",
		"kube-apiserver@v1.37.1: done, ",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("progress does not say %q:\n%s", part, text)
		}
	}
}

func TestFlagsTellTheVersion(t *testing.T) {
	f := newFakeGo(t)
	b, _ := newBuilder(t, f)
	mustBuild(t, b, proxy)
	mustBuild(t, b, etcd)
	for _, part := range []string{
		"-s -w", "-X k8s.io/component-base/version.gitVersion=v1.37.1", "-X k8s.io/component-base/version.gitMinor=37",
		"-X k8s.io/kubernetes/pkg/version.gitVersion=v1.37.1", "-X k8s.io/client-go/pkg/version.gitMajor=1",
	} {
		if !strings.Contains(f.jobs[0].Ldflags, part) {
			t.Errorf("flags %q lack %q", f.jobs[0].Ldflags, part)
		}
	}
	if f.jobs[1].Ldflags != "-s -w" {
		t.Errorf("flags of etcd are %q", f.jobs[1].Ldflags)
	}
}

func TestGodepsBuild(t *testing.T) {
	f := newFakeGo(t)
	b, _ := newBuilder(t, f)
	bin := mustBuild(t, b, oldProxy)[0]
	for _, part := range []string{
		"k8s.io/api => ./staging/k8s.io/api", "github.com/modern-go/reflect2 => github.com/modern-go/reflect2 v1.0.2",
		"go 1.17\n", "k8s.io/kubernetes v9999.0.0+incompatible",
	} {
		if !strings.Contains(f.mods[0], part) {
			t.Errorf("go.mod lacks %q:\n%s", part, f.mods[0])
		}
	}
	notes := strings.Join(bin.Notes, "\n")
	for _, part := range []string{"not upstream's release artifact", "reflect2 v1.0.2 instead of"} {
		if !strings.Contains(notes, part) {
			t.Errorf("notes lack %q:\n%s", part, notes)
		}
	}
}

// k8s.io/api v0.37.1 is not served: the next lower patch release is taken, and both programs say so. Only kube-proxy
// uses the unverified module.
func TestNotesSayWhatWasTakenInstead(t *testing.T) {
	f := newFakeGo(t)
	f.unlisted["example.com/only/proxy@v1.4.0"] = true
	b, _ := newBuilder(t, f)
	list := mustBuild(t, b, proxy, apiserver)
	made := "not upstream's release artifact: compiled from its published modules with go1.26.8"
	lower := "k8s.io/api v0.37.0 instead of v0.37.1, which is not served"
	unverified := "example.com/only/proxy v1.4.0 is not verified: the checksum database has no entry for it"
	if diff := cmp.Diff([]string{made, unverified, lower}, list[0].Notes); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{made, lower}, list[1].Notes); diff != "" {
		t.Error(diff)
	}
}

func TestASecondBuildTouchesNothing(t *testing.T) {
	f := newFakeGo(t)
	b, _ := newBuilder(t, f)
	if bin, ok := b.Cached(proxy); ok {
		t.Fatalf("an empty cache has %v", bin)
	}
	first := mustBuild(t, b, proxy, etcd)
	downloads := len(f.downloads)
	again, lines := &Builder{Cache: b.Cache, tool: f}, 0
	again.Progress = func(Step) { lines++ }
	if diff := cmp.Diff(first, mustBuild(t, again, proxy, etcd)); diff != "" {
		t.Error("the second build gives something else: ", diff)
	}
	if len(f.downloads) != downloads || len(f.jobs) != 2 || lines != 0 {
		t.Errorf("the second build made %d downloads, %d compilations, %d lines", len(f.downloads)-downloads, len(f.jobs)-2, lines)
	}
	if bin, ok := again.Cached(etcd); !ok || bin.Path != first[1].Path {
		t.Errorf("Cached = %v, %v", bin, ok)
	}
}

func TestAnotherGoBuildsAgain(t *testing.T) {
	f := newFakeGo(t)
	b, _ := newBuilder(t, f)
	first := mustBuild(t, b, etcd)[0]
	f.info.Version = "go1.27.0"
	second := mustBuild(t, b, etcd)[0]
	if len(f.jobs) != 2 || first.Path == second.Path {
		t.Errorf("%d compilations, paths %s and %s", len(f.jobs), first.Path, second.Path)
	}
	f.info.Version, f.infoErr = "", errNoGo
	if bin, ok := b.Cached(etcd); !ok || bin.Go != "go1.27.0" {
		t.Errorf("without a go command Cached = %+v, %v, want the newest", bin, ok)
	}
	if _, err := b.Build(t.Context(), proxy); !errors.Is(err, errNoGo) {
		t.Errorf("building without a go command: %v", err)
	}
}

func TestSameSourcesAreNotCompiledTwice(t *testing.T) {
	f := newFakeGo(t)
	b, _ := newBuilder(t, f)
	first := mustBuild(t, b, proxy)
	if err := os.RemoveAll(filepath.Join(b.Cache, "index")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, mustBuild(t, b, proxy)); diff != "" || len(f.jobs) != 1 {
		t.Errorf("%d compilations; %s", len(f.jobs), diff)
	}
}

// Each damage of a program, its description or its index is reported once and repaired. Offline it is named, and not used.
func TestDamageIsReportedAndBuiltAgain(t *testing.T) {
	for what, file := range map[string]func(b *Builder, bin Binary) string{
		"program":     func(_ *Builder, bin Binary) string { return bin.Path },
		"description": func(_ *Builder, bin Binary) string { return filepath.Join(filepath.Dir(bin.Path), binaryFile) },
		"index": func(b *Builder, bin Binary) string {
			return store{b.Cache}.indexFile(bin.Target, bin.Go)
		},
	} {
		for name, damage := range testfiles.Damages() {
			if what != "program" && name == "one flipped byte" {
				continue // the description's notes are not verified; TestADescriptionIsVerified has its other parts
			}
			t.Run(what+" "+name, func(t *testing.T) {
				f := newFakeGo(t)
				b, lines := newBuilder(t, f)
				first := mustBuild(t, b, proxy)[0]
				path := file(b, first)
				damage(t, path)
				if bin, ok := b.Cached(proxy); ok {
					t.Errorf("%+v counts as cached", bin)
				}
				missing := what == "index" && name == "deleted" // then the entry is found by its sources
				f.failures["k8s.io/kubernetes@v1.37.1"] = "k8s.io/kubernetes@v1.37.1: dial tcp 192.0.2.1:443: i/o timeout"
				if _, err := b.Build(t.Context(), proxy); !errors.Is(err, ErrOffline) || strings.Contains(err.Error(), filepath.Dir(path)) == missing {
					t.Errorf("offline: %v", err)
				}
				clear(f.failures)
				*lines = nil
				for range 2 {
					if diff := cmp.Diff([]Binary{first}, mustBuild(t, b, proxy)); diff != "" || !strings.HasPrefix(content(t, first.Path), "binary of") {
						t.Error("built again: ", diff)
					}
				}
				if text := strings.Join(*lines, "\n"); strings.Count(text, "is damaged") != map[bool]int{false: 1}[missing] {
					t.Errorf("the reports are:\n%s", text)
				}
			})
		}
	}
}

// A description with another digest or target is damage.
func TestADescriptionIsVerified(t *testing.T) {
	b, _ := newBuilder(t, newFakeGo(t))
	bin := mustBuild(t, b, proxy)[0]
	file := filepath.Join(filepath.Dir(bin.Path), binaryFile)
	text := content(t, file)
	for _, part := range []string{bin.Sha256[:8], "v1.37.1\"\n", "kube-proxy"} {
		changed := strings.Replace(text, part, "0"+part[1:], 1)
		if changed == text {
			t.Fatalf("the description lacks %q:\n%s", part, text)
		}
		if err := os.WriteFile(file, []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, ok := b.Cached(proxy); ok {
			t.Errorf("with another %q it counts as cached", part)
		}
	}
}

func TestErrors(t *testing.T) {
	const k8s = "k8s.io/kubernetes@v1.37.1"
	for name, c := range map[string]struct {
		message, module, refuse string
		is                      error
		says                    []string
	}{
		"not served": {
			message: k8s + ": reading https://proxy.example.com/x.info: 403 Forbidden\n\tserver response: not available.", module: k8s,
			is: ErrNotServed, says: []string{"kube-proxy@v1.37.1", "not served by the module proxy in use", "403 Forbidden", "not available"},
		},
		"no network": {
			message: k8s + ": Get \"https://proxy.example.com/x\": dial tcp: lookup proxy.example.com on 192.0.2.1:53: no such host", module: k8s,
			is: ErrOffline, says: []string{"kube-proxy@v1.37.1", "no network and not in the cache", "no such host"},
		},
		"no network for a dependency": {
			message: "k8s.io/api@v0.37.1: dial tcp 192.0.2.1:443: i/o timeout", module: "k8s.io/api@v0.37.1",
			is: ErrOffline, says: []string{"k8s.io/api@v0.37.1"},
		},
		"checksum": {
			message: "example.com/only/proxy@v1.4.0: verifying module: checksum mismatch", module: "example.com/only/proxy@v1.4.0",
			is: ErrChecksum, says: []string{"kube-proxy@v1.37.1", "example.com/only/proxy@v1.4.0: checksum mismatch"},
		},
		"an overloaded proxy is no reason to take an older version": {
			message: "k8s.io/api@v0.37.1: reading https://proxy.example.com/x: 503 Service Unavailable", module: "k8s.io/api@v0.37.1",
			is: errDownload, says: []string{"k8s.io/api@v0.37.1", "503"},
		},
		"compiler": {
			refuse: strings.Repeat("early\n", 30) + strings.Repeat("noise\n", 18) + "see https://proxy.example.com/x\n./a.go:1: undefined: x",
			is:     ErrCompile, says: []string{"kube-proxy@v1.37.1", "go1.26.8", "./a.go:1: undefined: x", "see (address)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeGo(t)
			if c.module != "" {
				f.failures[c.module] = c.message
			}
			f.refuse = c.refuse
			b, _ := newBuilder(t, f)
			_, err := b.Build(t.Context(), proxy)
			if !errors.Is(err, c.is) {
				t.Fatalf("error is %v, want %v", err, c.is)
			}
			for _, part := range c.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error does not say %q: %v", part, err)
				}
			}
			for _, part := range []string{"example.com/x", "proxy.example.com", "://", "early"} {
				if strings.Contains(err.Error(), part) {
					t.Errorf("error says %q: %v", part, err)
				}
			}
			nothingLeft(t, b)
		})
	}
}

// nothingLeft checks that no half-made file stays in the cache.
func nothingLeft(t *testing.T, b *Builder) {
	t.Helper()
	for _, dir := range []string{"work", "bin", "index"} {
		entries, err := os.ReadDir(filepath.Join(b.Cache, dir))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		for _, e := range entries {
			t.Errorf("%s/%s is left in the cache", dir, e.Name())
		}
	}
}

func TestTooOldGo(t *testing.T) {
	f := newFakeGo(t)
	f.info.Version = "go1.25.3"
	b, _ := newBuilder(t, f)
	_, err := b.Build(t.Context(), proxy)
	if err == nil || !strings.Contains(err.Error(), "needs Go 1.26.0, and this is go1.25.3") {
		t.Errorf("error is %v", err)
	}
}

func TestCancelLeavesNothing(t *testing.T) {
	f := newFakeGo(t)
	f.block = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	b := &Builder{Cache: t.TempDir(), tool: f, Progress: func(s Step) {
		if strings.Contains(s.Text, "compiling") {
			cancel()
		}
	}}
	if _, err := b.Build(ctx, proxy); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	nothingLeft(t, b)
}

// The modules of Kubernetes and etcd are built at a time. When one fails, the other one is ended, and nothing is left of both.
func TestModulesAreBuiltAtATime(t *testing.T) {
	f := newFakeGo(t)
	f.block = make(chan struct{})
	b, _ := newBuilder(t, f)
	built := make(chan error)
	go func() {
		_, err := b.Build(t.Context(), proxy, etcd)
		built <- err
	}()
	eventually(t, "both modules are compiled", func() bool { return f.compiled() == 2 })
	close(f.block)
	if err := <-built; err != nil {
		t.Error(err)
	}

	f = newFakeGo(t)
	f.block, f.refuse, f.refuses = make(chan struct{}), "./a.go:1: undefined: x", "go.etcd.io/etcd/server/v3"
	b, _ = newBuilder(t, f)
	if _, err := b.Build(t.Context(), proxy, etcd); !errors.Is(err, ErrCompile) || !strings.Contains(err.Error(), "etcd@v3.7.0") {
		t.Errorf("error is %v", err)
	}
	nothingLeft(t, b)
}

func TestLowPriorityReachesTheGoCommand(t *testing.T) {
	for _, low := range []bool{false, true} {
		f := newFakeGo(t)
		b, _ := newBuilder(t, f)
		b.Low = low
		if mustBuild(t, b, etcd); f.jobs[0].Low != low {
			t.Errorf("the job of a builder with Low %v: %+v", low, f.jobs[0])
		}
	}
}

func TestConcurrentBuildsCompileOnce(t *testing.T) {
	f := newFakeGo(t)
	f.block = make(chan struct{})
	cache := t.TempDir()
	waiting := make(chan struct{}, 3)
	var group sync.WaitGroup
	results := make([][]Binary, 3)
	for i := range results {
		b := &Builder{Cache: cache, tool: f, Progress: func(s Step) {
			if strings.Contains(s.Text, "waiting for another process") {
				waiting <- struct{}{}
			}
		}}
		group.Go(func() {
			var err error
			if results[i], err = b.Build(t.Context(), proxy, apiserver); err != nil {
				t.Error(err)
			}
		})
	}
	<-waiting
	<-waiting // two of the three wait while the third compiles
	close(f.block)
	group.Wait()
	if n := f.compiled(); n != 1 {
		t.Errorf("%d compilations", n)
	}
	for i, m := range f.downloads {
		if slices.Contains(f.downloads[:i], m) {
			t.Errorf("%s is downloaded again", m)
		}
	}
	for _, r := range results[1:] {
		if diff := cmp.Diff(results[0], r); diff != "" {
			t.Error(diff)
		}
	}
}

func TestWaitingForALockEndsWithTheContext(t *testing.T) {
	f := newFakeGo(t)
	b, _ := newBuilder(t, f)
	s, err := b.store()
	if err != nil {
		t.Fatal(err)
	}
	lock, err := s.lock(t.Context(), module.Version{}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := s.lock(ctx, module.Version{}, cancel); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
}

func TestWhatAKilledBuildLeftIsRemoved(t *testing.T) {
	s := store{dir: t.TempDir()}
	root := module.Version{Path: "k8s.io/kubernetes", Version: "v1.37.1"}
	left, _, err := s.workspace(root)
	if err != nil {
		t.Fatal(err)
	}
	fresh, remove, err := s.workspace(root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) || left == fresh {
		t.Errorf("%s is still there: %v", left, err)
	}
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, &Builder{Cache: s.dir})
}

func TestKeyDependsOnEverything(t *testing.T) {
	p := program{Module: "k8s.io/kubernetes", Package: "k8s.io/kubernetes/cmd/kube-proxy"}
	keys := map[string]string{}
	for name, k := range map[string]string{
		"base":    key(proxy, p, "go1.26.8", "mod", "sum"),
		"target":  key(apiserver, p, "go1.26.8", "mod", "sum"),
		"version": key(oldProxy, p, "go1.26.8", "mod", "sum"),
		"package": key(proxy, program{Module: p.Module, Package: "k8s.io/kubernetes/cmd/x"}, "go1.26.8", "mod", "sum"),
		"flags":   key(proxy, program{Module: "other", Package: p.Package}, "go1.26.8", "mod", "sum"),
		"go":      key(proxy, p, "go1.26.9", "mod", "sum"),
		"mod":     key(proxy, p, "go1.26.8", "mod2", "sum"),
		"sum":     key(proxy, p, "go1.26.8", "mod", "sum2"),
		"borders": key(proxy, p, "go1.26.8", "mods", "um"),
	} {
		if other, same := keys[k]; same {
			t.Errorf("%s and %s have the same key", name, other)
		}
		keys[k] = name
	}
}

func TestDefaultCache(t *testing.T) {
	t.Setenv("HITLESS_CACHE", "/var/cache/hitless")
	if got, err := defaultCache(); err != nil || got != "/var/cache/hitless/build" {
		t.Errorf("defaultCache() = %q, %v", got, err)
	}
	t.Setenv("HITLESS_CACHE", "")
	t.Setenv("XDG_CACHE_HOME", "/home/user/.cache")
	if got, err := defaultCache(); err != nil || got != "/home/user/.cache/hitless/build" {
		t.Errorf("defaultCache() = %q, %v", got, err)
	}
}

// A damaged binary is not listed.
func TestCachedAll(t *testing.T) {
	b, _ := newBuilder(t, newFakeGo(t))
	list := func() []Target {
		all, err := b.CachedAll(t.Context(), "kube-proxy")
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if got := list(); len(got) != 0 {
		t.Errorf("an empty cache has %v", got)
	}
	mustBuild(t, b, proxy, etcd)
	old := mustBuild(t, b, oldProxy)[0]
	if diff := cmp.Diff([]Target{oldProxy, proxy}, list()); diff != "" {
		t.Error("oldest first: ", diff)
	}
	if err := os.WriteFile(old.Path, []byte("damaged"), 0o755); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Target{proxy}, list()); diff != "" {
		t.Error("a damaged binary is listed: ", diff)
	}
}

// eventually waits for a condition of another process, of which nothing tells.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}
