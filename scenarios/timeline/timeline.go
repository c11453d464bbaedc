// Package timeline reads, checks, writes and minimizes timelines: text files with one step per line. docs/timeline.md has the grammar.
//
// A timeline does not describe the subject. Package scenarios performs its steps.
package timeline

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hitless/hitless/record"
)

// Timeline is a list of steps with their times, and the cluster that they need.
type Timeline struct {
	Nodes int     // 1 to 50; 3 by default
	Rate  float64 // attempts per second of each measured lane; 100 by default
	Seed  int64   // 1 by default
	Set   []Setting
	Lanes []Step // verb `lane start`: lanes in addition to those of the setting `lanes`; At is 0
	Given []Step // verb `object apply`: objects that exist before the baseline; At is 0
	Steps []Step // sorted by time; the last one is End
}

// Setting is one `set` line: a parameter of the scenario, as in --set.
type Setting struct {
	Key, Value string
	Line       int
}

// Step is one action.
type Step struct {
	At     time.Duration // since the end of the baseline, not negative
	Verb   string        // one of Verbs
	Object string        // empty for verbs without an object
	Args   []Arg         // in the order of the verb's keys
	JSON   string        // compact; of object apply and object patch only
	Text   string        // words with one space between them; the command of node run
	Line   int           // in the file, from 1; 0 for a step that was not read from a file
}

// Arg is an argument of a step.
type Arg struct{ Key, Value string }

// End is the verb of the last step. It has no effect; the lanes run until its time.
const End = "end"

// Defaults of the values before the steps.
const (
	defaultNodes = 3
	defaultRate  = 100
	defaultSeed  = 1
)

// New returns an empty timeline with the defaults.
func New() *Timeline { return &Timeline{Nodes: defaultNodes, Rate: defaultRate, Seed: defaultSeed} }

// Get returns the value of a key, empty when the step does not have it.
func (s Step) Get(key string) string {
	for _, a := range s.Args {
		if a.Key == key {
			return a.Value
		}
	}
	return ""
}

// Number returns the value of a key that is a whole number, or otherwise when the step does not have it.
func (s Step) Number(key string, otherwise int) int {
	if n, err := strconv.Atoi(s.Get(key)); err == nil {
		return n
	}
	return otherwise
}

// Duration returns the value of a key that is a duration, or otherwise when the step does not have it.
func (s Step) Duration(key string, otherwise time.Duration) time.Duration {
	if d, err := time.ParseDuration(s.Get(key)); err == nil {
		return d
	}
	return otherwise
}

// Node returns the node of the step, empty when its object is not a single node.
func (s Step) Node() string {
	if verbs[s.Verb].object.node && s.Object != All {
		return s.Object
	}
	return ""
}

// Action returns the step without its time, such as `proxy stop node-1`.
func (s Step) Action() string {
	words := []string{s.Verb}
	if s.Object != "" {
		words = append(words, s.Object)
	}
	for _, a := range s.Args {
		words = append(words, a.Key+"="+a.Value)
	}
	for _, rest := range []string{s.JSON, s.Text} {
		if rest != "" {
			words = append(words, rest)
		}
	}
	return strings.Join(words, " ")
}

// Name returns the step's name in reports: its action, with the reference of an object instead of its JSON.
func (s Step) Name() string {
	if s.JSON == "" {
		return s.Action()
	}
	reference, _ := s.Reference()
	return s.Verb + " " + reference
}

// String returns the line of the step.
func (s Step) String() string { return "+" + s.At.String() + " " + s.Action() }

// Equal reports whether two steps are the same. Their line numbers may differ.
func (s Step) Equal(other Step) bool {
	return s.String() == other.String()
}

// Reference returns the reference of the step's object, KIND/NAMESPACE/NAME or Node/NAME. For `object apply` it comes from the JSON.
func (s Step) Reference() (string, error) {
	if s.Verb != "object apply" {
		return s.Object, nil
	}
	var head struct {
		Kind     string
		Metadata struct{ Name, Namespace string }
	}
	if err := json.Unmarshal([]byte(s.JSON), &head); err != nil {
		return "", err
	}
	switch {
	case head.Kind == "":
		return "", fmt.Errorf("the object has no kind")
	case head.Metadata.Name == "":
		return "", fmt.Errorf("the object has no metadata.name")
	}
	return reference(head.Kind, head.Metadata.Namespace, head.Metadata.Name), nil
}

func reference(kind, namespace, name string) string {
	if kind == "Node" {
		return kind + "/" + name
	}
	if namespace == "" {
		namespace = "default"
	}
	return kind + "/" + namespace + "/" + name
}

// header returns the lines before the steps.
func (t *Timeline) header() []string {
	lines := []string{magic, "nodes " + strconv.Itoa(t.Nodes), "rate " + strconv.FormatFloat(t.Rate, 'g', -1, 64), "seed " + strconv.FormatInt(t.Seed, 10)}
	for _, s := range t.Set {
		lines = append(lines, "set "+s.Key+"="+s.Value)
	}
	for _, s := range t.Lanes {
		lines = append(lines, strings.Replace(s.Action(), laneStart, "lane", 1))
	}
	for _, s := range t.Given {
		lines = append(lines, "given "+s.JSON)
	}
	return lines
}

// Header returns the text before the steps, with a newline at its end.
func (t *Timeline) Header() string { return strings.Join(t.header(), "\n") + "\n" }

// String returns the text of the timeline. Parse reads the same timeline from it.
func (t *Timeline) String() string {
	lines := t.header()
	for _, s := range t.Steps {
		lines = append(lines, s.String())
	}
	return strings.Join(lines, "\n") + "\n"
}

// Length returns the time of the last step.
func (t *Timeline) Length() time.Duration {
	if len(t.Steps) == 0 {
		return 0
	}
	return t.Steps[len(t.Steps)-1].At
}

// With returns a copy of the timeline with other steps.
func (t *Timeline) With(steps []Step) *Timeline {
	other := *t
	other.Steps = slices.Clone(steps)
	return &other
}

// Protocols returns all protocols in the order in which their lanes start: those with lasting connections come first.
func Protocols() []string {
	return []string{record.ProtocolLong, record.ProtocolReuse, record.ProtocolSticky, record.ProtocolFresh, record.ProtocolNew}
}
