package conformance

import (
	"fmt"
	"strings"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
)

// readied is a pod that became ready while its node's proxy restarted; without a name if none did.
type readied struct {
	pod, node string
	until     time.Duration // the end of the restart
}

// judgeReadied judges whether each pod that became ready while its node's proxy was away is used again: after the restart, it answers some of
// the connections over that node.
func (s Spec) judgeReadied(h *record.History) (outcome, error) {
	a, err := analysis.New(h)
	if err != nil {
		return outcome{}, err
	}
	all := readiedPods(a.Events)
	if len(all) == 0 {
		return outcome{State: Invalid, Reasons: []string{"no proxy restarted"}}, nil
	}
	for _, p := range all {
		switch answered, own := s.answersOver(a, p); {
		case p.pod == "":
			return outcome{State: Invalid, Reasons: []string{fmt.Sprintf("no pod of %s became ready while its proxy restarted", p.node)}}, nil
		case answered == 0:
			return outcome{State: Invalid, Reasons: []string{fmt.Sprintf("no connection over %s was answered after its proxy restarted", p.node)}}, nil
		case own == 0:
			return outcome{State: Failed, Reasons: []string{fmt.Sprintf("%s became ready while the proxy of %s restarted, and answered none of %d connections over that node afterwards", p.pod, p.node, answered)}}, nil
		}
	}
	return outcome{State: Passed}, nil
}

// readiedPods are the restarts of proxies, each with the pod that became ready meanwhile.
func readiedPods(events []record.Event) (all []readied) {
	ready := map[string]string{} // pods by node, since the begin of its step
	for _, e := range events {
		switch body := e.Body.(type) {
		case record.Step:
			if body.State == record.StepEnd && strings.HasPrefix(e.Object, "restart the proxy of ") {
				all = append(all, readied{ready[e.Node], e.Node, e.At})
			}
			delete(ready, e.Node)
		case record.Pod:
			if body.State == record.PodReady {
				ready[body.Node] = body.Pod
			}
		}
	}
	return all
}

// answersOver counts the connections of the spec's lanes over the pod's node after its step, and those that the pod answered.
func (s Spec) answersOver(a *analysis.Analysis, p readied) (all, own int) {
	for _, l := range a.Lanes {
		for i := range l.Records {
			r := &l.Records[i]
			if l.Control || !s.judges(l.Protocol) || r.Class != record.OK || r.Intended < p.until || a.Nodes[r.Node] != p.node {
				continue
			}
			all += int(r.N)
			if a.Backends[r.Backend].Name == p.pod {
				own += int(r.N)
			}
		}
	}
	return all, own
}
