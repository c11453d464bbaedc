package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/hitless/hitless/hack/bugs"
	"github.com/hitless/hitless/internal/results"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/scenarios/museum"
)

// tried is what the committed runs of a bug tell about subjects. A bug that is seen on any seed is seen.
type tried struct {
	museum.Entry
	answers map[subjectKey]museum.Answer
}

// subjectKey is a subject without flags and parameters.
type subjectKey struct{ name, version, mode string }

func (s subjectKey) String() string {
	return subject.Spec{Name: s.name, Version: s.version, Mode: s.mode}.String()
}

// triedBugs reads the answers of all bugs: those of their specimens and of other subjects. A specimen with flags, or without the bug because of
// its parameters, tells nothing about its subject.
func triedBugs(top string) (all []tried, err error) {
	for _, e := range museum.All() {
		t := tried{e, map[subjectKey]museum.Answer{}}
		for _, file := range []string{bugs.File(top, e.ID), bugs.OthersFile(top, e.ID)} {
			a, err := results.ReadAnswers(context.Background(), file)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			if err := t.add(a); err != nil {
				return nil, err
			}
		}
		all = append(all, t)
	}
	return all, nil
}

func (t tried) add(a results.Answers) error {
	for _, b := range slices.Concat(a.Bad, a.Good) {
		s, err := subject.Read(context.Background(), b.Subject)
		if err != nil {
			return err
		}
		workaround := b.Answer != museum.Seen && len(b.Set) > 0
		if len(s.Flags) > 0 || workaround || !bugs.Current(t.Entry, b) {
			continue
		}
		key := subjectKey{s.Name, s.Version, s.Mode}
		if t.answers[key] != museum.Seen {
			t.answers[key] = b.Answer
		}
	}
	return nil
}

// with are the subjects with an answer: the modes in alphabetical order, each with its versions from old to new.
func (t tried) with(a museum.Answer) string {
	versions := map[string][]string{} // by mode; bundled has one of its own, without versions
	for s, is := range t.answers {
		switch {
		case is != a:
		case s.version == "":
			versions[s.name] = nil
		default:
			versions[s.mode] = append(versions[s.mode], s.version)
		}
	}
	var parts []string
	for _, mode := range slices.Sorted(maps.Keys(versions)) {
		slices.SortFunc(versions[mode], semver.Compare)
		parts = append(parts, strings.TrimSpace(mode+" "+strings.Join(versions[mode], ", ")))
	}
	return cmp.Or(strings.Join(parts, "; "), "-")
}

// bugVersions is the table of the subjects that were seen with each bug and without it.
func bugVersions(top string) (string, error) {
	all, err := triedBugs(top)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	text.WriteString("| bug | seen in | not seen in | cannot tell |\n|---|---|---|---|\n")
	for _, t := range all {
		if len(t.answers) > 0 {
			fmt.Fprintf(&text, "| [%s](../museum.md#%s) | %s | %s | %s |\n", t.ID, t.ID, t.with(museum.Seen), t.with(museum.NotSeen), t.with(museum.CannotTell))
		}
	}
	return text.String(), nil
}

// currentBugs is the table of the bugs of current proxies: the newest version of kube-proxy that was run, and the bundled proxier.
func currentBugs(top string) (string, error) {
	all, err := triedBugs(top)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	text.WriteString("| subject | bugs searched | seen | cannot tell |\n|---|---:|---|---|\n")
	for _, s := range current(all) {
		with := map[museum.Answer][]string{}
		searched := 0
		for _, t := range all {
			if a, has := t.answers[s]; has {
				with[a] = append(with[a], t.ID)
				searched++
			}
		}
		fmt.Fprintf(&text, "| %s | %d | %s | %s |\n", s, searched, cmp.Or(strings.Join(with[museum.Seen], ", "), "none"), cmp.Or(strings.Join(with[museum.CannotTell], ", "), "none"))
	}
	return text.String(), nil
}

// current are the subjects without a version, and those of the newest one.
func current(all []tried) (subjects []subjectKey) {
	newest, found := "", map[subjectKey]bool{}
	for _, t := range all {
		for s := range t.answers {
			if found[s] = true; semver.Compare(s.version, newest) > 0 {
				newest = s.version
			}
		}
	}
	for s := range found {
		if s.version == "" || s.version == newest {
			subjects = append(subjects, s)
		}
	}
	slices.SortFunc(subjects, func(x, y subjectKey) int { return cmp.Compare(x.String(), y.String()) })
	return subjects
}
