package museum

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// Fact is one line about an entry, such as which versions have the bug.
type Fact struct {
	Name, Text string
	Code       bool // the text is a command, or arguments of one
}

// Facts returns what is known of a bug, in the order in which a reader needs it.
func (e Entry) Facts() (facts []Fact) {
	for _, f := range []Fact{{"issue", e.Issue, false}, {"fix", e.Fix, false}, {"affected", e.Affected, false}, {"fixed in", e.Fixed, false},
		{"modes", e.ModeText(), false}, {"has the bug", e.Bad.String(), true}, {"does not", e.Good.String(), true},
		{"trigger", e.trigger(), e.Timeline == nil}, {"look for", e.Look, false},
		{"see it", "hitless museum run " + e.ID + " --subject " + e.Bad.String() + " --controlplane replay", true}} {
		if f.Text != "" {
			facts = append(facts, f)
		}
	}
	return facts
}

// ModeText lists the modes of proxies that can have the bug.
func (e Entry) ModeText() string {
	if len(e.Modes) == 0 {
		return "all"
	}
	return strings.Join(e.Modes, ", ")
}

// String is the subject with its parameters, as arguments of `hitless museum run`.
func (s Specimen) String() string {
	return strings.Join(append([]string{word(s.Subject)}, settings(s.Set)...), " ")
}

// trigger is the scenario with its parameters, as arguments of `hitless run`; for a timeline where its steps stand.
func (e Entry) trigger() string {
	if e.Timeline != nil {
		return "the timeline below"
	}
	words := []string{"hitless run " + e.Scenario}
	if e.Nodes > 0 {
		words = append(words, fmt.Sprintf("--nodes %d", e.Nodes))
	}
	return strings.Join(append(words, settings(e.Set)...), " ")
}

// settings are parameters as arguments, in order of their keys.
func settings(set map[string]string) (words []string) {
	for _, key := range slices.Sorted(maps.Keys(set)) {
		words = append(words, "--set "+word(key+"="+set[key]))
	}
	return words
}

// word is a text as one word of a shell.
func word(text string) string {
	if strings.ContainsAny(text, "?&;* ") {
		return "'" + text + "'"
	}
	return text
}

// Write explains the bug: its facts, its timeline and a picture of a run that has it.
func (e Entry) Write(out io.Writer) error {
	fmt.Fprintf(out, "%s: %s\n\n", e.ID, e.Title)
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	for _, f := range e.Facts() {
		fmt.Fprintf(w, "%s\t%s\n", f.Name, f.Text)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	picture, _ := e.Picture()
	steps := e.Excerpt()
	if _, err := e.Text(); err != nil {
		steps = err.Error() + "\n"
	}
	for _, part := range []string{steps, picture} {
		if part != "" {
			if _, err := fmt.Fprintf(out, "\n%s", part); err != nil {
				return err
			}
		}
	}
	return nil
}
