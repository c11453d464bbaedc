package build

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hitless/hitless/internal/cache"
)

// findReleased returns the intact entry of a released target. The error of a missing entry is errMissing, that of a damaged one a
// *cache.Damage.
func (s store) findReleased(ctx context.Context, t Target) (Binary, error) {
	r, err := releaseOf(t)
	if err != nil {
		return Binary{}, err
	}
	bin, err := s.entryIn(ctx, s.releasedDir(), r.entry(), t)
	if errors.Is(err, fs.ErrNotExist) {
		return Binary{}, errMissing
	}
	return bin, err
}

// downloadAll adds the binaries of the targets to done, and downloads those that are not in the cache.
func (b *Builder) downloadAll(ctx context.Context, d *dataset, s store, targets []Target, done map[Target]Binary) error {
	for _, t := range targets {
		if _, err := d.program(t); err != nil {
			return err
		}
	}
	ready, err := b.lookUp(ctx, s, targets)
	if err != nil {
		return err
	}
	for i, t := range targets {
		if slices.Contains(targets[:i], t) {
			continue
		}
		bin, err := ready[i].Binary, ready[i].err
		if err != nil {
			damage := new(cache.Damage)
			if errors.As(err, &damage) {
				b.report(t, damage.Error()+"; it is downloaded again")
			} else {
				damage = nil
			}
			if bin, err = b.download(ctx, s, t); err != nil {
				if damage != nil {
					err = errors.Join(err, damage)
				}
				return fmt.Errorf("downloading %s: %w", t, err)
			}
		}
		done[t] = bin
	}
	return nil
}

// download downloads a target that is still missing once it has the lock, verifies it, and puts it into the cache.
func (b *Builder) download(ctx context.Context, s store, t Target) (Binary, error) {
	r, err := releaseOf(t)
	if err != nil {
		return Binary{}, err
	}
	lock, err := s.lockNamed(ctx, r.lockName(), func() { b.report(t, "waiting for another process that downloads it") })
	if err != nil {
		return Binary{}, err
	}
	defer lock.Close()
	if bin, err := s.findReleased(ctx, t); err == nil { // another process has downloaded it
		return bin, nil
	}
	begin := time.Now()
	dl := &downloader{client: newClient(), from: r, dir: filepath.Join(s.dir, "work", r.lockName()), stall: b.stall, report: func(p Step) { b.step(t, p) }}
	if dl.stall == 0 {
		dl.stall = stallTime
	}
	defer dl.client.CloseIdleConnections()
	sum, err := dl.published(ctx)
	if err != nil {
		return Binary{}, err
	}
	file, err := dl.artifact(ctx, sum)
	if err != nil {
		return Binary{}, err
	}
	bin := Binary{Target: t, Source: Released, Notes: []string{fmt.Sprintf("upstream's release artifact %s, with the published %s %s", r.path, sum.kind(), sum.sum)}}
	if bin, err = s.publishRelease(ctx, bin, r, file); err != nil {
		return Binary{}, fmt.Errorf("putting it into the cache: %w", err)
	}
	size := cache.Size(bin.Path)
	b.step(t, Step{Text: fmt.Sprintf("done, %s in %.0f s", megabytes(size), time.Since(begin).Seconds()), Bytes: size, Total: size})
	return bin, dl.discard()
}

// publishRelease moves the program of a verified artifact into the cache in one step. The caller holds the lock.
func (s store) publishRelease(ctx context.Context, b Binary, r release, artifact string) (Binary, error) {
	fresh := filepath.Join(filepath.Dir(artifact), "entry")
	if err := errors.Join(os.RemoveAll(fresh), os.Mkdir(fresh, 0o755)); err != nil {
		return Binary{}, err
	}
	program := filepath.Join(fresh, b.Target.Name)
	var err error
	if r.member == "" {
		err = os.Rename(artifact, program)
	} else {
		err = unpack(ctx, artifact, r.member, program)
	}
	if err == nil {
		err = os.Chmod(program, 0o755)
	}
	if err != nil {
		return Binary{}, err
	}
	if b.Sha256, err = cache.Sha256(ctx, program); err != nil {
		return Binary{}, err
	}
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return Binary{}, err
	}
	if err := os.WriteFile(filepath.Join(fresh, binaryFile), append(text, '\n'), 0o644); err != nil {
		return Binary{}, err
	}
	entry := filepath.Join(s.releasedDir(), r.entry())
	b.Path = filepath.Join(entry, b.Target.Name)
	return b, cache.ReplaceDir(fresh, entry)
}

// unpack writes one file of a tar.gz archive.
func unpack(ctx context.Context, archive, member, to string) (err error) {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	zipped, err := gzip.NewReader(contextReader{ctx, f})
	if err != nil {
		return fmt.Errorf("unpacking the archive: %w", err)
	}
	for files := tar.NewReader(zipped); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("the archive has no file %s; use --programs built", member)
		}
		if err != nil {
			return fmt.Errorf("unpacking the archive: %w", err)
		}
		if h.Name != member || h.Typeflag != tar.TypeReg {
			continue
		}
		if h.Size > maxArtifact {
			return fmt.Errorf("%s in the archive has %s, and at most %s are taken", member, megabytes(h.Size), megabytes(maxArtifact))
		}
		return writeProgram(to, files)
	}
}

func writeProgram(path string, r io.Reader) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
