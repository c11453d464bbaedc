package build

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/mod/module"
)

// fakeGo is a go command whose modules are directories of the test.
type fakeGo struct {
	info     goInfo
	infoErr  error
	modules  map[string]string // module@version to directory
	failures map[string]string // module@version to the go command's message
	unlisted map[string]bool   // module@version unknown to the checksum database
	refuse   string            // what the compiler prints when it refuses
	refuses  string            // the only package that the compiler refuses; all when empty
	block    chan struct{}     // when set, a build waits for it or for the context; not the one that refuses

	mu        sync.Mutex
	downloads []string
	jobs      []job
	mods      []string // the go.mod of each job
}

func (f *fakeGo) describe(context.Context) (goInfo, error) { return f.info, f.infoErr }

func (f *fakeGo) download(_ context.Context, _ string, verify bool, mods []module.Version) ([]download, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []download
	for _, m := range mods {
		f.downloads = append(f.downloads, m.String())
		d := download{Path: m.Path, Version: m.Version}
		dir, served := f.modules[m.String()]
		switch {
		case f.failures[m.String()] != "":
			d.Error = f.failures[m.String()]
		case !served:
			d.Error = fmt.Sprintf("%s: reading https://proxy.example.com/%s.info: 404 Not Found", m, m)
		case verify && f.unlisted[m.String()]:
			d.Error = fmt.Sprintf("%s: verifying go.mod: %s/go.mod: reading https://sums.example.com/lookup/%s: 404 Not Found", m, m, m)
		default:
			d.Dir, d.Sum, d.GoModSum = dir, "h1:zip-of-"+m.String(), "h1:mod-of-"+m.String()
		}
		list = append(list, d)
	}
	return list, nil
}

func (f *fakeGo) build(ctx context.Context, j job) error {
	text, err := os.ReadFile(filepath.Join(j.Dir, "go.mod"))
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.jobs, f.mods = append(f.jobs, j), append(f.mods, string(text))
	f.mu.Unlock()
	refused := f.refuse != "" && (f.refuses == "" || slices.Contains(j.Packages, f.refuses))
	if f.block != nil && !refused {
		select {
		case <-f.block:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if refused {
		return &compileError{Output: f.refuse}
	}
	for _, pkg := range j.Packages {
		name := strings.TrimSuffix(pkg, "/v3")
		if err := os.WriteFile(filepath.Join(j.Out, path.Base(name)), []byte("binary of "+pkg), 0o755); err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeGo) compiled() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.jobs)
}

// files writes a tree of files, named with slashes, and returns its directory.
func files(t *testing.T, tree map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		full := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(tree[name]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// source of a package that imports the given ones.
func pkg(name string, imports ...string) string {
	text := "package " + name + "\n"
	for _, i := range imports {
		text += fmt.Sprintf("import _ %q\n", i)
	}
	return text
}

// newFakeGo is a Go installation with a standard library of two packages, a Kubernetes 1.37.1 and 1.12.2, and an etcd.
func newFakeGo(t *testing.T) *fakeGo {
	t.Helper()
	goroot := files(t, map[string]string{"src/fmt/print.go": pkg("fmt"), "src/net/http/http.go": pkg("http")})
	f := &fakeGo{
		info: goInfo{
			Version: "go1.26.8", Root: goroot, Tags: releaseTags("go1.26.8"),
			Proxies: "https://proxy.example.com|https://mirror.example.org/go,direct", SumDB: "sums.example.com",
		},
		modules:  map[string]string{},
		failures: map[string]string{},
		unlisted: map[string]bool{},
	}
	f.modules["k8s.io/kubernetes@v1.37.1"] = files(t, map[string]string{
		"go.mod": "module k8s.io/kubernetes\n\ngo 1.26.0\n\ngodebug default=go1.26\n\n" +
			"require (\n\tk8s.io/api v0.0.0\n\texample.com/only/proxy v1.4.0\n)\n\nreplace k8s.io/api => ./staging/src/k8s.io/api\n",
		"cmd/kube-proxy/main.go":     pkg("main", "fmt", "k8s.io/api/core", "example.com/only/proxy"),
		"cmd/kube-apiserver/main.go": pkg("main", "net/http", "k8s.io/api/core"),
	})
	f.modules["k8s.io/api@v0.37.0"] = files(t, map[string]string{"core/core.go": pkg("core")})
	f.modules["example.com/only/proxy@v1.4.0"] = files(t, map[string]string{"proxy.go": pkg("proxy")})
	f.modules["k8s.io/kubernetes@v1.12.2"] = files(t, map[string]string{
		"Godeps/Godeps.json": `{"Deps": [
			{"ImportPath": "github.com/modern-go/reflect2", "Rev": "05fbef0ca5da472bbf96c9322b84a53edc03c9fd", "Comment": "1.0.0"},
			{"ImportPath": "github.com/spf13/pflag", "Rev": "583c0c0531f06d5278b7d917446061adc344b5cd", "Comment": "v1.0.1"}]}`,
		"cmd/kube-proxy/main.go":                  pkg("main", "k8s.io/api/core", "github.com/spf13/pflag"),
		"staging/src/k8s.io/api/core/core.go":     pkg("core", "github.com/modern-go/reflect2"),
		"staging/src/k8s.io/api/core/core_arm.go": pkg("core", "example.com/only/on/arm"),
	})
	f.modules["github.com/spf13/pflag@v1.0.1"] = files(t, map[string]string{"flag.go": pkg("pflag")})
	f.modules["github.com/modern-go/reflect2@v1.0.2"] = files(t, map[string]string{"reflect2.go": pkg("reflect2")})
	f.modules["go.etcd.io/etcd/server/v3@v3.7.0"] = files(t, map[string]string{
		"go.mod":  "module go.etcd.io/etcd/server/v3\n\ngo 1.26\n\nrequire go.etcd.io/etcd/api/v3 v3.7.0\n\nreplace go.etcd.io/etcd/api/v3 => ../api\n",
		"main.go": pkg("main", "go.etcd.io/etcd/api/v3/version"),
	})
	f.modules["go.etcd.io/etcd/api/v3@v3.7.0"] = files(t, map[string]string{"version/version.go": pkg("version")})
	return f
}
