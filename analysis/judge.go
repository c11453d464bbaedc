package analysis

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"

	"github.com/hitless/hitless/record"
)

// Judge judges a recorded run again. dir is the run's folder or its history; a nil budget means the run's own.
func Judge(dir string, budget *record.Budget) (*Report, error) {
	h, err := record.OpenHistory(dir)
	if err != nil {
		return nil, err
	}
	if budget != nil {
		h.Run.Budget = *budget
	}
	return Build(h)
}

// LoadBudget reads a budget from a YAML file with the fields dropped and delayed, both in connections; a missing field
// is 0. Unknown fields are an error, because a misspelt one would silently judge by 0.
func LoadBudget(file string) (*record.Budget, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the budget: %w", err)
	}
	var b record.Budget
	if err := yaml.UnmarshalStrict(data, &b); err != nil {
		return nil, fmt.Errorf("reading the budget %s: %w (its fields are dropped and delayed, in connections)", file, err)
	}
	if b.Dropped < 0 || b.Delayed < 0 {
		return nil, fmt.Errorf("the budget %s allows a negative loss (dropped %d, delayed %d); 0 is the least", file, b.Dropped, b.Delayed)
	}
	return &b, nil
}
