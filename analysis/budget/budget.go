// Package budget reads budget files, and judges recorded runs by them: docs/budgets.md.
package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/input"
	"github.com/hitless/hitless/record"
)

// File is a budget with the places of its rules in the file.
type File struct {
	record.Budget
	name  string
	lines []int // of the rules
}

// Load reads a budget file of at most 1 MB. An unknown or repeated key, a wrong value, a second document, an empty file and rules that
// contradict each other are errors, which begin with file:line.
func Load(ctx context.Context, file string) (*File, error) {
	data, err := input.Read(ctx, file, input.TextBytes)
	if err == nil {
		var f *File
		if f, err = parse(file, data); err == nil {
			return f, nil
		}
	}
	return nil, fmt.Errorf("reading the budget: %w", err)
}

func parse(file string, data []byte) (*File, error) {
	root, err := input.Document(file, data)
	if err != nil {
		return nil, err
	}
	f := &File{name: file}
	var rules *yaml.Node
	err = input.Fields(file, root, map[string]func(*yaml.Node) error{"dropped": input.Count(&f.Dropped), "delayed": input.Count(&f.Delayed),
		"slowPercent": input.Number(&f.SlowPercent, 0, 100), "p99ExtraMs": input.Number(&f.P99ExtraMs, 0, 1e6),
		"rules": func(n *yaml.Node) error { rules = n; return nil }})
	if err != nil || rules == nil {
		return f, err
	}
	if err := f.readRules(rules); err != nil {
		return nil, err
	}
	for i, r := range f.Rules {
		if r.Selector == (record.Selector{}) && r.BoundsLoss() && f.Dropped+f.Delayed > 0 {
			return nil, input.Errorf(file, f.lines[i], "this rule selects every lost attempt, so that the budget of what no rule covers (dropped, delayed) can never apply; leave one of them out")
		}
	}
	return f, nil
}

func (f *File) readRules(list *yaml.Node) error {
	if list.Kind != yaml.SequenceNode || len(list.Content) == 0 {
		return input.Errorf(f.name, list.Line, "rules: want a list of rules, each with what it selects and what it limits")
	}
	for _, n := range list.Content {
		rule, err := f.readRule(n)
		if err != nil {
			return err
		}
		for i, earlier := range f.Rules {
			if err := contradiction(earlier, rule, f.lines[i]); err != nil {
				return input.Errorf(f.name, n.Line, "%w", err)
			}
		}
		f.Rules, f.lines = append(f.Rules, rule), append(f.lines, n.Line)
	}
	return nil
}

func (f *File) readRule(n *yaml.Node) (rule record.BudgetRule, err error) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	err = input.Fields(f.name, n, map[string]func(*yaml.Node) error{
		"scenario": word(&rule.Scenario), "lane": word(&rule.Lane), "node": word(&rule.Node),
		"class": word(&rule.Class, classWords()...), "role": word(&rule.Role, record.RoleDisturbed, record.RoleOther),
		"cause":   word(&rule.Cause, analysis.CauseEvents()...),
		"dropped": count(&rule.Dropped), "delayed": count(&rule.Delayed),
		"longestGap": length(&rule.LongestGap), "outage": length(&rule.Outage), "p99": length(&rule.P99)})
	if err == nil {
		if err = meaningless(rule); err != nil {
			err = input.Errorf(f.name, n.Line, "%w", err)
		}
	}
	return rule, err
}

// classWords are the classes that an attempt can fail with.
func classWords() (words []string) {
	for _, c := range record.Classes() {
		if c.Dropped() || c == record.Delayed {
			words = append(words, c.String())
		}
	}
	return words
}

// word reads a text, one of those given if there are any.
func word(to *string, known ...string) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		switch {
		case n.Kind != yaml.ScalarNode || n.Tag != "!!str" || n.Value == "":
			return errors.New("want a text")
		case len(known) > 0 && !slices.Contains(known, n.Value):
			return fmt.Errorf("%q is none of %s", n.Value, strings.Join(known, ", "))
		}
		*to = n.Value
		return nil
	}
}

func count(to **int) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		*to = new(int)
		return input.Count(*to)(n)
	}
}

func length(to **record.Length) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		if n.Kind != yaml.ScalarNode {
			return errors.New("want a duration, such as 500ms or 1m30s")
		}
		l, err := record.ParseLength(n.Value)
		*to = &l
		return err
	}
}

// meaningless returns an error for a rule that limits nothing, or nothing that it selects.
func meaningless(r record.BudgetRule) error {
	switch {
	case !r.BoundsLoss() && r.P99 == nil:
		return errors.New("this rule limits nothing; give dropped, delayed, longestGap, outage or p99")
	case r.P99 != nil && (r.Class != "" || r.Role != "" || r.Node != "" || r.Cause != ""):
		return errors.New("p99 is measured for whole lanes; select by scenario and lane only, and put other limits into a rule of their own")
	case r.Class == record.Delayed.String() && r.Dropped != nil:
		return errors.New("an attempt of the class delayed is not dropped; limit delayed, longestGap or outage")
	case r.Class != "" && r.Class != record.Delayed.String() && r.Delayed != nil:
		return fmt.Errorf("an attempt of the class %s is not delayed; limit dropped, longestGap or outage", r.Class)
	}
	return nil
}

// contradiction returns an error for a rule of which an earlier one, in a line of the file, leaves nothing.
func contradiction(earlier, r record.BudgetRule, line int) error {
	switch {
	case earlier.Selector == r.Selector:
		return fmt.Errorf("this rule selects the same as the rule in line %d; make one rule of them", line)
	case !earlier.Includes(r.Selector):
		return nil
	case earlier.BoundsLoss() && r.BoundsLoss():
		return fmt.Errorf("this rule can never apply, because the rule in line %d covers everything that it selects; put it before that rule", line)
	case earlier.P99 != nil && r.P99 != nil:
		return fmt.Errorf("the p99 of this rule can never apply, because the rule in line %d has one for everything that it selects; put it before that rule", line)
	}
	return nil
}

// Judge judges a recorded run by the budget. A rule for the run's scenario that names a lane or a node which the run lacks is an error
// with the rule's line.
func (f *File) Judge(h *record.History) (*analysis.Report, error) {
	r, err := analysis.Judge(h, &f.Budget)
	return r, f.Locate(err)
}

// Locate gives an analysis.RuleError of this budget the rule's line. Other errors it returns as they are.
func (f *File) Locate(err error) error {
	if bad := new(analysis.RuleError); errors.As(err, &bad) {
		return input.Errorf(f.name, f.lines[bad.Rule], "%w", bad.Err)
	}
	return err
}

// CheckScenarios returns an error for a rule for a scenario that is not among those given.
func (f *File) CheckScenarios(known []string) error {
	for i, r := range f.Rules {
		if r.Scenario != "" && !slices.Contains(known, r.Scenario) {
			return input.Errorf(f.name, f.lines[i], "there is no scenario %q; the scenarios are %s", r.Scenario, strings.Join(known, ", "))
		}
	}
	return nil
}

// CheckLanes returns an error for a rule that names a lane which a run of the scenario will not have.
func (f *File) CheckLanes(scenario string, lanes []string) error {
	for i, r := range f.Rules {
		if r.Lane != "" && (r.Scenario == "" || r.Scenario == scenario) && !slices.Contains(lanes, r.Lane) {
			return input.Errorf(f.name, f.lines[i], "the run will have no lane %q; with these parameters it has %s", r.Lane, strings.Join(lanes, ", "))
		}
	}
	return nil
}
