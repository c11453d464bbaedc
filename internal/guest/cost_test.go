//go:build linux

package guest

import (
	"slices"
	"testing"

	"github.com/hitless/hitless/lab/subject"
)

func TestCostsNeedTwoNumbersOfServices(t *testing.T) {
	if got, err := costNumbers(map[string]string{"few": "20", "many": "2000"}); err != nil || !slices.Equal(got, []int{20, 2000}) {
		t.Errorf("%v %v", got, err)
	}
	for name, set := range map[string]map[string]string{
		"none":      nil,
		"one":       {"few": "20"},
		"equal":     {"few": "20", "many": "20"},
		"swapped":   {"few": "2000", "many": "20"},
		"zero":      {"few": "0", "many": "20"},
		"too many":  {"few": "20", "many": "10001"},
		"words":     {"few": "some", "many": "2000"},
		"other key": {"few": "20", "many": "2000", "others": "1"},
	} {
		if err := CheckStandalone(costScenario, set, subject.Bundled); err == nil {
			t.Errorf("%s: %v is accepted", name, set)
		}
	}
	if !NeedsVirtualClock(costScenario) || NeedsVirtualClock(routingScenario) {
		t.Error("of the standalone programs only that of costs needs the virtual clock")
	}
}
