// Package trees joins what shards made in other trees of the sources.
package trees

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hitless/hitless/internal/cache"
)

// Once has an error for each name that no tree made, or that several made. The map has the trees by name; how says what made them.
func Once(names []string, of map[string][]string, how string) (errs []error) {
	for _, name := range names {
		switch made := of[name]; {
		case len(made) == 0:
			errs = append(errs, fmt.Errorf("%s is missing: it has ended in no tree %s", name, how))
		case len(made) > 1:
			errs = append(errs, fmt.Errorf("%s was made twice: in %s", name, strings.Join(made, " and ")))
		}
	}
	return errs
}

// Copy copies a file, which is named from the top of both trees, from a tree to the current one, in one step.
func Copy(tree, name string) error {
	data, err := fs.ReadFile(os.DirFS(tree), filepath.ToSlash(name))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return cache.WriteFile(name, data)
}
