package run

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/scenarios/museum"
)

// Affected tells which versions of kube-proxy have a bug, as far as they were run.
type Affected struct {
	ID       string      `json:"id"`
	Mode     string      `json:"mode"`
	First    string      `json:"first"`    // oldest version with the bug
	Last     string      `json:"last"`     // newest version with the bug; versions in between can be without it
	Before   string      `json:"before"`   // next older version, without the bug; empty if First is the oldest that was given
	After    string      `json:"after"`    // next newer version, without the bug; empty if Last is the newest that was given
	Branches []Branch    `json:"branches"` // from old to new; one with the name v1 where the first releases were searched
	Runs     []BugResult `json:"runs"`     // in the order in which they were made
}

// Branch tells which of the given versions of one release branch have a bug. Fixes are picked into each branch at another time. The first releases
// of all minor versions are a branch too.
type Branch struct {
	Name    string   `json:"name"`    // such as v1.12, or v1 for the first releases
	First   string   `json:"first"`   // oldest version of the branch with the bug; empty for none
	Last    string   `json:"last"`    // newest version of the branch with the bug; those in between were not all run
	Without []string `json:"without"` // versions of the branch that were run and do not have it, from old to new

	before, after string // next to First and Last, without the bug; empty for none
	oldest        string // of the given versions
}

// Text is the result as a sentence.
func (a Affected) Text() string {
	var with, without []string
	for _, b := range a.Branches {
		without = append(without, b.Without...)
		switch b.First {
		case "":
		case b.Last:
			with = append(with, b.First)
		default:
			with = append(with, b.First+" to "+b.Last)
		}
	}
	text := fmt.Sprintf("%s is seen in kube-proxy %s in mode %s", a.ID, strings.Join(with, ", "), a.Mode)
	if len(without) > 0 {
		text += "; not in " + strings.Join(without, ", ")
	} else {
		text += "; no version without it was given"
	}
	if len(a.Branches) == 1 && a.Branches[0].Name == wholeMajor {
		text += "; only first releases were searched, and none between the oldest and the newest with the bug was expected to be without it"
	}
	return text
}

// wholeMajor names the branch of the first releases.
const wholeMajor = "v1"

// Bisect searches each release branch of some versions of kube-proxy for the oldest and the newest version with a bug. It assumes that those
// with the bug follow each other in their branch without a gap. Without versions it searches the first releases of the minor versions, such as
// v1.22.0, as one branch. A run that cannot tell is an InvalidError.
func Bisect(ctx context.Context, o Options, e museum.Entry, versions []string, done func(BugResult)) (Affected, error) {
	bad, err := subject.Read(ctx, e.Bad.Subject)
	if err != nil {
		return Affected{}, err
	}
	a := Affected{ID: e.ID, Mode: bad.Mode}
	branch := semver.MajorMinor
	if len(versions) == 0 {
		versions, branch = firstReleases(e, bad), semver.Major
	} else if err := checkVersions(ctx, e, bad, versions); err != nil {
		return a, err
	}
	see := func(version string) (bool, error) {
		one := o
		one.Subject = specOf(version, bad).String()
		one.Out = filepath.Join(cmp.Or(o.Out, filepath.Join("out", "bisect-"+e.ID)), version)
		b, err := Museum(ctx, one, e)
		if err != nil {
			return false, err
		}
		a.Runs = append(a.Runs, b)
		done(b)
		return shows(b)
	}
	err = a.search(versions, bad.Version, branch, see)
	return a, err
}

// checkVersions returns a UsageError for a version that does not exist, or to which the bug does not apply.
func checkVersions(ctx context.Context, e museum.Entry, bad subject.Spec, versions []string) error {
	for _, v := range versions {
		if _, err := subject.Read(ctx, specOf(v, bad).String()); err != nil {
			return UsageError{Reason: err}
		}
		if why := e.Applies(specOf(v, bad).String(), bad.Mode); why != "" {
			return UsageError{Reason: fmt.Errorf("%s does not apply to %s: %s", e.ID, v, why)}
		}
	}
	return nil
}

// firstReleases are the first releases of the minor versions of kube-proxy that can have a bug, from old to new.
func firstReleases(e museum.Entry, bad subject.Spec) (versions []string) {
	newest := semver.MajorMinor(subject.Newest(bad.Mode, newest()))
	for minor := 0; ; minor++ {
		version := fmt.Sprintf("v1.%d.0", minor)
		switch {
		case semver.Compare(version, newest+".0") > 0:
			return versions
		case semver.Compare(version, subject.Oldest(bad.Mode)+".0") >= 0 && e.Applies(specOf(version, bad).String(), bad.Mode) == "":
			versions = append(versions, version)
		}
	}
}

// shows reports whether a run shows the bug. A run that tells neither is an InvalidError: the version would count as one without the bug.
func shows(b BugResult) (bool, error) {
	if b.Answer == museum.Seen || b.Answer == museum.NotSeen {
		return b.Answer == museum.Seen, nil
	}
	return false, &InvalidError{Reason: fmt.Sprintf("%s in %s: %s: %s", b.ID, b.Subject, b.Answer, strings.Join(b.Reasons, "; "))}
}

// specOf is the subject with another version.
func specOf(version string, s subject.Spec) subject.Spec {
	s.Version = version
	return s
}

// search sets the fields of versions. One version is known to have the bug, which is checked first. branch names the branch of a version.
func (a *Affected) search(versions []string, known string, branch func(version string) string, see func(version string) (bool, error)) error {
	versions = slices.Compact(slices.SortedFunc(slices.Values(append(slices.Clone(versions), known)), semver.Compare))
	asked := map[string]bool{}
	see = once(see, asked)
	switch seen, err := see(known); {
	case err != nil:
		return err
	case !seen:
		return fmt.Errorf("%s is not seen in %s, which has it: another seed may show it", a.ID, known)
	}
	for len(versions) > 0 {
		name := branch(versions[0])
		n := len(versions)
		if next := slices.IndexFunc(versions, func(v string) bool { return branch(v) != name }); next >= 0 {
			n = next
		}
		b := Branch{Name: name, oldest: versions[0], Without: []string{}}
		if err := b.search(versions[:n], known, see); err != nil {
			return err
		}
		for _, v := range versions[:n] {
			if seen, asked := asked[v]; asked && !seen {
				b.Without = append(b.Without, v)
			}
		}
		a.add(b, versions[n-1])
		versions = versions[n:]
	}
	return nil
}

// add adds the next newer branch. The newest of its versions can be the neighbour of a later one with the bug.
func (a *Affected) add(b Branch, newest string) {
	a.Branches = append(a.Branches, b)
	switch {
	case b.First == "" && a.First == "":
		a.Before = newest
	case b.First == "" && a.After == "":
		a.After = b.oldest
	case b.First != "":
		if a.First == "" {
			a.First, a.Before = b.First, cmp.Or(b.before, a.Before)
		}
		a.Last, a.After = b.Last, b.after
	}
}

// search searches the versions of the branch, from old to new.
func (b *Branch) search(versions []string, known string, see func(version string) (bool, error)) error {
	start, err := anyWith(versions, known, see)
	if start < 0 || err != nil {
		return err
	}
	older := slices.Clone(versions[:start])
	slices.Reverse(older)
	if b.Last, b.after, err = reach(versions[start], versions[start+1:], see); err == nil {
		b.First, b.before, err = reach(versions[start], older, see)
	}
	return err
}

// anyWith returns the index of a version with the bug: the known one, the newest, the oldest, or any other; -1 if none has it.
func anyWith(versions []string, known string, see func(version string) (bool, error)) (int, error) {
	if i := slices.Index(versions, known); i >= 0 {
		return i, nil
	}
	order := []int{len(versions) - 1}
	for i := range len(versions) - 1 {
		order = append(order, i)
	}
	for _, i := range order {
		if seen, err := see(versions[i]); seen || err != nil {
			return i, err
		}
	}
	return -1, nil
}

// reach returns the last of the versions with the bug, from one that has it on, and the next one, which does not; empty if all have it.
func reach(from string, versions []string, see func(version string) (bool, error)) (last, next string, err error) {
	n, err := affected(versions, see)
	if last = from; n > 0 {
		last = versions[n-1]
	}
	if n < len(versions) {
		next = versions[n]
	}
	return last, next, err
}

// once asks about each version once, and keeps the answers.
func once(see func(version string) (bool, error), known map[string]bool) func(version string) (bool, error) {
	return func(version string) (bool, error) {
		if seen, asked := known[version]; asked {
			return seen, nil
		}
		seen, err := see(version)
		if err == nil {
			known[version] = seen
		}
		return seen, err
	}
}

// affected returns how many of the first versions have the bug; none after the first without it has.
func affected(versions []string, see func(version string) (bool, error)) (int, error) {
	low, high := 0, len(versions) // versions before low have it, the one at high does not
	for low < high {
		middle := (low + high) / 2
		seen, err := see(versions[middle])
		switch {
		case err != nil:
			return 0, err
		case seen:
			low = middle + 1
		default:
			high = middle
		}
	}
	return low, nil
}
