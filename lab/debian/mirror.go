package debian

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/hitless/hitless/internal/cache"
)

// MirrorVariable is the variable of the environment that names a mirror of Debian, as its address or as a folder (file:///…). Without it
// the mirror is the one in this machine's own package lists.
const MirrorVariable = "HITLESS_DEBIAN_MIRROR"

// mirrors are the addresses of Debian's packages and of its security updates; the second one may be empty.
type mirrors struct{ main, security string }

func findMirrors(ctx context.Context) (mirrors, error) {
	if text := os.Getenv(MirrorVariable); text != "" {
		return mirrors{main: text}, nil
	}
	text, err := output(ctx, "", "apt-get", "indextargets", "--format", "$(ORIGIN) $(LABEL) $(REPO_URI)", "Created-By: Packages")
	switch {
	case ctx.Err() != nil:
		return mirrors{}, err
	case errors.Is(err, exec.ErrNotFound):
		return mirrors{}, fmt.Errorf("finding a mirror of Debian: this machine has no apt, whose package lists would name one; name one in %s", MirrorVariable)
	case err != nil:
		return mirrors{}, fmt.Errorf("finding a mirror of Debian: %w; or name one in %s", err, MirrorVariable)
	}
	return mirrorsIn(text)
}

// mirrorsIn finds the first mirror of each kind in lines ORIGIN LABEL ADDRESS.
func mirrorsIn(targets string) (m mirrors, err error) {
	for line := range strings.Lines(targets) {
		words := strings.Fields(line)
		if len(words) != 3 || words[0] != "Debian" {
			continue
		}
		switch {
		case words[1] == "Debian" && m.main == "":
			m.main = words[2]
		case words[1] == "Debian-Security" && m.security == "":
			m.security = words[2]
		}
	}
	if m.main == "" {
		return m, fmt.Errorf("finding a mirror of Debian: the package lists of this machine name none (on Debian `apt-get update` gets them); name one in %s", MirrorVariable)
	}
	return m, nil
}

// ErrGone is the error of a file that the mirror does not have.
var ErrGone = errors.New("the mirror does not have it")

// File is a file of a mirror.
type File struct {
	Path   string // below the mirror's address
	Sha256 string // in hex
}

// Mirror downloads files. Its zero value finds the mirror when it is first used; it is not for concurrent use until then.
type Mirror struct {
	base   *url.URL
	client *http.Client
	most   int64 // bytes of a file; 0 for maxFile
}

// Bounds of the download of one file.
const (
	fileTime = 10 * time.Minute
	maxFile  = 1 << 30 // bytes; no package that a lab needs is nearly as large
)

// Find finds the mirror, and returns its address without a password.
func (m *Mirror) Find(ctx context.Context) (string, error) {
	if m.base == nil {
		found, err := findMirrors(ctx)
		if err != nil {
			return "", err
		}
		base, err := url.Parse(found.main)
		if err != nil || base.Scheme != "http" && base.Scheme != "https" && base.Scheme != "file" {
			return "", fmt.Errorf("the mirror of Debian is no address with http, https or file; name another one in %s", MirrorVariable)
		}
		transport := http.DefaultTransport.(*http.Transport).Clone() // with the proxies of the environment
		transport.DisableCompression, transport.ResponseHeaderTimeout = true, 30*time.Second
		transport.RegisterProtocol("file", http.NewFileTransport(http.Dir("/")))
		if os.Getenv("HTTP_PROXY")+os.Getenv("http_proxy") == "" {
			if proxy := aptProxy(ctx); proxy != nil {
				transport.Proxy = http.ProxyURL(proxy)
			}
		}
		m.base, m.client = base, &http.Client{Transport: transport, Timeout: fileTime}
	}
	return m.base.Redacted(), nil
}

// aptProxy is the proxy that apt's own settings name; nil for none.
func aptProxy(ctx context.Context) *url.URL {
	text, err := output(ctx, "", "apt-config", "dump", "--format", "%v%n", "Acquire::http::Proxy")
	text = strings.TrimSpace(text)
	if err != nil || text == "" || text == "DIRECT" {
		return nil
	}
	proxy, err := url.Parse(text)
	if err != nil || proxy.Host == "" {
		return nil
	}
	return proxy
}

// Fetch downloads a file into a directory under a name, where it appears complete and with the right digest, or not at all. The error
// wraps ErrGone if the mirror does not have it. The caller has called Find.
func (m *Mirror) Fetch(ctx context.Context, f File, dir, name string) error {
	address := m.base.JoinPath(f.Path)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return fmt.Errorf("downloading %s: %w", f.Path, err)
	}
	req.Header.Set("User-Agent", "hitless")
	answer, err := m.client.Do(req)
	if err != nil {
		return m.failed(ctx, f, err)
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusGone:
		return fmt.Errorf("downloading %s: %w", address.Redacted(), ErrGone)
	default:
		return fmt.Errorf("downloading %s: the mirror answers %s; try it again later, or name another mirror in %s", address.Redacted(), answer.Status, MirrorVariable)
	}
	out, err := cache.Create(dir)
	if err != nil {
		return err
	}
	defer out.Discard()
	sum := sha256.New()
	most := cmp.Or(m.most, maxFile)
	switch n, err := io.Copy(io.MultiWriter(out, sum), io.LimitReader(answer.Body, most+1)); {
	case err != nil:
		return m.failed(ctx, f, err)
	case n > most:
		return fmt.Errorf("downloading %s: it has more than %d bytes, and is not Debian's; name another mirror in %s", address.Redacted(), most, MirrorVariable)
	}
	if found := hex.EncodeToString(sum.Sum(nil)); found != f.Sha256 {
		return fmt.Errorf("downloading %s: it has the SHA-256 %s, and must have %s; it is damaged or not Debian's, and nothing of it is kept: try it again, or name another mirror in %s",
			address.Redacted(), found, f.Sha256, MirrorVariable)
	}
	if err := cache.Clear(filepath.Join(dir, name)); err != nil {
		return err
	}
	return out.Finish(name)
}

// failed is the error of a connection.
func (m *Mirror) failed(ctx context.Context, f File, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("downloading %s from the mirror of Debian: %w; check the network and the proxy (HTTP_PROXY, HTTPS_PROXY), or name another mirror in %s", f.Path, err, MirrorVariable)
}
