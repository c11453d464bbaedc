package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/mod/module"
)

// Sources returns the directory of the module cache that has the files of a module, which the checksum database has verified. It
// downloads the module if the cache does not have it.
func (b *Builder) Sources(ctx context.Context, m module.Version) (dir string, err error) {
	fail := func(err error) (string, error) { return "", fmt.Errorf("getting the sources of %s: %w", m, err) }
	info, err := b.toolchain().describe(ctx)
	if err != nil {
		return fail(err)
	}
	work, err := os.MkdirTemp("", "hitless-sources-")
	if err != nil {
		return fail(err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if err := os.WriteFile(filepath.Join(work, "go.mod"), []byte("module download\n\ngo "+oldestGoLine+"\n"), 0o644); err != nil {
		return fail(err)
	}
	r := &resolution{tool: b.toolchain(), info: info, dir: work, progress: func(string) {}}
	root, err := r.root(ctx, m)
	if err != nil {
		return fail(err)
	}
	return root.Dir, nil
}
