package suites

import (
	"slices"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
)

// Specs that call Skip count, by hand only those of smoke; specs that a filter excludes never do.
func TestSkippedSmokeSpecs(t *testing.T) {
	spec := func(text, label, message string, state types.SpecState) ginkgo.SpecReport {
		return ginkgo.SpecReport{LeafNodeText: text, LeafNodeLabels: []string{label}, State: state, Failure: types.Failure{Message: message}}
	}
	specs := types.SpecReports{
		spec("skips", smoke, "no namespaces here", types.SpecStateSkipped),
		spec("is filtered out", smoke, "", types.SpecStateSkipped),
		spec("passes", smoke, "", types.SpecStatePassed),
		spec("is not smoke", "nightly", "no namespaces here", types.SpecStateSkipped),
	}
	if got := skippedSpecs(specs, false); !slices.Equal(got, []string{"skips: no namespaces here"}) {
		t.Errorf("by hand: %q", got)
	}
	if got := skippedSpecs(specs, true); !slices.Equal(got, []string{"skips: no namespaces here", "is not smoke: no namespaces here"}) {
		t.Errorf("in CI: %q", got)
	}
}

// An empty suite is an error, unless the filter is that of a make target.
func TestSuitesWithoutSpecs(t *testing.T) {
	spec := func(state types.SpecState) ginkgo.SpecReport {
		return ginkgo.SpecReport{LeafNodeText: "is a spec", LeafNodeType: types.NodeTypeIt, State: state}
	}
	before := ginkgo.SpecReport{LeafNodeType: types.NodeTypeBeforeSuite, State: types.SpecStatePassed}
	for name, test := range map[string]struct {
		config types.SuiteConfig
		specs  types.SpecReports
		empty  bool
	}{
		"a spec passed":                 {types.SuiteConfig{}, types.SpecReports{spec(types.SpecStatePassed)}, false},
		"a spec failed":                 {types.SuiteConfig{SkipStrings: []string{"x"}}, types.SpecReports{spec(types.SpecStateFailed)}, false},
		"a skip of all specs":           {types.SuiteConfig{SkipStrings: []string{"."}}, types.SpecReports{before, spec(types.SpecStateSkipped)}, true},
		"a focus without a match":       {types.SuiteConfig{FocusStrings: []string{"resart"}}, types.SpecReports{spec(types.SpecStateSkipped)}, true},
		"an unknown label":              {types.SuiteConfig{LabelFilter: "smok"}, types.SpecReports{spec(types.SpecStateSkipped)}, true},
		"a suite without smoke":         {types.SuiteConfig{LabelFilter: "smoke"}, types.SpecReports{spec(types.SpecStateSkipped)}, false},
		"a suite of nightly specs only": {types.SuiteConfig{LabelFilter: "!nightly && !host"}, types.SpecReports{spec(types.SpecStateSkipped)}, false},
	} {
		if err := checkSpecsRan(ginkgo.Report{SuiteConfig: test.config, SpecReports: test.specs}); (err != nil) != test.empty {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Specs that a filter left out have no time.
func TestTimesOfSpecs(t *testing.T) {
	got := times(ginkgo.Report{SuiteDescription: "restart", SpecReports: types.SpecReports{
		{LeafNodeType: types.NodeTypeIt, LeafNodeText: "passes", State: types.SpecStatePassed, RunTime: 1500 * time.Millisecond},
		{LeafNodeType: types.NodeTypeIt, LeafNodeText: "is filtered out", State: types.SpecStateSkipped},
		{LeafNodeType: types.NodeTypeIt, LeafNodeText: "fails", State: types.SpecStateFailed, RunTime: time.Minute},
	}})
	if want := "1.5\trestart: passes\n60.0\trestart: fails\n"; got != want {
		t.Errorf("the times are %q, not %q", got, want)
	}
}
