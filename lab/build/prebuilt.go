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
)

// versionDeadline is how long a ready binary may take to say its version.
const versionDeadline = 10 * time.Second

// prebuilt looks for a target in the directory of ready binaries.
func (b *Builder) prebuilt(ctx context.Context, t Target) (Binary, bool, error) {
	dir, err := filepath.Abs(b.Prebuilt)
	if err != nil {
		return Binary{}, false, fmt.Errorf("finding the directory of ready binaries: %w", err)
	}
	if _, err := os.Stat(dir); err != nil {
		return Binary{}, false, fmt.Errorf("looking into the directory of ready binaries: %w", err)
	}
	for _, name := range []string{t.String(), t.Name} {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return Binary{}, false, fmt.Errorf("looking into the directory of ready binaries: %w", err)
		}
		if info.IsDir() || info.Mode()&0o111 == 0 {
			return Binary{}, false, fmt.Errorf("the ready binary %s is not an executable file", path)
		}
		said, err := askVersion(ctx, path)
		if err != nil {
			return Binary{}, false, err
		}
		if name == t.Name && !names(said, t.Version) {
			b.say(t, fmt.Sprintf("%s is not taken: it says %q", path, said))
			continue
		}
		bin, err := describePrebuilt(t, path, said)
		return bin, err == nil, err
	}
	return Binary{}, false, nil
}

func describePrebuilt(t Target, path, said string) (Binary, error) {
	sum, err := fileSum(path)
	if err != nil {
		return Binary{}, fmt.Errorf("reading the ready binary %s: %w", path, err)
	}
	notes := []string{fmt.Sprintf("a ready binary, not built here; it says %q", said)}
	bin := Binary{Target: t, Path: path, Sha256: sum, Notes: notes}
	if !names(said, t.Version) {
		bin.Notes = append(bin.Notes, fmt.Sprintf("that is not %s, which its file name says", t.Version))
	}
	if info, err := buildinfo.ReadFile(path); err == nil {
		bin.Go = info.GoVersion
	}
	return bin, nil
}

// askVersion runs a program with --version and returns the first line of what it says.
func askVersion(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionDeadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("asking the ready binary %s for its version: %w", path, err)
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return first, nil
}

// names tells whether a text names a version, with or without the leading v, and not as the beginning of a longer one.
func names(text, version string) bool {
	number := regexp.QuoteMeta(strings.TrimPrefix(version, "v"))
	return regexp.MustCompile(`(^|[^0-9.])` + number + `($|[^0-9])`).MatchString(text)
}
