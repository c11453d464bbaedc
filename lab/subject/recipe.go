package subject

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hitless/hitless/internal/input"
)

// Follow adds the files and manifests that the recipe takes from the module, whose sources are in a directory of the host.
func (e *Exec) Follow(ctx context.Context, sources string) error {
	for _, folder := range e.Recipe.Folders {
		names, err := folder.files(sources)
		if err != nil {
			return fmt.Errorf("reading the sources of %s: %w", e.Subject, err)
		}
		for _, name := range names {
			e.Pack.Files = append(e.Pack.Files, File{From: filepath.Join(sources, folder.From, name), To: path.Join(folder.To, filepath.ToSlash(name))})
		}
	}
	names, err := Folder{From: e.Recipe.Objects}.files(sources)
	for _, name := range names {
		if err == nil && slices.Contains(e.Recipe.Manifests, filepath.Base(name)) {
			err = e.addManifest(ctx, filepath.Join(sources, e.Recipe.Objects, name))
		}
	}
	if err == nil && len(e.Objects) != len(e.Recipe.Manifests) {
		err = fmt.Errorf("%s has %d of %s", e.Recipe.Objects, len(e.Objects), strings.Join(e.Recipe.Manifests, ", "))
	}
	if err != nil {
		return fmt.Errorf("reading the manifests of %s: %w", e.Subject, err)
	}
	return nil
}

// files are the regular files of the folder by their names in it, sorted.
func (f Folder) files(sources string) (names []string, err error) {
	dir := filepath.Join(sources, f.From)
	err = filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, file)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains(f.Left, name):
			return fs.SkipDir
		case entry.Type().IsRegular():
			names = append(names, name)
		}
		return nil
	})
	return names, err
}

// addManifest adds a manifest of the host, whose name ends in .yaml, .yml or .json.
func (e *Exec) addManifest(ctx context.Context, file string) error {
	text, err := input.Read(ctx, file, input.TextBytes)
	if err != nil {
		return err
	}
	kinds, err := kindsOf(file, text)
	if err != nil {
		return err
	}
	to := path.Join(objectsDir, fmt.Sprintf("%03d-%s", len(e.Objects), filepath.Base(file)))
	e.Objects = append(e.Objects, Manifest{Path: to, Kinds: kinds})
	e.Pack.Objects = append(e.Pack.Objects, File{From: file, To: to})
	return nil
}

// RecipeOf is the recipe of an Exec that hitless builds; nil for another one and for none.
func (e *Exec) RecipeOf() *Recipe {
	if e == nil {
		return nil
	}
	return e.Recipe
}
