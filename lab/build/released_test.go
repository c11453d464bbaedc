package build

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/module"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/testfiles"
)

// newReleased is a Builder of released programs, whose go command fails the test.
func newReleased(t *testing.T) (*Builder, *[]Step) {
	t.Helper()
	var steps []Step
	return &Builder{Cache: t.TempDir(), Programs: Released, Progress: func(s Step) { steps = append(steps, s) }, tool: noGo{t}}, &steps
}

// noGo is a go command that must not be called.
type noGo struct{ *testing.T }

func (n noGo) describe(context.Context) (goInfo, error) {
	n.Error("the go command is called")
	return goInfo{}, errNoGo
}
func (n noGo) download(context.Context, string, bool, []module.Version) ([]download, error) {
	return nil, errNoGo
}
func (n noGo) build(context.Context, job) error { return errNoGo }

// failed builds kube-proxy, which must fail for a reason, name parts, and leave no program.
func failed(t *testing.T, b *Builder, why error, parts ...string) {
	t.Helper()
	_, err := b.Build(t.Context(), proxy)
	if !errors.Is(err, why) {
		t.Fatalf("the error is %v, want %v", err, why)
	}
	for _, part := range append(parts, proxy.String(), "--programs built") {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
	noProgram(t, b)
}

func noProgram(t *testing.T, b *Builder) {
	t.Helper()
	if bin, ok := b.Cached(proxy); ok {
		t.Errorf("the cache has %+v", bin)
	}
	if list, err := os.ReadDir(filepath.Join(b.Cache, "released")); err == nil && len(list) > 0 {
		t.Errorf("the cache has %v", list)
	}
}

func unfinished(t *testing.T, b *Builder) int64 {
	t.Helper()
	return cache.Size(filepath.Join(b.Cache, "work"))
}

func TestReleasedProgramsAreDownloadedOnce(t *testing.T) {
	s := newStandIn(t)
	b, steps := newReleased(t)
	list := mustBuild(t, b, etcd, proxy, etcd)
	for i, want := range []string{"the program etcd", string(content256(1)), "the program etcd"} {
		info, err := os.Stat(list[i].Path)
		if err != nil || info.Mode().Perm() != 0o755 || content(t, list[i].Path) != want || list[i].Sha256 != sum256([]byte(want)) || list[i].Source != Released {
			t.Errorf("binary %d is %+v: %v, %v", i, list[i], info, err)
		}
	}
	if notes := strings.Join(list[1].Notes, "\n"); !strings.Contains(notes, sum256(content256(1))) {
		t.Errorf("the notes have no checksum: %s", notes)
	}
	s.serving.Wait()
	requests := len(s.requests)
	again := &Builder{Cache: b.Cache, Programs: Released}
	if diff := cmp.Diff(list, mustBuild(t, again, etcd, proxy, etcd)); diff != "" || len(s.requests) != requests {
		t.Errorf("the second call makes %d requests: %s", len(s.requests)-requests, diff)
	}
	last := (*steps)[len(*steps)-1]
	if whole := int64(len(content256(1))); last.Bytes != whole || last.Total != whole || !strings.HasPrefix(last.Text, proxy.String()) {
		t.Errorf("the last step is %+v", last)
	}
	if unfinished(t, b) != 0 {
		t.Error("files of downloads stay")
	}
}

// Built and released programs have entries of their own; so have two mirrors.
func TestReleasedAndBuiltProgramsAreKeptApart(t *testing.T) {
	newStandIn(t)
	f := newFakeGo(t)
	b, _ := newBuilder(t, f)
	built := mustBuild(t, b, proxy)[0]
	released := &Builder{Cache: b.Cache, Programs: Released}
	noProgram(t, released)
	got := mustBuild(t, released, proxy)[0]
	if got.Path == built.Path || got.Sha256 == built.Sha256 || built.Source != "" {
		t.Errorf("built is %+v, released %+v", built, got)
	}
	if again, ok := b.Cached(proxy); !ok || again.Path != built.Path {
		t.Errorf("built is now %+v", again)
	}
	newStandIn(t)
	if bin, ok := released.Cached(proxy); ok {
		t.Errorf("another mirror has %+v", bin)
	}
}

func TestWrongChecksum(t *testing.T) {
	s := newStandIn(t)
	s.files[proxyPath+".sha256"] = []byte(sum256([]byte("another program")) + "\n")
	b, _ := newReleased(t)
	failed(t, b, ErrChecksum, s.URL+proxyPath, sum256(content256(1)), sum256([]byte("another program")))
	if unfinished(t, b) != 0 {
		t.Error("the wrong program stays")
	}
	s.put(proxyPath, content256(1)) // the twin
	mustBuild(t, b, proxy)
}

func TestNoChecksumThatProtects(t *testing.T) {
	s := newStandIn(t)
	delete(s.files, proxyPath+".sha256")
	s.files[proxyPath+".sha1"] = []byte(strings.Repeat("0", 40))
	b, _ := newReleased(t)
	failed(t, b, ErrUnverified, s.URL+proxyPath, "SHA-1")
	if len(s.of(http.MethodGet, proxyPath)) != 0 {
		t.Error("the program is downloaded")
	}
	s.files[proxyPath+".sha256"] = []byte(strings.Repeat("0", 40))
	failed(t, b, errDownload, proxyPath+".sha256")
	delete(s.files, proxyPath+".sha256")
	s.files[proxyPath+".sha512"] = []byte(sum512(content256(1)) + "  kube-proxy\n") // the twin
	if notes := mustBuild(t, b, proxy)[0].Notes[0]; !strings.Contains(notes, "SHA-512") {
		t.Error(notes)
	}
}

func TestNoSuchRelease(t *testing.T) {
	s := newStandIn(t)
	clear(s.files)
	b, _ := newReleased(t)
	failed(t, b, ErrNotReleased, s.URL+proxyPath, "404", "version may not exist")
	s.put(proxyPath, content256(1))
	mustBuild(t, b, proxy)
}

func TestServerError(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	defer s.Close()
	t.Setenv(kubernetesMirror, s.URL)
	b, _ := newReleased(t)
	failed(t, b, errDownload, "503", kubernetesMirror)
}

// A download that ends early continues with the byte after the last one.
func TestInterruptedDownloadContinues(t *testing.T) {
	s := newStandIn(t)
	b, steps := newReleased(t)
	const half = 128 << 10
	s.cut = half
	_, err := b.Build(t.Context(), proxy)
	if !errors.Is(err, errDownload) || !strings.Contains(err.Error(), "continues there") {
		t.Fatalf("a truncated download: %v", err)
	}
	noProgram(t, b)
	if bytes := unfinished(t, b); bytes < half {
		t.Errorf("%d bytes stay", bytes)
	}
	s.change(func() { s.cut = 0 })
	if got := content(t, mustBuild(t, b, proxy)[0].Path); got != string(content256(1)) {
		t.Error("the program is not the released one")
	}
	want := []seenRequest{{http.MethodGet, proxyPath, "", 0, half}, {http.MethodGet, proxyPath, "", half, 256<<10 - half}}
	if diff := cmp.Diff(want, s.of(http.MethodGet, proxyPath), cmp.AllowUnexported(seenRequest{}), cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".host" }, cmp.Ignore())); diff != "" {
		t.Error(diff)
	}
	seen := false
	for _, step := range *steps {
		seen = seen || step.Bytes == half && step.Total == 256<<10
	}
	if !seen {
		t.Errorf("no step has the %d bytes that were there: %+v", half, *steps)
	}
}

// In these cases a download cannot continue an earlier one. It starts from the beginning, and the program is right.
func TestEarlierBytesThatDoNotFit(t *testing.T) {
	for name, change := range map[string]func(s *standIn, b *Builder){
		"the server ignores ranges": func(s *standIn, _ *Builder) { s.noRange = true },
		"the file and its sum changed": func(s *standIn, _ *Builder) {
			s.files[proxyPath] = content256(2)
			s.files[proxyPath+".sha256"] = []byte(sum256(content256(2)))
		},
		"the file changed, with an ETag": func(s *standIn, _ *Builder) { s.files[proxyPath] = content256(1) },
		"the bytes are damaged": func(_ *standIn, b *Builder) {
			overwrite(b, func(data []byte) []byte { data[7]++; return data })
		},
		"there are too many bytes": func(_ *standIn, b *Builder) {
			overwrite(b, func(data []byte) []byte { return append(data, content256(3)...) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStandIn(t)
			b, _ := newReleased(t)
			s.noETag = strings.Contains(name, "its sum")
			if strings.Contains(name, "with an ETag") { // the sum was published before the file
				s.files[proxyPath] = content256(3)
			}
			s.cut = 100_000
			if _, err := b.Build(t.Context(), proxy); !errors.Is(err, errDownload) {
				t.Fatal(err)
			}
			s.change(func() { s.cut = 0; change(s, b) })
			bin := mustBuild(t, b, proxy)[0]
			if got := content(t, bin.Path); got != string(s.files[proxyPath]) {
				t.Error("the program is not the released one")
			}
			all := s.of(http.MethodGet, proxyPath)
			requests := 2
			if strings.HasPrefix(name, "the bytes") || strings.HasPrefix(name, "there are") { // only the digest shows it
				requests = 3
			}
			if last := all[len(all)-1]; last.first != 0 || last.sent != 256<<10 || len(all) != requests {
				t.Errorf("the answers are %+v", all)
			}
		})
	}
}

// Without a validator the digest decides whether the parts fit.
func TestServerWithoutValidator(t *testing.T) {
	s := newStandIn(t)
	s.noETag, s.cut = true, 100_000
	b, _ := newReleased(t)
	_, _ = b.Build(t.Context(), proxy)
	s.change(func() { s.cut = 0 })
	mustBuild(t, b, proxy)
	if all := s.of(http.MethodGet, proxyPath); len(all) != 2 || all[1].first != 100_000 {
		t.Errorf("%+v", all)
	}
}

func TestServerContinuesElsewhere(t *testing.T) {
	s := newStandIn(t)
	s.cut = 100_000
	b, _ := newReleased(t)
	_, _ = b.Build(t.Context(), proxy)
	s.change(func() { s.cut, s.wrong = 0, true })
	if _, err := b.Build(t.Context(), proxy); !errors.Is(err, errDownload) {
		t.Errorf("%v", err)
	}
	noProgram(t, b)
	mustBuild(t, b, proxy)
}

func overwrite(b *Builder, change func([]byte) []byte) {
	files, _ := filepath.Glob(filepath.Join(b.Cache, "work", "*", partFile))
	data, _ := os.ReadFile(files[0])
	_ = os.WriteFile(files[0], change(data), 0o644)
}

func TestCancelledDownload(t *testing.T) {
	s := newStandIn(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.silent, s.halfway = make(chan struct{}), cancel
	b, _ := newReleased(t)
	if _, err := b.Build(ctx, proxy); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	noProgram(t, b)
	s.change(func() { s.silent = nil })
	if got := content(t, mustBuild(t, b, proxy)[0].Path); got != string(content256(1)) {
		t.Error("the program is not the released one")
	}
}

func TestSilentServer(t *testing.T) {
	s := newStandIn(t)
	s.silent = make(chan struct{})
	b, _ := newReleased(t)
	b.stall = 200 * time.Millisecond
	if _, err := b.Build(t.Context(), proxy); !errors.Is(err, errStalled) {
		t.Errorf("the error is %v", err)
	}
	noProgram(t, b)
}

// An artifact larger than the bound is refused before it is downloaded.
func TestLargeRelease(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".sha256") {
			_, _ = w.Write([]byte(sum256(nil)))
			return
		}
		w.Header().Set("Content-Length", "1000000000")
	}))
	defer s.Close()
	t.Setenv(kubernetesMirror, s.URL)
	b, _ := newReleased(t)
	if _, err := b.Build(t.Context(), proxy); !errors.Is(err, errDownload) || !strings.Contains(err.Error(), "1000.0 MB") || unfinished(t, b) != 0 {
		t.Errorf("%d bytes are kept; the error is %v", unfinished(t, b), err)
	}
	noProgram(t, b)
}

func TestNoNetwork(t *testing.T) {
	s := newStandIn(t)
	s.Close()
	b, _ := newReleased(t)
	failed(t, b, ErrOffline, s.URL+proxyPath, "HTTPS_PROXY", kubernetesMirror)
}

func TestMirrorThatIsNoAddress(t *testing.T) {
	for _, text := range []string{"mirror.example.com", "ftp://mirror.example.com", "http://user:secret@ /"} {
		t.Setenv(kubernetesMirror, text)
		b, _ := newReleased(t)
		if _, err := b.Build(t.Context(), proxy); err == nil || !strings.Contains(err.Error(), kubernetesMirror) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// net/http reads the proxy's variables once, and never uses one for loopback. So another process downloads from a name that only the
// proxy can reach.
func TestThroughAProxy(t *testing.T) {
	const host = "releases.example"
	if dir := os.Getenv("HITLESS_TEST_PROXY_CACHE"); dir != "" {
		b := &Builder{Cache: dir, Programs: Released}
		if got := mustBuild(t, b, proxy)[0]; got.Sha256 != sum256(content256(1)) {
			t.Errorf("%+v", got)
		}
		return
	}
	s := newStandIn(t)
	for proxyAddress, want := range map[string]bool{s.URL: true, "http://127.0.0.1:1": false} {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestThroughAProxy$")
		child.Env = append(os.Environ(), "HTTP_PROXY="+proxyAddress, "NO_PROXY=", "HITLESS_TEST_PROXY_CACHE="+t.TempDir(), kubernetesMirror+"=http://"+host)
		out, err := child.CombinedOutput()
		if (err == nil) != want || !want && !strings.Contains(string(out), ErrOffline.Error()) {
			t.Errorf("through %s: %v\n%s", proxyAddress, err, out)
		}
	}
	if all := s.of(http.MethodGet, proxyPath); len(all) != 1 || all[0].host != host {
		t.Errorf("the proxy has seen %+v", all)
	}
}

// A redirect to plain HTTP would take away what HTTPS protects.
func TestRedirectToPlainHTTP(t *testing.T) {
	s := newStandIn(t)
	secure := httptest.NewTLSServer(http.RedirectHandler(s.URL+proxyPath, http.StatusFound))
	defer secure.Close()
	client := newClient()
	client.Transport.(*http.Transport).TLSClientConfig = secure.Client().Transport.(*http.Transport).TLSClientConfig
	if answer, err := client.Get(secure.URL); err == nil {
		answer.Body.Close()
		t.Error("it is followed")
	}
	plain := httptest.NewServer(http.RedirectHandler(s.URL+proxyPath, http.StatusFound)) // the twin
	defer plain.Close()
	answer, err := client.Get(plain.URL)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
}

func TestConcurrentDownloadsAreOne(t *testing.T) {
	s := newStandIn(t)
	s.silent = make(chan struct{})
	dir, waiting := t.TempDir(), make(chan struct{}, 3)
	var group sync.WaitGroup
	for range 3 {
		b := &Builder{Cache: dir, Programs: Released, Progress: func(step Step) {
			if strings.Contains(step.Text, "waiting for another process") {
				waiting <- struct{}{}
			}
		}}
		group.Go(func() {
			if _, err := b.Build(t.Context(), proxy); err != nil {
				t.Error(err)
			}
		})
	}
	<-waiting
	<-waiting
	close(s.silent)
	group.Wait()
	if n := len(s.of(http.MethodGet, proxyPath)); n != 1 {
		t.Errorf("%d downloads", n)
	}
}

// Each damage of a released program or of its description is reported and repaired. Without a network it is named, and not used.
func TestDamagedReleaseIsDownloadedAgain(t *testing.T) {
	for what, file := range map[string]func(Binary) string{
		"program":     func(bin Binary) string { return bin.Path },
		"description": func(bin Binary) string { return filepath.Join(filepath.Dir(bin.Path), binaryFile) },
	} {
		for name, damage := range testfiles.Damages() {
			if what != "program" && name == "one flipped byte" {
				continue // its digest is that of the program
			}
			t.Run(what+" "+name, func(t *testing.T) {
				s := newStandIn(t)
				b, steps := newReleased(t)
				bin := mustBuild(t, b, proxy)[0]
				damage(t, file(bin))
				mirror := os.Getenv(kubernetesMirror)
				entries, err := Entries(b.Cache)
				if err != nil || len(entries) != 1 || !strings.HasPrefix(entries[0].Path, filepath.Dir(bin.Path)) {
					t.Fatalf("%+v, %v", entries, err)
				}
				if err := entries[0].Inspect(t.Context(), nil); err != nil || entries[0].State != cache.Damaged {
					t.Errorf("the full check says %+v: %v", entries[0], err)
				}
				s.change(func() { delete(s.files, proxyPath+".sha256") })
				if _, err := b.Build(t.Context(), proxy); !errors.As(err, new(*cache.Damage)) {
					t.Errorf("a download that fails: %v", err)
				}
				s.put(proxyPath, content256(1))
				*steps = nil
				if got := mustBuild(t, b, proxy)[0]; content(t, got.Path) != string(content256(1)) || mirror == "" {
					t.Errorf("%+v", got)
				}
				if text := (*steps)[0].Text; !strings.Contains(text, "downloaded again") {
					t.Errorf("the first step is %q", text)
				}
			})
		}
	}
}
