package build

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hitless/hitless/internal/cache"
)

// Bounds of downloads.
const (
	maxArtifact = 512 << 20
	answerTime  = 30 * time.Second // until a server answers
	stallTime   = time.Minute      // without a byte
	wholeTime   = 2 * time.Hour    // of one download
)

// Files of a download in its directory.
const (
	partFile  = "part"       // the bytes so far
	begunFile = "begun.json" // what they are a part of
)

// begun describes the bytes so far.
type begun struct {
	Sum       string // published checksum of the whole
	Validator string // strong ETag or Last-Modified of the server's file, for If-Range; empty where the server has none
}

// downloader downloads one artifact. Its beginning stays in a directory until it is whole. The caller holds the lock.
type downloader struct {
	client *http.Client
	from   release
	dir    string
	stall  time.Duration
	report func(Step)
}

// newClient returns a client that uses the proxies of the environment. Compressed answers would have no ranges.
func newClient() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone() // its Proxy is http.ProxyFromEnvironment
	t.DisableCompression, t.ResponseHeaderTimeout = true, answerTime
	return &http.Client{Transport: t, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		switch {
		case len(via) >= 10:
			return errors.New("stopped after 10 redirects")
		case via[0].URL.Scheme == "https" && req.URL.Scheme != "https":
			return errors.New("a redirect from https to http is not followed")
		}
		return nil
	}}
}

// artifact downloads the artifact, continues an earlier download, and returns the file once its digest is the published one.
func (d *downloader) artifact(ctx context.Context, sum published) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, wholeTime, fmt.Errorf("%w: it takes longer than %s", errDownload, wholeTime))
	defer cancel()
	file := filepath.Join(d.dir, partFile)
	for {
		resumed, err := d.body(ctx, sum)
		if err != nil {
			return "", err
		}
		found, err := sum.of(ctx, file)
		if err != nil || found == sum.sum {
			return file, err
		}
		if err := d.discard(); err != nil {
			return "", err
		}
		if !resumed {
			return "", fmt.Errorf("%w: %s has the %s %s, and %s says %s; what is served is damaged or not upstream's, and nothing of it is kept; use --programs built",
				ErrChecksum, d.from.artifact.Redacted(), sum.kind(), found, sum.address.Redacted(), sum.sum)
		}
		d.report(Step{Text: "what an earlier download left does not fit to the rest; starting again"})
	}
}

// body makes the file of the bytes so far whole. It reports whether some of them are older than the call.
func (d *downloader) body(ctx context.Context, sum published) (resumed bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	at, header := d.earlier(sum)
	answer, err := d.request(ctx, http.MethodGet, d.from.artifact, header)
	if err != nil {
		return false, err
	}
	defer answer.Body.Close()
	total := answer.ContentLength
	switch {
	case answer.StatusCode == http.StatusOK && total > maxArtifact:
		return false, fmt.Errorf("%w: %s has %s, and at most %s are taken", errDownload, d.from.artifact.Redacted(), megabytes(total), megabytes(maxArtifact))
	case answer.StatusCode == http.StatusPartialContent && at > 0:
		if total, err = rangeFrom(answer, at); err != nil {
			return true, errors.Join(err, d.discard())
		}
	case answer.StatusCode == http.StatusRequestedRangeNotSatisfiable && at > 0: // all is here, or the server's file is shorter
		return true, nil
	case answer.StatusCode == http.StatusOK:
		if err := d.begin(sum, answer.Header); err != nil {
			return false, err
		}
		at = 0
	default:
		return false, d.refused(d.from.artifact, answer)
	}
	return at > 0, d.copy(ctx, cancel, answer.Body, at, total)
}

// earlier is the number of bytes that are here, and the header of a request for the others. Bytes of another file count for none.
func (d *downloader) earlier(sum published) (int64, http.Header) {
	info, err := os.Stat(filepath.Join(d.dir, partFile))
	text, readErr := os.ReadFile(filepath.Join(d.dir, begunFile))
	var b begun
	if err != nil || readErr != nil || info.Size() == 0 || json.Unmarshal(text, &b) != nil || b.Sum != sum.sum {
		return 0, http.Header{}
	}
	h := http.Header{"Range": {fmt.Sprintf("bytes=%d-", info.Size())}}
	if b.Validator != "" {
		h.Set("If-Range", b.Validator)
	}
	return info.Size(), h
}

// begin empties the file of the bytes so far, and notes what it will be a part of.
func (d *downloader) begin(sum published, h http.Header) error {
	validator := h.Get("ETag")
	if validator == "" || strings.HasPrefix(validator, "W/") {
		validator = h.Get("Last-Modified")
	}
	text, err := json.Marshal(begun{sum.sum, validator})
	if err == nil {
		err = d.discard()
	}
	if err == nil {
		err = os.MkdirAll(d.dir, 0o755)
	}
	if err == nil {
		err = cache.WriteFile(filepath.Join(d.dir, begunFile), text)
	}
	if err != nil {
		return fmt.Errorf("making a directory for the download: %w", err)
	}
	return nil
}

func (d *downloader) discard() error { return os.RemoveAll(d.dir) }

// rangeFrom checks that an answer continues at a byte, and returns the size of the whole; -1 if the server does not tell.
func rangeFrom(answer *http.Response, at int64) (int64, error) {
	text := answer.Header.Get("Content-Range")
	span, size, _ := strings.Cut(strings.TrimPrefix(text, "bytes "), "/")
	first, _, _ := strings.Cut(span, "-")
	if n, err := strconv.ParseInt(first, 10, 64); err != nil || n != at {
		return 0, fmt.Errorf("%w: bytes from %d were asked for, and the answer has %q; run it again, which starts from the beginning", errDownload, at, text)
	}
	total, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return -1, nil
	}
	return total, nil
}

var errStalled = errors.New("no byte arrives any more")

// copy appends a body to the bytes so far, and reports progress. The total is -1 if it is not known.
func (d *downloader) copy(ctx context.Context, cancel context.CancelCauseFunc, body io.Reader, at, total int64) (err error) {
	f, err := os.OpenFile(filepath.Join(d.dir, partFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("writing the download: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	watchdog := time.AfterFunc(d.stall, func() { cancel(errStalled) })
	defer watchdog.Stop()
	m := meter{begin: time.Now(), from: at, total: total}
	d.report(m.step(at))
	reported, piece := time.Now(), make([]byte, 64<<10)
	for {
		n, readErr := body.Read(piece)
		watchdog.Reset(d.stall)
		if at += int64(n); at > maxArtifact {
			return fmt.Errorf("%w: %s is larger than %s", errDownload, d.from.artifact.Redacted(), megabytes(maxArtifact))
		}
		if _, err := f.Write(piece[:n]); err != nil {
			return fmt.Errorf("writing the download: %w", err)
		}
		switch {
		case readErr == io.EOF:
			return nil
		case readErr != nil:
			return d.ended(ctx, readErr, at, total)
		case time.Since(reported) >= stepTick:
			d.report(m.step(at))
			reported = time.Now()
		}
	}
}

// ended is the error of a download that ended early.
func (d *downloader) ended(ctx context.Context, err error, at, total int64) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errStalled), errors.Is(cause, errDownload):
		err = cause
	case cause != nil:
		return cause
	}
	return fmt.Errorf("%w: %s ended after %s: %w; run it again, which continues there", errDownload, d.from.artifact.Redacted(), ofTotal(at, total), err)
}

// meter computes how long the rest of a download takes.
type meter struct {
	begin       time.Time
	from, total int64
}

func (m meter) step(at int64) Step {
	s := Step{Text: "downloading", Bytes: at, Total: max(0, m.total)}
	switch passed := time.Since(m.begin); {
	case at == m.from && at > 0:
		s.Text = "continuing the download at " + ofTotal(at, m.total)
	case at == m.from && m.total > 0:
		s.Text += " " + megabytes(m.total)
	case at > m.from && m.total > at:
		s.Left = time.Duration(float64(passed) * float64(m.total-at) / float64(at-m.from))
		s.Text += fmt.Sprintf(", %s, about %.0f s left", ofTotal(at, m.total), s.Left.Seconds())
	case at > m.from:
		s.Text += ", " + ofTotal(at, m.total)
	}
	return s
}

func ofTotal(at, total int64) string {
	if total <= 0 {
		return megabytes(at)
	}
	return fmt.Sprintf("%.1f of %s", float64(at)/1e6, megabytes(total))
}

// request sends a request. The error wraps ErrOffline if no server could be reached.
func (d *downloader) request(ctx context.Context, method string, address *url.URL, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, address.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDownload, err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("User-Agent", "hitless")
	answer, err := d.client.Do(req)
	var op *net.OpError
	switch {
	case err == nil:
		return answer, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect"), errors.As(err, new(*net.DNSError)):
		return nil, fmt.Errorf("%w: %w; check the network and HTTPS_PROXY, name a mirror in %s, or use --programs built", ErrOffline, err, d.from.mirror)
	}
	return nil, fmt.Errorf("%w: %w", errDownload, err)
}

// refused is the error of an answer without the file.
func (d *downloader) refused(address *url.URL, answer *http.Response) error {
	if answer.StatusCode == http.StatusNotFound {
		return fmt.Errorf("%w: %s answers %s; the version may not exist, or not for this kind of machine: give another one, or use --programs built",
			ErrNotReleased, address.Redacted(), answer.Status)
	}
	return fmt.Errorf("%w: %s answers %s; try it again later, name a mirror in %s, or use --programs built", errDownload, address.Redacted(), answer.Status, d.from.mirror)
}
