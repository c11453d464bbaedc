package vm

import (
	"fmt"
	"strconv"
	"strings"
)

// Feature is a part of a kernel that a run needs.
type Feature struct {
	Name    string   // in words
	Modules []string // that have it, each of them
	// Since is the first release that has it, as MAJOR.MINOR; empty if modules decide.
	Since string
}

// Lacks has a line for each feature that the kernel lacks, with the modules that would have it.
func (k Kernel) Lacks(needed []Feature) (lines []string, err error) {
	paths := k.modules()
	builtin, err := k.builtin()
	if err != nil {
		return nil, fmt.Errorf("reading what kernel %s has built in: %w", k.Release, err)
	}
	for _, f := range needed {
		var missing []string
		for _, name := range f.Modules {
			if paths[name] == "" && !builtin[name] {
				missing = append(missing, name)
			}
		}
		switch {
		case len(missing) == 1:
			lines = append(lines, f.Name+": module "+missing[0])
		case len(missing) > 1:
			lines = append(lines, f.Name+": modules "+strings.Join(missing, ", "))
		case f.Since != "" && !k.since(f.Since):
			lines = append(lines, f.Name+": Linux "+f.Since+" or later")
		}
	}
	return lines, nil
}

// since reports whether the release is that version or a later one; true if either has no version.
func (k Kernel) since(version string) bool {
	major, minor, known := versionOf(k.Release)
	leastMajor, leastMinor, leastKnown := versionOf(version)
	return !known || !leastKnown || major > leastMajor || major == leastMajor && minor >= leastMinor
}

// versionOf reads the version that a release such as 6.1.0-56-cloud-amd64 begins with.
func versionOf(release string) (major, minor int, known bool) {
	first, rest, _ := strings.Cut(release, ".")
	second := rest
	if end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		second = rest[:end]
	}
	major, err := strconv.Atoi(first)
	minor, minorErr := strconv.Atoi(second)
	return major, minor, err == nil && minorErr == nil
}
