package build

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

// CachedAll lists the versions of a program that are built and whole in the cache, oldest first, without building
// anything. An unknown program and an empty cache have none.
func (b *Builder) CachedAll(ctx context.Context, name string) ([]Target, error) {
	s, err := b.store()
	if err != nil {
		return nil, err
	}
	info, err := b.toolchain().describe(ctx)
	if err != nil && !errors.Is(err, errNoGo) {
		return nil, err
	}
	files, _ := filepath.Glob(s.indexFile(Target{Name: name, Version: "*"}, "*")) // names have no character of a pattern
	var all []Target
	for _, file := range files {
		head, _, _ := strings.Cut(filepath.Base(file), ",")
		t, err := ParseTarget(head)
		if err != nil || slices.Contains(all, t) {
			continue
		}
		if _, found := s.find(t, info.Version); found {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(x, y Target) int { return semver.Compare(x.Version, y.Version) })
	return all, nil
}
