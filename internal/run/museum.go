package run

import (
	"context"
	"errors"
	"maps"
	"path/filepath"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/museum"
)

// Museum runs an entry's scenario with the entry's parameters and searches the record for its signature. An invalid run gives
// CannotTell. The result is nil if nothing was run.
func Museum(ctx context.Context, o Options, e museum.Entry) (museum.Finding, *Result, error) {
	if err := o.applyEntry(e); err != nil {
		return museum.Finding{}, nil, err
	}
	result, err := Run(ctx, o)
	var invalid *InvalidError
	if errors.As(err, &invalid) {
		return museum.Finding{Answer: museum.CannotTell, Reasons: []string{err.Error()}}, result, nil
	}
	if err != nil {
		return museum.Finding{}, result, err
	}
	h, err := record.OpenHistory(result.Dir)
	if err != nil {
		return museum.Finding{}, result, err
	}
	r, err := museum.Open(h)
	if err != nil {
		return museum.Finding{}, result, err
	}
	return e.Judge(r), result, nil
}

// applyEntry sets the scenario and parameters of an entry, which the call cannot change.
func (o *Options) applyEntry(e museum.Entry) error {
	set := map[string]string{}
	maps.Copy(set, e.Set)
	for _, key := range sortedKeys(o.Set) {
		if need, fixed := e.Set[key]; fixed && need != o.Set[key] {
			return usagef("--set %s=%s: %s needs %s=%s", key, o.Set[key], e.ID, key, need)
		}
		set[key] = o.Set[key]
	}
	o.Scenario, o.Set = e.Scenario, set
	if o.Out == "" {
		o.Out = filepath.Join("out", "museum-"+e.ID)
	}
	return nil
}
