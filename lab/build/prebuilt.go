package build

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/hitless/hitless/internal/cache"
)

// versionDeadline bounds the run of a prebuilt binary with --version.
const versionDeadline = 10 * time.Second

// prebuilt finds a target in the directory of prebuilt binaries.
func (b *Builder) prebuilt(ctx context.Context, t Target) (Binary, bool, error) {
	dir, err := filepath.Abs(b.Prebuilt)
	if err != nil {
		return Binary{}, false, fmt.Errorf("finding the directory of prebuilt binaries: %w", err)
	}
	if _, err := os.Stat(dir); err != nil {
		return Binary{}, false, fmt.Errorf("reading the directory of prebuilt binaries: %w", err)
	}
	for _, name := range []string{t.String(), t.Name} {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return Binary{}, false, fmt.Errorf("reading the directory of prebuilt binaries: %w", err)
		}
		if info.IsDir() || info.Mode()&0o111 == 0 {
			return Binary{}, false, fmt.Errorf("the prebuilt binary %s is not an executable file", path)
		}
		said, err := readVersion(ctx, path)
		if err != nil {
			return Binary{}, false, err
		}
		if name == t.Name && !containsVersion(said, t.Version) {
			b.report(t, fmt.Sprintf("%s is not taken: it says %q", path, said))
			continue
		}
		bin, err := describePrebuilt(ctx, t, path, said)
		return bin, err == nil, err
	}
	return Binary{}, false, nil
}

func describePrebuilt(ctx context.Context, t Target, path, said string) (Binary, error) {
	sum, err := cache.Sha256(ctx, path)
	if err != nil {
		return Binary{}, fmt.Errorf("reading the prebuilt binary %s: %w", path, err)
	}
	notes := []string{fmt.Sprintf("a prebuilt binary; its --version prints %q", said)}
	bin := Binary{Target: t, Path: path, Sha256: sum, Notes: notes, Source: Prebuilt}
	if !containsVersion(said, t.Version) {
		bin.Notes = append(bin.Notes, fmt.Sprintf("that is not %s, which its file name says", t.Version))
	}
	if info, err := buildinfo.ReadFile(path); err == nil {
		bin.Go = info.GoVersion
	}
	return bin, nil
}

// readVersion runs a program with --version and returns the first line of its output.
func readVersion(ctx context.Context, path string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, versionDeadline)
	defer cancel()
	cmd := exec.CommandContext(limited, path, "--version")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("reading the version of the prebuilt binary %s: %w", path, err)
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return first, nil
}

// containsVersion reports whether a text contains a version, with or without v, but not as the prefix of a longer one.
func containsVersion(text, version string) bool {
	number := regexp.QuoteMeta(strings.TrimPrefix(version, "v"))
	return regexp.MustCompile(`(^|[^0-9.])` + number + `($|[^0-9])`).MatchString(text)
}
