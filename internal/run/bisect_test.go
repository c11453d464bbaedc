package run

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/semver"

	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/scenarios/museum"
)

func TestBisect(t *testing.T) {
	versions := []string{"v1.9.1", "v1.26.0", "v1.12.10", "v1.13.1", "v1.20.4", "v1.22.3"}
	for name, c := range map[string]struct {
		first, last string // that have the bug
		want        Affected
	}{
		"in the middle":     {"v1.12.10", "v1.20.4", Affected{First: "v1.12.10", Last: "v1.20.4", Before: "v1.9.1", After: "v1.22.3"}},
		"one version":       {"v1.13.1", "v1.13.1", Affected{First: "v1.13.1", Last: "v1.13.1", Before: "v1.12.10", After: "v1.20.4"}},
		"from the oldest":   {"v1.9.1", "v1.13.1", Affected{First: "v1.9.1", Last: "v1.13.1", After: "v1.20.4"}},
		"up to the newest":  {"v1.13.1", "v1.26.0", Affected{First: "v1.13.1", Last: "v1.26.0", Before: "v1.12.10"}},
		"in every version":  {"v1.9.1", "v1.26.0", Affected{First: "v1.9.1", Last: "v1.26.0"}},
		"not where claimed": {"v1.22.3", "v1.22.3", Affected{}},
	} {
		asked := map[string]int{}
		var a Affected
		err := a.search(slices.Clone(versions), "v1.13.1", semver.MajorMinor, func(v string) (bool, error) {
			asked[v]++
			return semver.Compare(v, c.first) >= 0 && semver.Compare(v, c.last) <= 0, nil
		})
		if a.First != c.want.First || a.Last != c.want.Last || a.Before != c.want.Before || a.After != c.want.After || (err != nil) != (c.want.First == "") {
			t.Errorf("%s: %+v, %v; want %+v", name, a, err, c.want)
		}
		for v, n := range asked {
			if n > 1 {
				t.Errorf("%s: %s was run %d times", name, v, n)
			}
		}
	}
	failed := errors.New("no CPU")
	var a Affected
	if err := a.search(versions, "v1.13.1", semver.MajorMinor, func(string) (bool, error) { return false, failed }); !errors.Is(err, failed) {
		t.Errorf("a run that ended early gave %v", err)
	}
}

// A bug that is fixed in v1.11.10 and v1.12.5 is in v1.12.0 to v1.12.4, which are newer than v1.11.10. It can begin and end inside of a branch.
func TestBisectSearchesEachBranch(t *testing.T) {
	given := []string{"v1.10.1", "v1.10.3", "v1.10.4", "v1.10.9", "v1.11.2", "v1.11.9", "v1.11.10", "v1.12.0", "v1.12.3", "v1.12.4", "v1.12.5", "v1.13.0", "v1.13.1", "v1.14.0"}
	with := []string{"v1.10.3", "v1.11.2", "v1.11.9", "v1.12.0", "v1.12.3", "v1.12.4", "v1.13.0"}
	a := Affected{ID: "bug", Mode: "ipvs"}
	if err := a.search(given, "v1.12.3", semver.MajorMinor, func(v string) (bool, error) { return slices.Contains(with, v), nil }); err != nil {
		t.Fatal(err)
	}
	want := "bug is seen in kube-proxy v1.10.3, v1.11.2 to v1.11.9, v1.12.0 to v1.12.4, v1.13.0 in mode ipvs; not in v1.10.1, v1.10.4, v1.10.9, v1.11.10, v1.12.5, v1.13.1, v1.14.0"
	if a.Text() != want {
		t.Errorf("%s\nwant %s", a.Text(), want)
	}
	if a.First != "v1.10.3" || a.Last != "v1.13.0" || a.Before != "v1.10.1" || a.After != "v1.13.1" || len(a.Branches) != 5 {
		t.Errorf("%+v", a)
	}
}

// Without versions the first releases of all minors are searched. The versions with the bug are found in few runs, and the museum's own version is
// one of them.
func TestBisectSearchesMinors(t *testing.T) {
	e, err := museum.Find("k8s-105657")
	if err != nil {
		t.Fatal(err)
	}
	bad, err := subject.Read(t.Context(), e.Bad.Subject)
	if err != nil {
		t.Fatal(err)
	}
	versions := firstReleases(e, bad)
	if len(versions) < 27 || versions[0] != "v1.11.0" || semver.MajorMinor(versions[len(versions)-1]) != semver.MajorMinor(newest()) {
		t.Fatalf("the first releases are %v", versions)
	}
	runs := 0
	a := Affected{ID: e.ID, Mode: bad.Mode}
	err = a.search(versions, bad.Version, semver.Major, func(v string) (bool, error) {
		runs++
		return semver.Compare(v, "v1.21.0") >= 0 && semver.Compare(v, "v1.22.5") < 0, nil
	})
	if err != nil || a.First != "v1.21.0" || a.Last != bad.Version || a.Before != "v1.20.0" || a.After != "v1.23.0" || runs > 10 || !strings.Contains(a.Text(), "first releases") {
		t.Errorf("after %d runs: %+v, %v", runs, a, err)
	}
	nft, err := museum.Find("k8s-132456")
	if err != nil {
		t.Fatal(err)
	}
	if bad, err = subject.Read(t.Context(), nft.Bad.Subject); err != nil || firstReleases(nft, bad)[0] != "v1.29.0" {
		t.Errorf("mode nftables begins at %v, %v", firstReleases(nft, bad), err)
	}
}

// A run that tells nothing, or to which the bug does not apply, is no version without the bug.
func TestOnlyAnswersCountAsVersions(t *testing.T) {
	for answer, want := range map[museum.Answer]bool{museum.Seen: true, museum.NotSeen: false} {
		if got, err := shows(BugResult{Answer: answer}); err != nil || got != want {
			t.Errorf("%s: %v, %v", answer, got, err)
		}
	}
	for _, answer := range []museum.Answer{museum.CannotTell, museum.DoesNotApply} {
		if _, err := shows(BugResult{Answer: answer}); !errors.As(err, new(*InvalidError)) {
			t.Errorf("%s: %v", answer, err)
		}
	}
}
