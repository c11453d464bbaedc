package build

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/semver"
)

// Target is a program at a version: {"kube-proxy", "v1.26.0"}.
type Target struct {
	Name    string // a program of Versions
	Version string // semantic version with its leading v
}

// String is the form that ParseTarget reads: NAME@VERSION.
func (t Target) String() string { return t.Name + "@" + t.Version }

// ControlPlane are the programs of the lab's real control plane, in the version that hitless is tested with.
var ControlPlane = []Target{{"kube-apiserver", "v1.37.1"}, {"kube-controller-manager", "v1.37.1"}, {"kube-scheduler", "v1.37.1"}, {"etcd", "v3.7.0"}}

// Range is the range of supported versions of a program.
type Range struct {
	Name    string // name of the program
	Oldest  string // oldest minor release, as v1.11
	Newest  string // newest minor release, as v1.37
	Default string // the version when none is given; that of etcd is the one that the default kube-apiserver is tested with
}

// String returns a line such as kube-proxy v1.11 to v1.37 (default v1.37.1).
func (r Range) String() string {
	return fmt.Sprintf("%s %s to %s (default %s)", r.Name, r.Oldest, r.Newest, r.Default)
}

// Versions returns the programs of control planes and the subjects, and their ranges, in a fixed order. Not every module proxy serves
// every patch release of a range.
func Versions() []Range { return ranges(inLab) }

// Tools returns what runs in pods or tests a lab, as Versions.
func Tools() []Range { return ranges(tool, testsTool) }

func ranges(kinds ...programKind) (all []Range) {
	d, err := embedded()
	if err != nil {
		return nil // a test parses the embedded file
	}
	for _, p := range d.programs {
		if slices.Contains(kinds, p.Kind) {
			all = append(all, p.Range)
		}
	}
	return all
}

// Default returns the default version of a program; false for an unknown program.
func Default(name string) (Target, bool) {
	for _, r := range slices.Concat(Versions(), Tools()) {
		if r.Name == name {
			return Target{Name: name, Version: r.Default}, true
		}
	}
	return Target{}, false
}

// ParseTarget reads NAME@VERSION. Its errors list the supported programs and versions.
func ParseTarget(s string) (Target, error) {
	d, err := embedded()
	if err != nil {
		return Target{}, err
	}
	name, version, found := strings.Cut(s, "@")
	if !found {
		return Target{}, fmt.Errorf("%q is not NAME@VERSION; %s", s, supported())
	}
	t := Target{Name: name, Version: version}
	if _, err := d.program(t); err != nil {
		return Target{}, err
	}
	return t, nil
}

// program returns the program of a target, or the reason why the target is not supported.
func (d *dataset) program(t Target) (program, error) {
	for _, p := range d.programs {
		if p.Name != t.Name {
			continue
		}
		if !fullVersion(t.Version) {
			return program{}, fmt.Errorf("%s: version %q is not of the form vMAJOR.MINOR.PATCH; %s", t.Name, t.Version, supported())
		}
		minor := semver.MajorMinor(t.Version)
		if semver.Compare(minor, p.Oldest) < 0 || semver.Compare(minor, p.Newest) > 0 {
			return program{}, fmt.Errorf("%s: %s is outside the supported range %s to %s; %s",
				t.Name, t.Version, p.Oldest, p.Newest, supported())
		}
		return p, nil
	}
	return program{}, fmt.Errorf("unknown program %q; %s", t.Name, supported())
}

// fullVersion reports whether v is a module version with three numbers.
func fullVersion(v string) bool {
	return semver.Canonical(v) == v && v != ""
}

// supported lists the supported programs for error messages.
func supported() string {
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
