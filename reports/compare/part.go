package compare

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/input"
	"github.com/hitless/hitless/record"
)

// PartFile is the file of a part of a comparison.
const PartFile = "compare-part.json"

// Part is compare-part.json: the runs of a comparison that one shard made.
type Part struct {
	SchemaVersion int            `json:"schemaVersion"` // Version
	Scenario      string         `json:"scenario"`
	Command       string         `json:"command"` // repeats the whole comparison
	Reference     string         `json:"reference,omitempty"`
	Kernels       bool           `json:"kernels,omitempty"`
	Budget        *record.Budget `json:"budget,omitempty"`
	Subjects      []Subject      `json:"subjects"` // all, in their order, each with the runs of the shard
}

// NewPart is the part of a comparison with these runs.
func NewPart(scenario, command string, subjects []Subject, o Options) Part {
	return Part{SchemaVersion: Version, Scenario: scenario, Command: command, Reference: o.Against, Kernels: o.Kernels, Budget: o.Budget, Subjects: subjects}
}

// WritePart writes a part into a folder.
func WritePart(dir string, p Part) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(p); err != nil {
		return fmt.Errorf("writing a part of the comparison: %w", err)
	}
	return cache.WriteFile(filepath.Join(dir, PartFile), b.Bytes())
}

// ReadPart reads the part in a folder.
func ReadPart(ctx context.Context, dir string) (p Part, err error) {
	file := filepath.Join(dir, PartFile)
	data, err := input.Read(ctx, file, input.ReportBytes)
	if err != nil {
		return p, fmt.Errorf("reading a part of a comparison: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		return p, fmt.Errorf("reading %s: %w; run the shard again", file, err)
	}
	if p.SchemaVersion != Version {
		return p, fmt.Errorf("reading %s: its version is %d, and this hitless knows version %d; use the hitless that made it", file, p.SchemaVersion, Version)
	}
	return p, nil
}

// JoinParts makes the comparison of all parts, one or more. They must be of one call, as their manifests tell. Parts with other subjects, or in
// another order, are an error.
func JoinParts(parts []Part) (*Comparison, error) {
	first := parts[0]
	for _, p := range parts {
		if got, want := p.names(), first.names(); !slices.Equal(got, want) {
			return nil, fmt.Errorf("the parts of a comparison have different subjects: %s, and %s; run the shards again", strings.Join(want, ", "), strings.Join(got, ", "))
		}
		if p.Scenario != first.Scenario || p.Reference != first.Reference || p.Kernels != first.Kernels || !reflect.DeepEqual(p.Budget, first.Budget) {
			return nil, errors.New("the parts of a comparison have different scenarios, references, kernels or budgets; run the shards again, with the same file of a budget on all machines")
		}
	}
	subjects := make([]Subject, len(first.Subjects))
	for i, s := range first.Subjects {
		subjects[i].Subject = s.Subject
		for _, p := range parts {
			subjects[i].Runs = append(subjects[i].Runs, p.Subjects[i].Runs...)
		}
	}
	c, err := New(first.Scenario, subjects, Options{Against: first.Reference, Kernels: first.Kernels, Budget: first.Budget})
	if err != nil {
		return nil, err
	}
	c.Command = first.Command
	return c, nil
}

// names are the names of the subjects.
func (p Part) names() (all []string) {
	for _, s := range p.Subjects {
		all = append(all, s.Subject)
	}
	return all
}
