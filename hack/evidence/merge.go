package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/hitless/hitless/hack/trees"
)

// merge copies the results of steps from the trees in which a shard made them. Each step must have ended with the program in one tree and in no
// other, and each tree must have one; else nothing is copied.
func merge(ctx context.Context, all []step, from []string, sum string) error {
	of := map[string][]step{} // by tree
	var names []string
	made := map[string][]string{} // trees by step
	for _, s := range all {
		names = append(names, s.name)
		for _, tree := range from {
			j, err := s.planned(ctx, tree, sum)
			if err != nil {
				return err
			}
			if j.missing == 0 {
				made[s.name] = append(made[s.name], tree)
				of[tree] = append(of[tree], s)
			}
		}
	}
	errs := trees.Once(names, made, fmt.Sprintf("with the program %.12s", sum))
	for _, tree := range from {
		if len(of[tree]) == 0 {
			errs = append(errs, fmt.Errorf("%s has nothing of the program %.12s: was it made with another one?", tree, sum))
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("nothing is merged: %w", errors.Join(errs...))
	}
	for _, tree := range from {
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
		if err := trees.Copy(tree, name); err != nil {
			return err
		}
	}
	return nil
}
