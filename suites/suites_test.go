package suites

import (
	"slices"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
)

// Only a smoke spec that skipped itself fails its suite: not one that a filter left out, and not another that skipped.
func TestASkippedSmokeSpecIsFound(t *testing.T) {
	spec := func(text, label, message string, state types.SpecState) ginkgo.SpecReport {
		return ginkgo.SpecReport{LeafNodeText: text, LeafNodeLabels: []string{label}, State: state, Failure: types.Failure{Message: message}}
	}
	got := smokeSkipped(types.SpecReports{
		spec("skips", smoke, "no namespaces here", types.SpecStateSkipped),
		spec("is left out", smoke, "", types.SpecStateSkipped),
		spec("passes", smoke, "", types.SpecStatePassed),
		spec("is not smoke", "nightly", "no namespaces here", types.SpecStateSkipped),
	})
	if !slices.Equal(got, []string{"skips: no namespaces here"}) {
		t.Errorf("found %q", got)
	}
}

// A filter that leaves nothing of a suite fails it, unless it is one that is meant to.
func TestASuiteOfWhichNothingRanIsFound(t *testing.T) {
	spec := func(state types.SpecState) ginkgo.SpecReport {
		return ginkgo.SpecReport{LeafNodeText: "is a spec", LeafNodeType: types.NodeTypeIt, State: state}
	}
	before := ginkgo.SpecReport{LeafNodeType: types.NodeTypeBeforeSuite, State: types.SpecStatePassed}
	for name, test := range map[string]struct {
		config types.SuiteConfig
		specs  types.SpecReports
		found  bool
	}{
		"all is well":                   {types.SuiteConfig{}, types.SpecReports{spec(types.SpecStatePassed)}, false},
		"a spec failed":                 {types.SuiteConfig{SkipStrings: []string{"x"}}, types.SpecReports{spec(types.SpecStateFailed)}, false},
		"a skip that ate the suite":     {types.SuiteConfig{SkipStrings: []string{"."}}, types.SpecReports{before, spec(types.SpecStateSkipped)}, true},
		"a focus that meets nothing":    {types.SuiteConfig{FocusStrings: []string{"resart"}}, types.SpecReports{spec(types.SpecStateSkipped)}, true},
		"a label that nobody has":       {types.SuiteConfig{LabelFilter: "smok"}, types.SpecReports{spec(types.SpecStateSkipped)}, true},
		"a suite without smoke":         {types.SuiteConfig{LabelFilter: "smoke"}, types.SpecReports{spec(types.SpecStateSkipped)}, false},
		"a suite of nightly specs only": {types.SuiteConfig{LabelFilter: "!nightly"}, types.SpecReports{spec(types.SpecStateSkipped)}, false},
	} {
		if why := ranNothing(ginkgo.Report{SuiteConfig: test.config, SpecReports: test.specs}); (why != "") != test.found {
			t.Errorf("%s: %q", name, why)
		}
	}
}
