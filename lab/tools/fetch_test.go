package tools

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/lab/debian"
)

const loader = "/lib64/ld.so"

// mirror serves packages, and counts the requests for each.
type mirror struct {
	*httptest.Server
	mutex    sync.Mutex
	packages map[string]string // content by path
	asked    map[string]int
}

func newMirror(t *testing.T) *mirror {
	t.Helper()
	m := &mirror{packages: map[string]string{}, asked: map[string]int{}}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/debian/")
		m.mutex.Lock()
		m.asked[name]++
		content, has := m.packages[name]
		m.mutex.Unlock()
		if !has {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(content))
	}))
	t.Cleanup(m.Close)
	t.Setenv(debian.MirrorVariable, m.URL+"/debian")
	return m
}

// add puts a package into the mirror.
func (m *mirror) add(t *testing.T, name, version string, files map[string]string) Package {
	t.Helper()
	deb := testfiles.Deb(t, ".xz", files)
	sum := sha256.Sum256([]byte(deb))
	p := Package{name, version, hex.EncodeToString(sum[:]), fmt.Sprintf("pool/main/%s_%s_%s.deb", name, version, architecture)}
	m.packages[p.Path] = deb
	return p
}

// library and tool are files of two packages: the tool needs the library, and both need the C library, which has the loader.
func (m *mirror) whole(t *testing.T) list {
	t.Helper()
	return list{
		m.add(t, "libc", "2", map[string]string{"lib64/ld.so": "->/lib/x86_64-linux-gnu/ld.so", "lib/x86_64-linux-gnu/ld.so": testfiles.ELF(t, "loader", ""),
			"lib/x86_64-linux-gnu/libc.so.6": testfiles.ELF(t, "libc", loader)}),
		m.add(t, "libtool", "1", map[string]string{"usr/lib/x86_64-linux-gnu/libtool.so.1": "->libtool.so.1.2", "usr/lib/x86_64-linux-gnu/libtool.so.1.2": testfiles.ELF(t, "libtool", "", "libc.so.6"),
			"usr/share/doc/libtool/copyright": "free"}),
		m.tool(t, "1", "libtool.so.1"),
	}
}

func (m *mirror) tool(t *testing.T, version string, needed ...string) Package {
	t.Helper()
	return m.add(t, "tool", version, map[string]string{"sbin/tool": testfiles.ELF(t, "tool "+version, loader, append(needed, "libc.so.6")...), "bin/other": "->/etc/alternatives/other",
		"usr/bin/script": "#!/bin/sh\n", "usr/lib/x86_64-linux-gnu/xtables/libxt_b.so": testfiles.ELF(t, "b", "", "libc.so.6"), "usr/lib/x86_64-linux-gnu/xtables/libxt_a.so": testfiles.ELF(t, "a", "")})
}

// get fetches and returns the lines of the report.
func get(t *testing.T, l list, dir string) (s Set, lines []string, err error) {
	t.Helper()
	s, err = fetch(t.Context(), l, dir, func(line string) { lines = append(lines, line) })
	return s, lines, err
}

func must(t *testing.T, l list, dir string) (Set, []string) {
	t.Helper()
	s, lines, err := get(t, l, dir)
	if err != nil {
		t.Fatal(err)
	}
	return s, lines
}

// offline ends the mirror, after which nothing can be downloaded.
func (m *mirror) offline() { m.Close() }

func TestFetchUnpacksOnce(t *testing.T) {
	m, dir := newMirror(t), t.TempDir()
	l := m.whole(t)
	s, _ := must(t, l, dir)
	if !slices.Equal(s.Packages, []string{"libc_2", "libtool_1", "tool_1"}) || s.Replaced != nil {
		t.Errorf("the packages are %q, replaced %q", s.Packages, s.Replaced)
	}
	f, has := s.Program("tool")
	text, err := os.ReadFile(f.Path)
	sum := sha256.Sum256(text)
	if !has || err != nil || f.Guest != "/usr/sbin/tool" || string(text) != testfiles.ELF(t, "tool 1", loader, "libtool.so.1", "libc.so.6") || hex.EncodeToString(sum[:]) != f.Sha256 {
		t.Errorf("%+v, %t, %v", f, has, err)
	}
	for _, not := range []string{"other", "libc.so.6", "../bin/script", ""} {
		if f, has := s.Program(not); has {
			t.Errorf("%q is the program %+v", not, f)
		}
	}
	var extensions []string
	for _, e := range s.Extensions() {
		extensions = append(extensions, path.Base(e.Guest))
	}
	if !slices.Equal(extensions, []string{"libxt_a.so", "libxt_b.so"}) {
		t.Errorf("the extensions are %q", extensions)
	}
	libraries, err := Libraries(f.Path, s.Root())
	if err != nil || len(libraries) != 3 {
		t.Errorf("the libraries are %v, %v", libraries, err)
	}
	for guest, file := range libraries {
		if _, has := s.Sum(file); !has {
			t.Errorf("%s is %s, which has no digest in the set", guest, file)
		}
	}
	m.offline()
	if _, lines := must(t, l, dir); lines != nil {
		t.Errorf("the second time reports %q", lines)
	}
	for name, n := range m.asked {
		if n != 1 {
			t.Errorf("%s was downloaded %d times", name, n)
		}
	}
}

// A set depends on the packages alone: not on the order of the list, the folder, or who unpacks it.
func TestSetsAreOfPackagesAlone(t *testing.T) {
	m := newMirror(t)
	l := m.whole(t)
	one, _ := must(t, l, t.TempDir())
	slices.Reverse(l)
	other, _ := must(t, l, filepath.Join(t.TempDir(), "else", "where"))
	if one.files.Digest() != other.files.Digest() {
		t.Errorf("%v, and %v", one.files, other.files)
	}
}

// Damage in the cache is found, reported, and made good: from the packages without a network, and from the mirror.
func TestDamagedToolsAreMadeAgain(t *testing.T) {
	for name, damage := range testfiles.Damages() {
		t.Run(name, func(t *testing.T) {
			m, dir := newMirror(t), t.TempDir()
			l := m.whole(t)
			s, _ := must(t, l, dir)
			f, _ := s.Program("tool")
			tool := f.Path
			deb := (&fetcher{dir: dir}).file(l[2])
			check := func(what string, report []string) {
				t.Helper()
				lines := strings.Join(report, "\n")
				if what != "" && !strings.Contains(lines, what) {
					t.Errorf("the report does not name %s: %q", what, lines)
				}
				if err := cache.CheckAll(t.Context(), s.dir, s.files, nil); err != nil {
					t.Error(err)
				}
			}
			damage(t, deb)
			damage(t, tool)
			_, lines := must(t, l, dir)
			check("sbin/tool", lines)
			if name != "deleted" {
				check(filepath.Base(deb), lines)
			}
			if m.asked[l[2].Path] != 2 || m.asked[l[0].Path] != 1 {
				t.Errorf("the downloads are %v", m.asked)
			}
			m.offline()
			damage(t, tool)
			_, lines = must(t, l, dir)
			check("sbin/tool", lines)
			damage(t, deb)
			damage(t, tool)
			if _, _, err := get(t, l, dir); err == nil || !strings.Contains(err.Error(), "sbin/tool") || !strings.Contains(err.Error(), debian.MirrorVariable) {
				t.Errorf("without a network: %v", err)
			}
		})
	}
}

// A file that is not the pinned one is refused with both digests, and nothing of it is used later.
func TestAnotherFileOfTheMirrorIsRefused(t *testing.T) {
	m, dir := newMirror(t), t.TempDir()
	l := m.whole(t)
	good := m.packages[l[2].Path]
	m.packages[l[2].Path] = testfiles.Deb(t, ".xz", map[string]string{"usr/sbin/tool": "evil"})
	sum := sha256.Sum256([]byte(m.packages[l[2].Path]))
	_, _, err := get(t, l, dir)
	if err == nil || !strings.Contains(err.Error(), l[2].Sha256) || !strings.Contains(err.Error(), hex.EncodeToString(sum[:])) {
		t.Errorf("%v", err)
	}
	if sets, _ := filepath.Glob(filepath.Join(dir, setPrefix+"*")); len(sets) > 0 {
		t.Errorf("there are %q", sets)
	}
	m.packages[l[2].Path] = good
	before := m.asked[l[2].Path]
	must(t, l, dir)
	if m.asked[l[2].Path] != before+1 {
		t.Error("the refused file was not downloaded again")
	}
}

// A list without a library is an error that names the library, the file and the package that need it.
func TestAMissingLibraryIsNamed(t *testing.T) {
	m, dir := newMirror(t), t.TempDir()
	l := m.whole(t)
	must(t, l, t.TempDir())
	_, _, err := get(t, slices.Delete(slices.Clone(l), 1, 2), dir)
	for _, part := range []string{"libtool.so.1", "usr/sbin/tool", "tool_1"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not name %s: %v", part, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*-*")); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
	if _, _, err := get(t, l[1:], dir); err == nil || !strings.Contains(err.Error(), "needs the shared library") {
		t.Errorf("without the loader: %v", err)
	}
}

// Two packages with one file are refused.
func TestTwoPackagesWithOneFile(t *testing.T) {
	m := newMirror(t)
	l := append(m.whole(t), m.add(t, "twin", "1", map[string]string{"usr/sbin/tool": "another tool"}))
	if _, _, err := get(t, l, t.TempDir()); err == nil || !strings.Contains(err.Error(), "usr/sbin/tool") || !strings.Contains(err.Error(), "twin_1") {
		t.Errorf("%v", err)
	}
}

// A download that fails keeps what is whole: the next one goes on with the rest.
func TestADownloadGoesOn(t *testing.T) {
	m, dir := newMirror(t), t.TempDir()
	l := m.whole(t)
	good := m.packages[l[2].Path]
	m.packages[l[2].Path] = good[:len(good)/2]
	must(t, l[:2], dir)
	if _, _, err := get(t, l, dir); err == nil {
		t.Error("half a package was accepted")
	}
	m.packages[l[2].Path] = good
	must(t, l, dir)
	if m.asked[l[0].Path] != 1 || m.asked[l[1].Path] != 1 || m.asked[l[2].Path] != 2 {
		t.Errorf("the downloads are %v", m.asked)
	}
}

// Several callers at once download each package once.
func TestCallersAtOnce(t *testing.T) {
	m, dir := newMirror(t), t.TempDir()
	l := m.whole(t)
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			if _, err := fetch(t.Context(), l, dir, func(string) {}); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	for name, n := range m.asked {
		if n != 1 {
			t.Errorf("%s was downloaded %d times", name, n)
		}
	}
}

// lists makes a stand-in of apt, whose fresh package lists of the release have these packages.
func lists(t *testing.T, dir string, packages ...Package) {
	t.Helper()
	bin, private := t.TempDir(), filepath.Join(dir, listsDir, Suite)
	if err := os.MkdirAll(private, 0o755); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{filepath.Join(private, "apt.conf"): "", filepath.Join(private, "fetched"): "",
		filepath.Join(bin, "apt-cache"): "#!/bin/sh\nfor name; do :; done\ncat \"" + bin + "/lists/$name\" 2>/dev/null || { echo \"E: No packages found\" >&2; exit 100; }\n"}
	for _, p := range packages {
		files[filepath.Join(bin, "lists", p.Name)] = fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: %s\nPre-Depends: libc\nDepends: libtool (>= 1) | other, virtual\nFilename: %s\nSHA256: %s\n",
			p.Name, p.Version, architecture, p.Path, p.Sha256)
	}
	for file, text := range files {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":/usr/bin:/bin")
}

// A package that the mirror does not have any more is replaced by the one that the signed lists name. The set says so, also later and
// without a network. Another list has another set.
func TestAPackageThatIsGoneIsReplaced(t *testing.T) {
	m, dir := newMirror(t), t.TempDir()
	l := m.whole(t)
	delete(m.packages, l[2].Path)
	newer := m.tool(t, "2", "libtool.so.1")
	lists(t, dir, newer)
	s, lines := must(t, l, dir)
	if !slices.Equal(s.Replaced, []string{"tool_2"}) || !slices.Contains(s.Packages, "tool_2") || slices.Contains(s.Packages, "tool_1") {
		t.Errorf("the packages are %q, replaced %q", s.Packages, s.Replaced)
	}
	if text := strings.Join(lines, "\n"); !strings.Contains(text, "tool_1") || !strings.Contains(text, "tool_2") {
		t.Errorf("the report is %q", text)
	}
	m.offline()
	again, lines := must(t, l, dir)
	if !slices.Equal(again.Replaced, []string{"tool_2"}) || lines != nil {
		t.Errorf("later: %+v, %q", again, lines)
	}
	if err := os.Remove(filepath.Join(dir, replacedPrefix+l.digest())); err != nil {
		t.Fatal(err)
	}
	if s, _, err := get(t, l, dir); err == nil {
		t.Errorf("the set of other packages is used as %+v", s)
	}
}

// Where nothing replaces a package that is gone, the error names it and says what to do.
func TestAPackageThatIsGoneForGood(t *testing.T) {
	for name, c := range map[string]struct {
		listed func(m *mirror, old Package) []Package
		say    string
	}{
		"no lists name it":         {func(*mirror, Package) []Package { return nil }, debian.MirrorVariable},
		"the lists name it":        {func(_ *mirror, old Package) []Package { return []Package{old} }, "try it again later"},
		"the newer one lacks more": {func(m *mirror, _ Package) []Package { return []Package{m.tool(t, "3", "libnew.so.4")} }, "libnew.so.4"},
	} {
		t.Run(name, func(t *testing.T) {
			m, dir := newMirror(t), t.TempDir()
			l := m.whole(t)
			delete(m.packages, l[2].Path)
			lists(t, dir, c.listed(m, l[2])...)
			_, _, err := get(t, l, dir)
			if err == nil || !strings.Contains(err.Error(), "tool_") || !strings.Contains(err.Error(), c.say) {
				t.Errorf("%v", err)
			}
			if sets, _ := filepath.Glob(filepath.Join(dir, setPrefix+"*")); len(sets) > 0 {
				t.Errorf("there are %q", sets)
			}
		})
	}
	m := newMirror(t)
	l := m.whole(t)
	delete(m.packages, l[2].Path)
	t.Setenv("PATH", t.TempDir())
	if _, _, err := get(t, l, t.TempDir()); err == nil || !strings.Contains(err.Error(), "tool_1") || !strings.Contains(err.Error(), debian.MirrorVariable) {
		t.Errorf("without apt: %v", err)
	}
}

// The full check of a cache finds damage in packages and in sets.
func TestEntriesFindDamage(t *testing.T) {
	m, dir := newMirror(t), t.TempDir()
	l := m.whole(t)
	delete(m.packages, l[2].Path)
	lists(t, dir, m.tool(t, "2", "libtool.so.1"))
	s, _ := must(t, l, dir)
	inspect := func() map[string]cache.State {
		t.Helper()
		entries, err := Entries(dir)
		if err != nil {
			t.Fatal(err)
		}
		states := map[string]cache.State{}
		for _, e := range entries {
			if err := e.Inspect(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			states[e.Path] = e.State
		}
		return states
	}
	for path, state := range inspect() {
		if state != cache.Intact {
			t.Errorf("%s is %s", path, state)
		}
	}
	f, _ := s.Program("tool")
	deb, replaced := (&fetcher{dir: dir}).file(l[0]), filepath.Join(dir, replacedPrefix+l.digest())
	for _, file := range []string{f.Path, deb, replaced} {
		testfiles.Damages()["one flipped byte"](t, file)
	}
	states := inspect()
	if states[s.dir] != cache.Damaged || states[deb] != cache.Damaged || states[replaced] != cache.Damaged || len(states) != 5 {
		t.Errorf("the states are %v", states)
	}
}

// Pin takes the packages of programs and, of those that they depend on, the ones with libraries that they need.
func TestPin(t *testing.T) {
	m, dir := newMirror(t), t.TempDir()
	l := m.whole(t)
	other := m.add(t, "other", "1", nil)
	lists(t, dir, append(l, other)...)
	text, compiler, err := Pin(t.Context(), dir, []string{"tool"}, []string{"other"}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	pinned, err := parseList(text)
	if err != nil || !slices.Equal(pinned, l) {
		t.Errorf("%q, %v", text, err)
	}
	if more, err := parseList(compiler); err != nil || !slices.Equal(more, list{other}) {
		t.Errorf("the packages of a compiler: %q, %v", compiler, err)
	}
	lists(t, dir, l[0], l[2])
	if _, _, err := Pin(t.Context(), dir, []string{"tool"}, nil, func(string) {}); err == nil || !strings.Contains(err.Error(), "libtool.so.1") {
		t.Errorf("without a package of a library: %v", err)
	}
}
