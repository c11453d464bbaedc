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
	ID     string      `json:"id"`
	Mode   string      `json:"mode"`
	First  string      `json:"first"`  // oldest version with the bug
	Last   string      `json:"last"`   // newest version with the bug
	Before string      `json:"before"` // next older version, without the bug; empty if First is the oldest that was given
	After  string      `json:"after"`  // next newer version, without the bug; empty if Last is the newest that was given
	Runs   []BugResult `json:"runs"`   // in the order in which they were made
}

// Text is the result as a sentence.
func (a Affected) Text() string {
	text := fmt.Sprintf("%s is seen in kube-proxy %s to %s in mode %s", a.ID, a.First, a.Last, a.Mode)
	switch {
	case a.Before != "" && a.After != "":
		return text + fmt.Sprintf("; not in %s and %s", a.Before, a.After)
	case a.Before+a.After != "":
		return text + "; not in " + a.Before + a.After
	}
	return text + ", the oldest and the newest that were given"
}

// Bisect searches for the oldest and the newest of some versions of kube-proxy with a bug. It begins with the version that the museum names, and
// assumes that the versions with the bug follow each other without a gap. A run that cannot tell is an InvalidError.
func Bisect(ctx context.Context, o Options, e museum.Entry, versions []string, done func(BugResult)) (Affected, error) {
	bad, err := subject.Read(ctx, e.Bad.Subject)
	if err != nil {
		return Affected{}, err
	}
	a := Affected{ID: e.ID, Mode: bad.Mode}
	for _, v := range versions {
		if _, err := subject.Read(ctx, specOf(v, bad).String()); err != nil {
			return a, UsageError{Reason: err}
		}
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
		if b.Answer == museum.CannotTell {
			return false, &InvalidError{Reason: fmt.Sprintf("%s in %s: cannot tell: %s", e.ID, b.Subject, strings.Join(b.Reasons, "; "))}
		}
		return b.Answer == museum.Seen, nil
	}
	return a, a.search(versions, bad.Version, see)
}

// specOf is the subject with another version.
func specOf(version string, s subject.Spec) subject.Spec {
	s.Version = version
	return s
}

// search sets the fields of versions. One version is known to have the bug, which is checked first.
func (a *Affected) search(versions []string, known string, see func(version string) (bool, error)) error {
	if !slices.Contains(versions, known) {
		versions = append(versions, known)
	}
	versions = slices.Compact(slices.SortedFunc(slices.Values(versions), semver.Compare))
	start := slices.Index(versions, known)
	switch seen, err := see(known); {
	case err != nil:
		return err
	case !seen:
		return fmt.Errorf("%s is not seen in %s, which has it: another seed may show it", a.ID, known)
	}
	a.First, a.Last = known, known
	newer := versions[start+1:]
	n, err := affected(newer, see)
	if err != nil {
		return err
	}
	if n > 0 {
		a.Last = newer[n-1]
	}
	if n < len(newer) {
		a.After = newer[n]
	}
	older := slices.Clone(versions[:start])
	slices.Reverse(older)
	if n, err = affected(older, see); err != nil {
		return err
	}
	if n > 0 {
		a.First = older[n-1]
	}
	if n < len(older) {
		a.Before = older[n]
	}
	return nil
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
