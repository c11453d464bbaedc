package analysis

import (
	"context"
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/hitless/hitless/internal/input"
	"github.com/hitless/hitless/record"
)

// Judge judges a recorded run by another budget; nil is the run's own. It keeps the budget of the history.
func Judge(h *record.History, budget *record.Budget) (*Report, error) {
	own := h.Run.Budget
	defer func() { h.Run.Budget = own }()
	if budget != nil {
		h.Run.Budget = *budget
	}
	return Build(h)
}

// LoadBudget reads a budget from a YAML file with the fields dropped and delayed, both in connections, slowPercent, in percent, and
// p99ExtraMs, in milliseconds. A missing field is 0, or the default for the last two. An unknown or repeated field, a second
// document and an empty file are errors, which begin with file:line.
func LoadBudget(ctx context.Context, file string) (*record.Budget, error) {
	data, err := input.Read(ctx, file, input.TextBytes)
	if err != nil {
		return nil, fmt.Errorf("reading the budget: %w", err)
	}
	root, err := input.Document(file, data)
	if err != nil {
		return nil, fmt.Errorf("reading the budget: %w", err)
	}
	var b record.Budget
	err = input.Fields(file, root, map[string]func(*yaml.Node) error{"dropped": input.Count(&b.Dropped), "delayed": input.Count(&b.Delayed),
		"slowPercent": input.Number(&b.SlowPercent, 0, 100), "p99ExtraMs": input.Number(&b.P99ExtraMs, 0, 1e6)})
	if err != nil {
		return nil, fmt.Errorf("reading the budget: %w", err)
	}
	return &b, nil
}
