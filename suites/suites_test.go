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
