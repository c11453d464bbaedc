//go:build lab

package selfcheck

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/record"
)

// truth is a fault as the faulty proxier tells of it: on which node, from when on in seconds of the run, and how long at
// least and at most, in ms.
type truth struct {
	node, kind, protocol string
	from, least, most    float64
}

func (t truth) String() string {
	return fmt.Sprintf("%s of %s on %s at +%.3f s for %.2f to %.2f ms", t.kind, t.protocol, t.node, t.from, t.least, t.most)
}

// truths reads what the proxiers that were started again say of their faults.
func truths(result *run.Result, history *record.History) (all []truth) {
	GinkgoHelper()
	again := secondStarts(history)
	for _, node := range slices.Sorted(maps.Keys(again)) {
		file, err := os.Open(filepath.Join(result.Dir, "logs", "proxy-"+node+".log"))
		Expect(err).NotTo(HaveOccurred())
		defer file.Close()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			Expect(lines.Text()).NotTo(HavePrefix("faulty:"), "a fault could not be done")
			if !strings.HasPrefix(lines.Text(), "fault ") {
				continue
			}
			t := truth{node: node}
			var since, least, most int64
			_, err := fmt.Sscanf(lines.Text(), "fault %s %s since=%d least=%d most=%d", &t.kind, &t.protocol, &since, &least, &most)
			Expect(err).NotTo(HaveOccurred(), lines.Text())
			t.from, t.least, t.most = again[node]+float64(since)/1e9, float64(least)/1e6, float64(most)/1e6
			all = append(all, t)
		}
	}
	return all
}

// secondStarts is when the proxier of each node was started again, in seconds of the run.
func secondStarts(history *record.History) map[string]float64 {
	GinkgoHelper()
	seen, again := map[string]bool{}, map[string]float64{}
	for e, err := range history.Events() {
		Expect(err).NotTo(HaveOccurred())
		if e.Body == (record.Proxy{State: "started"}) {
			if seen[e.Node] {
				again[e.Node] = e.At.Seconds()
			}
			seen[e.Node] = true
		}
	}
	return again
}

// slack is what the start of a proxier's program takes, in seconds: the truth is told from there on, the history from the
// moment when the program was asked for.
const slack = 0.5

// meets reports whether an outage may be this fault: same node, begun and ended together, up to the slack.
func (t truth) meets(o analysis.OutageReport) bool {
	return o.Node == t.node && o.From <= t.from+t.most/1000+slack && o.To >= t.from-slack
}

// podOn is the pod of the measured Service that answered over a node.
func podOn(history *record.History, node string) string {
	GinkgoHelper()
	for a, err := range history.Attempts() {
		Expect(err).NotTo(HaveOccurred())
		if a.Node == node && strings.HasPrefix(a.Backend, "web-") {
			return a.Backend
		}
	}
	Fail("no pod answered over " + node)
	return ""
}

func lane(r *analysis.Report, name string) analysis.LaneReport {
	GinkgoHelper()
	for _, l := range r.Lanes {
		if l.Name == name {
			return l
		}
	}
	Fail("no lane " + name)
	return analysis.LaneReport{}
}
