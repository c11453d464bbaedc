package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hitless/hitless/hack/bugs"
	"github.com/hitless/hitless/internal/results"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/scenarios/museum"
	"github.com/hitless/hitless/suites/conformance"
	"github.com/hitless/hitless/suites/mutants"
)

// museumList is the table of all bugs, and a section for each with its facts, timeline and picture.
func museumList(string) (string, error) {
	var text strings.Builder
	text.WriteString("| bug | modes | affected | what happens |\n|---|---|---|---|\n")
	for _, e := range museum.All() {
		fmt.Fprintf(&text, "| [%s](#%s) | %s | %s | %s |\n", e.ID, e.ID, e.ModeText(), e.Affected, e.Title)
	}
	for _, e := range museum.All() {
		fmt.Fprintf(&text, "\n### %s\n\n%s.\n\n", e.ID, strings.ToUpper(e.Title[:1])+e.Title[1:])
		for _, f := range e.Facts() {
			value := f.Text
			switch {
			case strings.HasPrefix(value, "https://"):
				value = "<" + value + ">"
			case f.Code:
				value = "`" + value + "`"
			}
			fmt.Fprintf(&text, "- %s: %s\n", f.Name, value)
		}
		if steps := e.Excerpt(); steps != "" {
			text.WriteString("\n```\n" + steps + "```\n")
		}
		if picture, has := e.Picture(); has {
			text.WriteString("\n```\n" + picture + "```\n")
		}
	}
	return text.String(), nil
}

// museumTable is the table of the answers: bugs with a fixed version first.
func museumTable(top string) (string, error) {
	var text strings.Builder
	pairs, caught := [2]int{}, 0
	var stale []string // their answers are of other triggers
	for i, unfixed := range []bool{false, true} {
		text.WriteString([]string{"", "\nBugs without a fixed version; their twin is another mode, another program or a workaround:\n\n"}[i] +
			"| bug | with it | seen | verdict | without it | not seen | verdict | histories of seed 1 |\n|---|---|---|---|---|---|---|---|\n")
		for _, e := range museum.All() {
			a, err := results.ReadAnswers(context.Background(), bugs.File(top, e.ID))
			if errors.Is(err, fs.ErrNotExist) || e.Unfixed() != unfixed {
				continue
			}
			if err != nil {
				return "", err
			}
			if a.Bad, a.Good = about(e, e.Bad, a.Bad), about(e, e.Good, a.Good); len(a.Bad) == 0 {
				stale = append(stale, e.ID)
				continue
			}
			fmt.Fprintf(&text, "| %s | %s | %s | %s | %s | %s | %s | %s, %s |\n", e.ID, e.Bad, countOf(a.Bad, museum.Seen), verdictOf(a.Bad),
				e.Good, countOf(a.Good, museum.NotSeen), verdictOf(a.Good), shortHash(a.Bad), shortHash(a.Good))
			pairs[i]++
			if caughtByVerdict(a) {
				caught++
			}
		}
	}
	fmt.Fprintf(&text, "\n%s with a fixed version and %s without one were run. On seed 1 verdict and loss, without the signature, tell the subjects of %d of them apart. "+
		"The verdict is fail with the bug; without it, it is pass or the loss is less than half.\n", units.Plural(pairs[0], "bug"), units.Thousands(pairs[1]), caught)
	if len(stale) > 0 {
		fmt.Fprintf(&text, "\nNo row, because the trigger was changed after the runs: %s.\n", strings.Join(stale, ", "))
	}
	return text.String(), nil
}

// about are the answers about a specimen of an entry as it is now.
func about(e museum.Entry, s museum.Specimen, all []run.BugResult) []run.BugResult {
	return slices.DeleteFunc(slices.Clone(all), func(b run.BugResult) bool { return !bugs.Of(s, b) || !bugs.Current(e, b) })
}

// museumKills is the table of the conformance specs that tell the specimens of each bug apart.
func museumKills(top string) (string, error) {
	t, err := mutants.Read(filepath.Join(top, bugs.KillsFile))
	if err != nil {
		return "", err
	}
	var text, alone strings.Builder
	text.WriteString("| bug | with it | without it | specs that fail with the bug only |\n|---|---|---|---|\n")
	measured, found, named := 0, 0, 0
	var only []string // ids of bugs that no spec finds
	left := withoutKills()
	for _, k := range bugs.Kills(museum.All()) {
		switch red := k.Finds(t); {
		case t.StateOf(k.Mutant) == mutants.NotMeasured:
			left = append(left, k.ID)
			continue
		case len(red) > 0:
			mark := ""
			if !slices.ContainsFunc(red, func(s conformance.Spec) bool { return !bugs.NamesBug(s, k.Entry) }) {
				mark = " ¹"
				named++
			}
			fmt.Fprintf(&text, "| %s | %s | %s | %s%s |\n", k.ID, k.Bad.Subject, k.Good.Subject, mutants.Folded(red), mark)
			found++
		default:
			fmt.Fprintf(&alone, "- %s: %s\n", k.ID, k.Title)
			only = append(only, k.ID)
		}
		measured++
	}
	if measured == 0 {
		return "*Not measured yet*: `make museum-kills` has not run both specimens of any bug.\n", nil
	}
	if named > 0 {
		text.WriteString("\n¹ each of these specs names the bug as its source, and may have been written for it\n")
	}
	if len(left) > 0 {
		fmt.Fprintf(&text, "\nNot measured: %s.", strings.Join(left, "; "))
		for _, id := range slices.Sorted(maps.Keys(bugs.Unjudged)) {
			fmt.Fprintf(&text, " %s: %s.", id, bugs.Unjudged[id])
		}
		text.WriteString("\n")
	}
	fmt.Fprintf(&text, "\nSpecs find %d of the %d bugs that were measured, %d of them only by specs that name the bug.", found, measured, named)
	if len(only) > 0 {
		text.WriteString(" Only their own entries find these:\n\n" + alone.String() + "\nThese specs would find them:\n\n| spec | bugs |\n|---|---|\n")
		for _, w := range bugs.Wanted {
			if ids := slices.DeleteFunc(slices.Clone(w.Bugs), func(id string) bool { return !slices.Contains(only, id) }); len(ids) > 0 {
				fmt.Fprintf(&text, "| %s | %s |\n", w.Spec, strings.Join(ids, ", "))
			}
		}
	} else {
		text.WriteString("\n")
	}
	return text.String(), nil
}

// withoutKills are the bugs that specs cannot find, each with the reason.
func withoutKills() (texts []string) {
	kills := bugs.Kills(museum.All())
	for _, e := range museum.All() {
		if !slices.ContainsFunc(kills, func(k bugs.Kill) bool { return k.ID == e.ID }) {
			texts = append(texts, e.ID+", whose specimens are the same subject with other parameters")
		}
	}
	return texts
}

// countOf counts the results with the expected answer, and those that cannot tell.
func countOf(all []run.BugResult, expected museum.Answer) string {
	text := fmt.Sprintf("%d of %d", run.Count(all, expected), len(all))
	if unknown := run.Count(all, museum.CannotTell); unknown > 0 {
		text += fmt.Sprintf(", %d cannot tell", unknown)
	}
	return text
}

// verdictOf is the verdict and the loss of the first seed's run.
func verdictOf(all []run.BugResult) string {
	if len(all) == 0 || all[0].Verdict == "" {
		return "-"
	}
	return fmt.Sprintf("%s, %s of %s", all[0].Verdict, units.Thousands(all[0].Dropped), units.Thousands(all[0].Attempts))
}

// caughtByVerdict reports whether a reader of the two reports of the first seed sees the bug without its signature.
func caughtByVerdict(a results.Answers) bool {
	if len(a.Bad) == 0 || len(a.Good) == 0 {
		return false
	}
	bad, good := a.Bad[0], a.Good[0]
	return bad.Verdict == "fail" && (good.Verdict == "pass" || bad.Dropped > 2*good.Dropped)
}

// shortHash is the begin of the hash of the first seed's history.
func shortHash(all []run.BugResult) string {
	if len(all) == 0 || len(all[0].HistorySha256) < 12 {
		return "-"
	}
	return "`" + all[0].HistorySha256[:12] + "`"
}
