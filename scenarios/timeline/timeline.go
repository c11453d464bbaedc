// Package timeline reads, checks and writes timelines: texts with one step a line, which a person or a run writes and
// Minimize shortens. docs/timeline.md is the grammar.
//
// A timeline does not describe the proxy under test. Package scenarios performs it.
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
	Nodes int     // 3 when the text does not say; 1 to 50
	Rate  float64 // attempts a second of each measured lane; 100 when the text does not say
	Seed  int64   // 1 when the text does not say
	Set   []Setting
	Lanes []Step // `lane start` before the baseline: lanes beside those that the setting `lanes` names; At is 0
	Given []Step // `object apply` before any traffic flows; At is 0
	Steps []Step // in the order of time; the last one is End
}

// Setting is one `set` line: a parameter of the scenario, as --set has it.
type Setting struct {
	Key, Value string
	Line       int
}

// Step is one action.
type Step struct {
	At     time.Duration // since the beginning of the steps, not negative
	Verb   string        // one of Verbs
	Object string        // of the verb; empty for verbs without
	Args   []Arg         // in the order of the verb's table
	JSON   string        // compact; of object apply and object patch only
	Line   int           // in the text it was read from; 0 for none
}

// Arg is a key and its value.
type Arg struct{ Key, Value string }

// End is the verb of the last step. It does nothing: traffic flows until its time.
const End = "end"

// Defaults of values that a text does not set.
const (
	defaultNodes = 3
	defaultRate  = 100
	defaultSeed  = 1
)

// New is an empty timeline with the defaults.
func New() *Timeline { return &Timeline{Nodes: defaultNodes, Rate: defaultRate, Seed: defaultSeed} }

// Get is the value of a key, empty when the step does not have it.
func (s Step) Get(key string) string {
	for _, a := range s.Args {
		if a.Key == key {
			return a.Value
		}
	}
	return ""
}

// Number is the value of a key that is a whole number, otherwise when the step does not have it.
func (s Step) Number(key string, otherwise int) int {
	if n, err := strconv.Atoi(s.Get(key)); err == nil {
		return n
	}
	return otherwise
}

// Duration is the value of a key that is a duration, otherwise when the step does not have it.
func (s Step) Duration(key string, otherwise time.Duration) time.Duration {
	if d, err := time.ParseDuration(s.Get(key)); err == nil {
		return d
	}
	return otherwise
}

// Node is the node of the step; empty when it is not a single node.
func (s Step) Node() string {
	if verbs[s.Verb].object.node && s.Object != All {
		return s.Object
	}
	return ""
}

// Action is the step without its time: `proxy stop node-1`.
func (s Step) Action() string {
	words := []string{s.Verb}
	if s.Object != "" {
		words = append(words, s.Object)
	}
	for _, a := range s.Args {
		words = append(words, a.Key+"="+a.Value)
	}
	if s.JSON != "" {
		words = append(words, s.JSON)
	}
	return strings.Join(words, " ")
}

// String is the step as a line of the text.
func (s Step) String() string { return "+" + s.At.String() + " " + s.Action() }

// Equal reports whether two steps are the same, without their lines.
func (s Step) Equal(other Step) bool {
	return s.String() == other.String()
}

// Reference returns the reference of the step's object: KIND/NAMESPACE/NAME or KIND/NAME. For an `object apply` it is read
// from the JSON.
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
	return slashed(head.Kind, head.Metadata.Namespace, head.Metadata.Name), nil
}

func slashed(kind, namespace, name string) string {
	if kind == "Node" {
		return kind + "/" + name
	}
	if namespace == "" {
		namespace = "default"
	}
	return kind + "/" + namespace + "/" + name
}

// header are the lines before the steps.
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

// Header is the text before the steps, with its last newline.
func (t *Timeline) Header() string { return strings.Join(t.header(), "\n") + "\n" }

// String is the whole text. Parse reads it back to the same timeline.
func (t *Timeline) String() string {
	lines := t.header()
	for _, s := range t.Steps {
		lines = append(lines, s.String())
	}
	return strings.Join(lines, "\n") + "\n"
}

// Length is the time of the last step.
func (t *Timeline) Length() time.Duration {
	if len(t.Steps) == 0 {
		return 0
	}
	return t.Steps[len(t.Steps)-1].At
}

// With is the timeline with other steps.
func (t *Timeline) With(steps []Step) *Timeline {
	other := *t
	other.Steps = slices.Clone(steps)
	return &other
}

// Protocols are all protocols in the order in which lanes start: connections that stay open come first.
func Protocols() []string {
	return []string{record.ProtocolLong, record.ProtocolReuse, record.ProtocolSticky, record.ProtocolFresh, record.ProtocolNew}
}

// IsUDP reports whether a protocol uses datagrams.
func IsUDP(protocol string) bool { return strings.HasPrefix(protocol, "udp-") }
