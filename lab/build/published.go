package build

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
)

// maxSums bounds the size of a file with checksums.
const maxSums = 64 << 10

// published is the checksum that upstream publishes for an artifact.
type published struct {
	address *url.URL // of the file that has it
	sum     string   // lower-case hex of a SHA-256 or a SHA-512
}

func (p published) kind() string {
	if len(p.sum) == 2*sha512.Size {
		return "SHA-512"
	}
	return "SHA-256"
}

// of computes the checksum of a file, of the same kind.
func (p published) of(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var h hash.Hash = sha256.New()
	if p.kind() == "SHA-512" {
		h = sha512.New()
	}
	if _, err := io.Copy(h, contextReader{ctx, f}); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// contextReader is a reader that ends with a context.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.Reader.Read(p)
}

// published downloads the published checksum of the artifact.
func (d *downloader) published(ctx context.Context) (published, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.stall, fmt.Errorf("%w: the checksums of %s do not arrive", errDownload, d.from.artifact.Redacted()))
	defer cancel()
	for _, address := range d.from.sums {
		text, err := d.small(ctx, address)
		if errors.Is(err, ErrNotReleased) {
			continue
		}
		if err != nil {
			return published{}, err
		}
		p := published{address: address}
		p.sum, _ = d.from.checksumIn(text)
		if raw, err := hex.DecodeString(p.sum); err != nil || len(raw) != sha256.Size && len(raw) != sha512.Size {
			return published{}, fmt.Errorf("%w: %s has no SHA-256 or SHA-512 of %s, but begins with %.60q; use --programs built", errDownload, address.Redacted(), d.from.path, text)
		}
		return p, nil
	}
	return published{}, d.unpublished(ctx)
}

// unpublished tells an artifact without a checksum from one that does not exist.
func (d *downloader) unpublished(ctx context.Context) error {
	answer, err := d.request(ctx, http.MethodHead, d.from.artifact, nil)
	if err != nil {
		return err
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return d.refused(d.from.artifact, answer)
	}
	return fmt.Errorf("%w: %s is there, and no SHA-256 or SHA-512 of it; old releases have SHA-1 and MD5 only, which can be forged: use --programs built",
		ErrUnverified, d.from.artifact.Redacted())
}

// small downloads a small file.
func (d *downloader) small(ctx context.Context, address *url.URL) (string, error) {
	answer, err := d.request(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return "", d.refused(address, answer)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxSums+1))
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return "", fmt.Errorf("%w: reading %s: %w; try it again", errDownload, address.Redacted(), err)
	case len(text) > maxSums:
		return "", fmt.Errorf("%w: %s has more than %d bytes, which is no file with checksums", errDownload, address.Redacted(), maxSums)
	}
	return string(text), nil
}
