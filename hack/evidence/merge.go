package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hitless/hitless/internal/cache"
)

// merge copies the results of steps from the trees in which a shard made them. Each step must have ended with the program in one tree and in no
// other, and each tree must have one; else nothing is copied.
func merge(ctx context.Context, all []step, trees []string, sum string) error {
	var errs []error
	of := map[string][]step{} // by tree
	for _, s := range all {
		var made []string
		for _, tree := range trees {
			j, err := s.planned(ctx, tree, sum)
			if err != nil {
				return err
			}
			if j.missing == 0 {
				made = append(made, tree)
				of[tree] = append(of[tree], s)
			}
		}
		switch {
		case len(made) == 0:
			errs = append(errs, fmt.Errorf("%s is missing: it has ended in no tree with the program %.12s", s.name, sum))
		case len(made) > 1:
			errs = append(errs, fmt.Errorf("%s was made twice: in %s", s.name, strings.Join(made, " and ")))
		}
	}
	for _, tree := range trees {
		if len(of[tree]) == 0 {
			errs = append(errs, fmt.Errorf("%s has nothing of the program %.12s: was it made with another one?", tree, sum))
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("nothing is merged: %w", errors.Join(errs...))
	}
	for _, tree := range trees {
		for _, s := range of[tree] {
			if err := s.copyFrom(tree, sum); err != nil {
				return fmt.Errorf("merging %s of %s: %w; the same command does it again", s.name, tree, err)
			}
		}
	}
	return nil
}

// copyFrom copies the files of a step from a tree, and that it has ended.
func (s step) copyFrom(tree, sum string) error {
	files, err := s.results(tree)
	if err != nil {
		return err
	}
	for _, file := range append(files, filepath.Join(tree, s.mark(sum))) {
		name, err := filepath.Rel(tree, file)
		if err != nil {
			return err
		}
		data, err := fs.ReadFile(os.DirFS(tree), filepath.ToSlash(name))
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := cache.WriteFile(name, data); err != nil {
			return err
		}
	}
	return nil
}
