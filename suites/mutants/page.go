package mutants

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/hitless/hitless/suites/conformance"
)

// WriteMarkdown writes the table of mutants and specs, the specs that prove nothing yet, and what is missing.
func (t *Table) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	kills := t.bySpec()
	b.WriteString(t.summary(kills) + "\n\n")
	b.WriteString("## Mutants\n\n| mutant | what it does | should break | state | red specs | of them |\n|---|---|---|---|---:|---|\n")
	for _, m := range All() {
		state := string(t.StateOf(m))
		if state != string(Killed) {
			state = "**" + state + "**"
		}
		red := t.Kills(m)
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %d | %s |\n", m.Name, m.Does, strings.Join(m.Features, ", "), state, len(red), Folded(red))
	}
	b.WriteString("\n## Specs\n\n")
	writeSpecs(&b, kills)
	_, err := io.WriteString(w, b.String())
	return err
}

// bySpec maps the names of specs to the mutants that turned each one red.
func (t *Table) bySpec() map[string][]string {
	kills := map[string][]string{}
	for _, m := range All() {
		for _, s := range t.Kills(m) {
			kills[s.Name] = append(kills[s.Name], m.Name)
		}
	}
	return kills
}

// summary is the numbers of the table in words.
func (t *Table) summary(kills map[string][]string) string {
	n := map[State]int{}
	for _, m := range All() {
		n[t.StateOf(m)]++
	}
	text := fmt.Sprintf("%d of %d mutants were killed, %d survived, %d are not measured. %d of %d specs killed a mutant.",
		n[Killed], len(All()), n[Survived], n[NotMeasured], len(kills), len(conformance.Catalog()))
	if defects := t.Defects(nil); len(defects) > 0 {
		text += fmt.Sprintf(" **The table is invalid:** the proxier without a fault did not pass %s.", strings.Join(defects, ", "))
	}
	return text
}

// Summary is the numbers of the table in one line.
func (t *Table) Summary() string { return t.summary(t.bySpec()) }

// writeSpecs lists the specs with the mutants that turned them red, and then those that prove nothing yet.
func writeSpecs(b *strings.Builder, kills map[string][]string) {
	b.WriteString("| spec | mutants that turn it red |\n|---|---|\n")
	var none []conformance.Spec
	for _, s := range conformance.Catalog() {
		if by := kills[s.Name]; len(by) > 0 {
			fmt.Fprintf(b, "| %s | %s |\n", s.Name, strings.Join(by, ", "))
		} else {
			none = append(none, s)
		}
	}
	if len(none) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%d specs prove nothing yet: none of the measured mutants turned them red.\n\n", len(none))
	for _, s := range none {
		fmt.Fprintf(b, "- %s\n", s.Name)
	}
}

// mostShown bounds the specs of a row.
const mostShown = 6

// Folded lists specs. Those that differ in their family only are one: `cluster IP (ipv4, ipv6)`.
func Folded(specs []conformance.Spec) string {
	var names []string
	families := map[string][]string{}
	for _, s := range specs {
		name, found := strings.CutPrefix(s.Name, string(s.Family)+" ")
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		if found {
			families[name] = append(families[name], string(s.Family))
		}
	}
	var all []string
	for i, name := range names {
		if i == mostShown {
			all = append(all, fmt.Sprintf("and %d more", len(names)-mostShown))
			break
		}
		if of := families[name]; len(of) > 0 {
			name += " (" + strings.Join(of, ", ") + ")"
		}
		all = append(all, name)
	}
	return strings.Join(all, "; ")
}
