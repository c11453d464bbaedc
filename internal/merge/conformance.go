package merge

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"path"
	"path/filepath"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/suites/conformance"
)

func conformanceOf(ctx context.Context, dirs []string, key ed25519.PublicKey) (func(string) (*Whole, error), error) {
	var parts []*conformance.Report
	for _, dir := range dirs {
		r, err := conformance.Read(ctx, dir, key)
		if err != nil {
			return nil, err
		}
		parts = append(parts, r)
	}
	all, err := conformance.Join(parts)
	if err != nil {
		return nil, err
	}
	if len(all) != 1 {
		return nil, fmt.Errorf("the folders hold reports of %d calls; merge the shards of one, and compare whole reports with `hitless report conformance`", len(all))
	}
	homes := map[string]string{} // of the runs, by their folders in the whole
	for i, r := range parts {
		if err := findRuns(homes, r, dirs[i], key); err != nil {
			return nil, err
		}
	}
	return func(dir string) (*Whole, error) {
		for name, from := range homes {
			if err := copyRun(from, filepath.Join(dir, name)); err != nil {
				return nil, err
			}
		}
		return &Whole{Conformance: all[0]}, conformance.Write(dir, all[0], nil, nil)
	}, nil
}

// findRuns adds the runs that the report of a shard names to homes, and checks each.
func findRuns(homes map[string]string, r *conformance.Report, shard string, key ed25519.PublicKey) error {
	type evidence struct {
		run, history string
		state        conformance.State
	}
	checked := map[evidence]bool{}
	for _, s := range r.Specs {
		e, dir := evidence{s.Run, s.HistorySha256, s.State}, filepath.Join(shard, s.Run)
		if checked[e] {
			continue
		}
		if err := checkSpec(s, dir, r.Program, key); err != nil {
			return err
		}
		checked[e] = true
		if s.HistorySha256 == "" {
			continue
		}
		if other, has := homes[s.Run]; has && other != dir {
			return fmt.Errorf("%s and %s are both in the reports, and a run is in one shard; run the shards again", other, dir)
		}
		homes[s.Run] = dir
	}
	return nil
}

// checkSpec checks that the record in the folder of a spec's run is the one by which the spec was judged. A run that gave no record has none.
func checkSpec(s conformance.Result, dir, program string, key ed25519.PublicKey) error {
	judged := s.State == conformance.Passed || s.State == conformance.Failed
	switch {
	case judged && s.HistorySha256 == "":
		return fmt.Errorf("the spec %s was judged by no record that its report names; run the shard again", s.Name)
	case s.HistorySha256 == "":
		return nil
	case path.Dir(s.Run) != conformance.RunsDir || path.Base(s.Run) == "..":
		return fmt.Errorf("the run %q of the spec %s is no folder in %s; run the shard again", s.Run, s.Name, conformance.RunsDir)
	}
	h, err := openRun(s, dir, key)
	if err == nil {
		err = h.Match(s.HistorySha256)
	}
	switch {
	case err != nil:
		return err
	case judged && s.HasVerdict():
		return madeBy(h, dir, program)
	}
	return sameProgram(h, dir, program)
}

// openRun opens the record of a spec's run. One without a verdict has no seal: the report, which a key has signed, has its hash.
func openRun(s conformance.Result, dir string, key ed25519.PublicKey) (*record.History, error) {
	if s.HasVerdict() {
		return record.OpenSigned(dir, key)
	}
	return record.OpenUnsealed(dir)
}
