package build

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/semver"
)

// Target is a program at a version: {"kube-proxy", "v1.26.0"}.
type Target struct {
	Name    string // name of the program, one of those Versions lists
	Version string // semantic version with its leading v
}

// String is the form that ParseTarget reads: NAME@VERSION.
func (t Target) String() string { return t.Name + "@" + t.Version }

// Range is what is known to be buildable of one program.
type Range struct {
	Name    string // name of the program
	Oldest  string // oldest minor release, as v1.11
	Newest  string // newest minor release, as v1.37
	Default string // version taken when none is named; etcd's is the one that the default kube-apiserver is tested with
}

// String is one line for people: kube-proxy v1.11 to v1.37 (default v1.37.1).
func (r Range) String() string {
	return fmt.Sprintf("%s %s to %s (default %s)", r.Name, r.Oldest, r.Newest, r.Default)
}

// Versions lists the programs that can be built and the range of each, in a fixed order. Within a range every version
// that the module proxy in use serves can be tried; not every proxy serves every patch release.
func Versions() []Range {
	d, err := embedded()
	if err != nil {
		return nil // the embedded file is part of the program; a test parses it
	}
	ranges := make([]Range, len(d.programs))
	for i, p := range d.programs {
		ranges[i] = p.Range
	}
	return ranges
}

// Default is the version of the named program taken when the user names none, false for an unknown program.
func Default(name string) (Target, bool) {
	for _, r := range Versions() {
		if r.Name == name {
			return Target{Name: name, Version: r.Default}, true
		}
	}
	return Target{}, false
}

// ParseTarget reads NAME@VERSION. The error of anything else lists the known names and the range of versions of each.
func ParseTarget(s string) (Target, error) {
	d, err := embedded()
	if err != nil {
		return Target{}, err
	}
	name, version, found := strings.Cut(s, "@")
	if !found {
		return Target{}, fmt.Errorf("%q is not NAME@VERSION; %s", s, known())
	}
	t := Target{Name: name, Version: version}
	if _, err := d.program(t); err != nil {
		return Target{}, err
	}
	return t, nil
}

// program finds what is to be built for a target, or says why there is nothing.
func (d *dataset) program(t Target) (program, error) {
	for _, p := range d.programs {
		if p.Name != t.Name {
			continue
		}
		if !fullVersion(t.Version) {
			return program{}, fmt.Errorf("%s: version %q is not of the form vMAJOR.MINOR.PATCH; %s", t.Name, t.Version, known())
		}
		minor := semver.MajorMinor(t.Version)
		if semver.Compare(minor, p.Oldest) < 0 || semver.Compare(minor, p.Newest) > 0 {
			return program{}, fmt.Errorf("%s: %s is outside what is known to build, %s to %s; %s",
				t.Name, t.Version, p.Oldest, p.Newest, known())
		}
		return p, nil
	}
	return program{}, fmt.Errorf("unknown program %q; %s", t.Name, known())
}

// fullVersion tells whether v has all three numbers and nothing a module version cannot have.
func fullVersion(v string) bool {
	return semver.Canonical(v) == v && v != ""
}

// known says, for error messages, what may be asked for.
func known() string {
	var names []string
	for _, r := range Versions() {
		names = append(names, r.String())
	}
	return "known are " + strings.Join(names, ", ")
}

// minorPatch splits v1.26.0-rc.1 into 26 and "0-rc.1".
func minorPatch(version string) (minor int, patch string, err error) {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) != 3 {
		return 0, "", fmt.Errorf("version %q is not of the form vMAJOR.MINOR.PATCH", version)
	}
	minor, err = strconv.Atoi(parts[1])
	if err != nil {
		return 0, "", fmt.Errorf("version %q is not of the form vMAJOR.MINOR.PATCH", version)
	}
	return minor, parts[2], nil
}
