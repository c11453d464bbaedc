package suites

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
)

// timesVariable names a folder in which each suite writes the wall time of its specs. hack/slowest.sh prints the slowest.
const timesVariable = "HITLESS_TIMES"

var _ = ginkgo.ReportAfterSuite("times", func(r ginkgo.Report) {
	if dir := os.Getenv(timesVariable); dir != "" {
		file := filepath.Join(dir, fmt.Sprintf("specs-%s-%d.tsv", r.SuiteDescription, os.Getpid())) // CI runs parts of a suite at once
		if err := os.WriteFile(file, []byte(times(r)), 0o644); err != nil {
			ginkgo.Fail(err.Error())
		}
	}
})

// times returns a line for each spec that ran: seconds, and the suite with the text of the spec.
func times(r ginkgo.Report) string {
	var lines strings.Builder
	for _, s := range r.SpecReports {
		if s.LeafNodeType.Is(types.NodeTypeIt|types.NodeTypeBeforeSuite) && s.State != types.SpecStateSkipped {
			fmt.Fprintf(&lines, "%.1f\t%s: %s\n", s.RunTime.Seconds(), r.SuiteDescription, s.FullText())
		}
	}
	return lines.String()
}
