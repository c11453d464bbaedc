package testfiles

import (
	"regexp"
	"slices"
	"strings"
)

var fellBehind = regexp.MustCompile(`^lane (.+) fell behind: `)

// OnlyLate reports whether these are the reasons of a verdict that nothing but a busy machine made invalid: what did not run in time, and
// the known faults that lanes missed which were late.
func OnlyLate(reasons []string) bool {
	var behind []string // names of lanes
	for _, reason := range reasons {
		if lane := fellBehind.FindStringSubmatch(reason); lane != nil {
			behind = append(behind, lane[1])
		}
	}
	late := func(reason string) bool {
		missed := func(lane string) bool {
			return strings.Contains(reason, " on lane "+lane+" at ") && strings.Contains(reason, " was not found")
		}
		return fellBehind.MatchString(reason) || strings.Contains(reason, "did not run") || slices.ContainsFunc(behind, missed)
	}
	return len(reasons) > 0 && !slices.ContainsFunc(reasons, func(reason string) bool { return !late(reason) })
}
