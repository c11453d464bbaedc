package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/hitless/hitless/hack/bugs"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/lab/build"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/museum"
)

// versions stands for the versions of kube-proxy between which a bug came and went.
const versions = "versions"

// examineVersions searches the versions of each bug among the first releases, and keeps the answers of the versions that it ran. A bug whose
// versions are known is not searched again. A search that ends with an error keeps what it ran, and does not stop the others.
func (o options) examineVersions(ctx context.Context) error {
	others, err := openAll(o.entries, bugs.OthersFile)
	if err != nil {
		return err
	}
	specimens, err := openAll(o.entries, bugs.File)
	if err != nil {
		return err
	}
	var searches []museum.Entry
	for _, e := range o.entries {
		bad, err := subject.Read(ctx, e.Bad.Subject)
		if err != nil {
			return err
		}
		// The tables of versions have no flags: a version with them is another subject.
		if searched := bad.Version != "" && len(bad.Flags) == 0; searched && (o.force || !bounded(e, bad, specimens[e.ID], others[e.ID])) {
			searches = append(searches, e)
		}
	}
	return inTurn(ctx, searches, func(e museum.Entry) string { return e.ID }, func(e museum.Entry) (string, func() error) {
		a, err := search(ctx, e)
		return fmt.Sprintf("seen from %s to %s", a.First, a.Last), func() error { return errors.Join(others[e.ID].keep(e, a.Runs), err) }
	})
}

// search runs `hitless museum bisect`, which prints the runs that it made also when one of them cannot tell. Answers that do not tell what made them
// are left out.
func search(ctx context.Context, e museum.Entry) (a run.Affected, err error) {
	out := filepath.Join(folders, "bisect-"+e.ID)
	if err := os.RemoveAll(out); err != nil {
		return a, err
	}
	stdout, err := output(ctx, "museum", "bisect", e.ID, "--controlplane", "replay", "--json", "--out", out, "--deadline", "1h")
	if len(stdout) > 0 {
		err = errors.Join(err, json.Unmarshal(stdout, &a))
	}
	for i, b := range a.Runs {
		s, parseErr := subject.Read(ctx, b.Subject)
		if parseErr == nil {
			a.Runs[i].Made, parseErr = record.MadeIn(os.DirFS(filepath.Join(out, s.Version)))
		}
		if parseErr == nil && a.Runs[i].Made == nil {
			parseErr = fmt.Errorf("%s has no %s, and its answer is not kept", filepath.Join(out, s.Version), record.HostFile)
		}
		err = errors.Join(err, parseErr)
	}
	a.Runs = slices.DeleteFunc(a.Runs, func(b run.BugResult) bool { return b.Made == nil })
	return a, err
}

// keep writes the answers about other subjects than the specimens.
func (f *file) keep(e museum.Entry, answers []run.BugResult) (err error) {
	for _, b := range answers {
		if !bugs.Of(e.Bad, b) && !bugs.Of(e.Good, b) {
			err = errors.Join(err, f.add(task{e, other, museum.Specimen{Subject: b.Subject, Set: b.Set}, b.Seed}, b))
		}
	}
	return err
}

// bounded reports whether the answers of files tell in which minor version the bug came, and in which it went.
func bounded(e museum.Entry, bad subject.Spec, files ...*file) bool {
	seen, not := versionsOf(bad, files)
	if len(seen) == 0 {
		return false
	}
	first, last := slices.MinFunc(seen, semver.Compare), slices.MaxFunc(seen, semver.Compare)
	came := !applies(e, bad, minorOf(first)-1) || slices.ContainsFunc(not, func(v string) bool { return semver.Compare(v, first) < 0 && minorOf(v) >= minorOf(first)-1 })
	went := !applies(e, bad, minorOf(last)+1) || slices.ContainsFunc(not, func(v string) bool { return semver.Compare(v, last) > 0 && minorOf(v) <= minorOf(last)+1 })
	return came && went
}

// versionsOf are the versions of a subject that were seen with the bug, and without it.
func versionsOf(bad subject.Spec, files []*file) (seen, not []string) {
	for _, f := range files {
		for _, b := range slices.Concat(f.Bad, f.Good) {
			s, err := subject.Parse(b.Subject)
			switch {
			case err != nil || s.Name != bad.Name || s.Mode != bad.Mode || len(s.Flags) > 0:
			case b.Answer == museum.Seen:
				seen = append(seen, s.Version)
			case b.Answer == museum.NotSeen:
				not = append(not, s.Version)
			}
		}
	}
	return seen, not
}

// applies reports whether the first release of a minor version can have the bug.
func applies(e museum.Entry, bad subject.Spec, minor int) bool {
	bad.Version = fmt.Sprintf("v1.%d.0", minor)
	newest := ""
	for _, r := range build.Versions() {
		if r.Name == bad.Name {
			newest = r.Newest
		}
	}
	return minor >= minorOf(subject.Oldest(bad.Mode)) && minor <= minorOf(subject.Newest(bad.Mode, newest)) && e.Applies(bad.String(), bad.Mode) == ""
}

// minorOf is 12 for v1.12.4.
func minorOf(version string) int {
	minor, _ := strconv.Atoi(strings.TrimPrefix(semver.MajorMinor(version), "v1."))
	return minor
}
