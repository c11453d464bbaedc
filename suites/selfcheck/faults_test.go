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

// fault is a fault as the faulty proxier logged it: its begin in seconds of the run, and its shortest and longest duration in ms.
type fault struct {
	node, kind, protocol string
	from, least, most    float64
}

func (t fault) String() string {
	return fmt.Sprintf("%s of %s on %s at +%.3f s for %.2f to %.2f ms", t.kind, t.protocol, t.node, t.from, t.least, t.most)
}

// loggedFaults reads the faults from the logs of the restarted proxiers.
func loggedFaults(result *run.Result, history *record.History) (all []fault) {
	GinkgoHelper()
	again := secondStarts(history)
	for _, node := range slices.Sorted(maps.Keys(again)) {
		file, err := os.Open(filepath.Join(result.Dir, "logs", "proxy-"+node+".log"))
		Expect(err).NotTo(HaveOccurred())
		defer file.Close()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			Expect(lines.Text()).NotTo(HavePrefix("faulty:"), "a fault failed")
			if !strings.HasPrefix(lines.Text(), "fault ") {
				continue
			}
			t := fault{node: node}
			var since, least, most int64
			_, err := fmt.Sscanf(lines.Text(), "fault %s %s since=%d least=%d most=%d", &t.kind, &t.protocol, &since, &least, &most)
			Expect(err).NotTo(HaveOccurred(), lines.Text())
			t.from, t.least, t.most = again[node]+float64(since)/1e9, float64(least)/1e6, float64(most)/1e6
			all = append(all, t)
		}
	}
	return all
}

// secondStarts returns when the proxier of each node was restarted, in seconds of the run.
func secondStarts(history *record.History) map[string]float64 {
	GinkgoHelper()
	seen, again := map[string]bool{}, map[string]float64{}
	for e, err := range history.Events() {
		Expect(err).NotTo(HaveOccurred())
		if e.Body == (record.Proxy{State: record.ProxyStarted}) {
			if seen[e.Node] {
				again[e.Node] = e.At.Seconds()
			}
			seen[e.Node] = true
		}
	}
	return again
}

// slack is the start time of the program in seconds. The log's times count from its start, the history's from the request to start it.
const slack = 0.5

// meets reports whether an outage may be this fault: same node, begun and ended together, up to the slack.
func (t fault) meets(o analysis.OutageReport) bool {
	return o.Node == t.node && o.From <= t.from+t.most/1000+slack && o.To >= t.from-slack
}

// podOn returns the pod of the measured Service that answered over a node.
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
