package build

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/module"
)

func TestRepositoryRoot(t *testing.T) {
	for in, want := range map[string]string{
		"github.com/spf13/pflag":             "github.com/spf13/pflag",
		"github.com/docker/docker/pkg/term":  "github.com/docker/docker",
		"bitbucket.org/ww/goautoneg":         "bitbucket.org/ww/goautoneg",
		"golang.org/x/net/http2/hpack":       "golang.org/x/net",
		"gopkg.in/yaml.v2":                   "gopkg.in/yaml.v2",
		"gopkg.in/square/go-jose.v2/jwt":     "gopkg.in/square/go-jose.v2",
		"k8s.io/kube-openapi/pkg/util/proto": "k8s.io/kube-openapi",
		"sigs.k8s.io/yaml":                   "sigs.k8s.io/yaml",
		"short":                              "short",
	} {
		if got := repositoryRoot(in); got != want {
			t.Errorf("repositoryRoot(%q) = %q, want %q", in, got, want)
		}
	}
}

const testPins = `
pin a.com/exact v0.0.0-20170101000000-aaaaaaaaaaaa
pin a.com/exact v0.0.0-20180101000000-bbbbbbbbbbbb
pin a.com/exact v2.0.1-0.20190101000000-cccccccccccc+incompatible
pin a.com/held v0.0.0-20180101000000-bbbbbbbbbbbb
pin a.com/held v0.0.0-20180601000000-dddddddddddd
standin a.com/held eeeeeeeeeeee v0.0.0-20180101000000-bbbbbbbbbbbb no public file names it
moved a.com/gone/one b.com/found v0.0.0-20120101000000-ffffffffffff v0.0.0-20190101000000-999999999999
floor a.com/trap v1.0.2 it is a trap
`

func TestGodepsCandidates(t *testing.T) {
	dep := func(path, rev, comment string) string {
		return `{"ImportPath": "` + path + `", "Rev": "` + rev + `0000", "Comment": "` + comment + `"}`
	}
	for name, c := range map[string]struct {
		deps []string
		path string
		want []string
	}{
		"pin of the revision first": {
			[]string{dep("a.com/exact/sub", "aaaaaaaaaaaa", "v0.9.0-3-gaaaa")}, "a.com/exact",
			[]string{"v0.0.0-20170101000000-aaaaaaaaaaaa", "v2.0.1-0.20190101000000-cccccccccccc+incompatible!", "v0.0.0-20180101000000-bbbbbbbbbbbb!"},
		},
		"the suffix +incompatible does not hide a revision": {
			[]string{dep("a.com/exact", "cccccccccccc", "")}, "a.com/exact",
			[]string{"v2.0.1-0.20190101000000-cccccccccccc+incompatible", "v0.0.0-20180101000000-bbbbbbbbbbbb!", "v0.0.0-20170101000000-aaaaaaaaaaaa!"},
		},
		"a plain tag": {[]string{dep("a.com/tagged", "123456789abc", "v1.0.1")}, "a.com/tagged", []string{"v1.0.1"}},
		"a tag of major version 2": {
			[]string{dep("a.com/tagged", "123456789abc", "v2.0.1")}, "a.com/tagged", []string{"v2.0.1+incompatible"},
		},
		"gopkg.in keeps its major version": {
			[]string{dep("gopkg.in/yaml.v2", "123456789abc", "v2.2.1")}, "gopkg.in/yaml.v2", []string{"v2.2.1"},
		},
		"stand-in before any other pin": {
			[]string{dep("a.com/held", "eeeeeeeeeeee", "")}, "a.com/held",
			[]string{"v0.0.0-20180101000000-bbbbbbbbbbbb!", "v0.0.0-20180601000000-dddddddddddd!"},
		},
		"any other pin, newest first": {
			[]string{dep("a.com/held", "123456789abc", "")}, "a.com/held",
			[]string{"v0.0.0-20180601000000-dddddddddddd!", "v0.0.0-20180101000000-bbbbbbbbbbbb!"},
		},
		"moved": {[]string{dep("a.com/gone/one", "123456789abc", "")}, "a.com/gone", nil},
		"raised to the floor": {
			[]string{dep("a.com/trap", "123456789abc", "v1.0.1")}, "a.com/trap", []string{"v1.0.2!"},
		},
		"floor without any pin": {
			[]string{dep("a.com/trap", "123456789abc", "1.0.0")}, "a.com/trap", []string{"v1.0.2!"},
		},
		"above the floor": {[]string{dep("a.com/trap", "123456789abc", "v1.0.3")}, "a.com/trap", []string{"v1.0.3"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := godepsOf(t, c.deps).candidates(c.path)
			if c.want == nil {
				if err == nil {
					t.Fatalf("candidates are %v, want none", got)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, summary(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// godepsOf makes a source from entries of a Godeps.json and testPins.
func godepsOf(t *testing.T, deps []string) *godeps {
	t.Helper()
	d, err := parseData(testPins)
	if err != nil {
		t.Fatal(err)
	}
	root := module.Version{Path: "k8s.io/kubernetes", Version: "v1.12.2"}
	s, err := readGodeps(d, root, t.TempDir(), []byte(`{"Deps": [`+strings.Join(deps, ",")+`]}`))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// summary lists versions; those that come with a note have an exclamation mark.
func summary(list []candidate) []string {
	var out []string
	for _, c := range list {
		v := c.Mod.Version
		if c.Note != "" {
			v += "!"
		}
		out = append(out, v)
	}
	return out
}

func TestGodepsMoved(t *testing.T) {
	const gone = `{"ImportPath": "bitbucket.org/ww/goautoneg", "Rev": "75cd24fc2f2c2a2088577d12123ddee5f54e0675"}`
	const none = `{"ImportPath": "a.com/x", "Rev": "123456789abcdef"}`
	const both = gone + `, {"ImportPath": "github.com/munnerz/goautoneg", "Rev": "a547fc61f48d567d5b4ec6f8aee5573d8efce11d"}`
	d, err := embedded()
	if err != nil {
		t.Fatal(err)
	}
	for deps, want := range map[string]string{
		gone: "v0.0.0-20120707110453-a547fc61f48d", none: "v0.0.0-20120707110453-a547fc61f48d", both: "v0.0.0-20191010083416-a7dc8b61c822",
	} {
		s, err := readGodeps(d, module.Version{}, t.TempDir(), []byte(`{"Deps": [`+deps+`]}`))
		if err != nil {
			t.Fatal(err)
		}
		if !s.has("bitbucket.org/ww/goautoneg") {
			t.Errorf("the moved repository is not known with %s", deps)
		}
		got, err := s.candidates("bitbucket.org/ww/goautoneg")
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 1 || got[0].Mod != (module.Version{Path: "github.com/munnerz/goautoneg", Version: want}) || got[0].Note == "" {
			t.Errorf("candidates are %v, want %s with a note", got, want)
		}
	}
}

func TestGodepsErrorNamesTheRevision(t *testing.T) {
	_, err := godepsOf(t, []string{`{"ImportPath": "a.com/none", "Rev": "123456789abcdef"}`}).candidates("a.com/none")
	for _, part := range []string{"k8s.io/kubernetes@v1.12.2", "123456789abc", "a.com/none", "table of pins"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v does not say %q", err, part)
		}
	}
}

func TestGoModCandidates(t *testing.T) {
	const text = `module k8s.io/kubernetes
go 1.13
require (
	k8s.io/api v0.0.0
	go.etcd.io/etcd/api/v3 v3.6.4
	a.com/plain v1.2.0
	a.com/pinned v1.9.0
	github.com/modern-go/reflect2 v1.0.1
)
replace (
	k8s.io/api => ./staging/src/k8s.io/api
	go.etcd.io/etcd/api/v3 => ../api
	a.com/pinned => a.com/pinned v1.3.0
	a.com/gone => b.com/found v1.0.0
)
`
	d, err := embedded()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		root, path string
		want       []string
	}{
		{"v1.18.20", "k8s.io/api", []string{"v0.18.20", "v0.18.19!", "v0.18.18!", "v0.18.17!"}},
		{"v1.26.1", "k8s.io/api", []string{"v0.26.1", "v0.26.0!"}},
		{"v1.26.0", "k8s.io/api", []string{"v0.26.0"}},
		{"v1.37.0-rc.1", "k8s.io/api", []string{"v0.37.0-rc.1"}},
		{"v1.26.0", "go.etcd.io/etcd/api/v3", []string{"v3.6.4"}},
		{"v1.26.0", "a.com/plain", []string{"v1.2.0"}},
		{"v1.26.0", "a.com/pinned", []string{"v1.3.0"}},
		{"v1.26.0", "a.com/gone", []string{"v1.0.0"}},
		{"v1.26.0", "github.com/modern-go/reflect2", []string{"v1.0.2!"}},
	} {
		s, err := readGoMod(d, module.Version{Path: "k8s.io/kubernetes", Version: c.root}, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.candidates(c.path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, summary(got)); diff != "" {
			t.Errorf("%s of %s: %s", c.path, c.root, diff)
		}
		if !s.has(c.path) || s.has(c.path+"/sub") {
			t.Errorf("has does not know %s exactly", c.path)
		}
	}
}

func TestHead(t *testing.T) {
	for text, want := range map[string]string{
		"module m\n": "1.17", "module m\ngo 1.13\n": "1.17", "module m\ngo 1.26.0\ngodebug default=go1.25\n": "1.26.0 default=go1.25",
	} {
		s, err := readGoMod(&dataset{}, module.Version{}, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		line, godebug := s.directives()
		if got := strings.Join(append([]string{line}, godebug...), " "); got != want {
			t.Errorf("head of %q is %q, want %q", text, got, want)
		}
	}
}
