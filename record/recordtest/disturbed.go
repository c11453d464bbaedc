package recordtest

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hitless/hitless/record"
)

// The times of a disturbed run.
const (
	OffAt        = 40 * time.Second // node-2 loses power
	ExcusedFor   = 20 * time.Second // what the loss of power excuses over node-2
	disturbedEnd = 100 * time.Second
)

// Silence is the classes that the loss of power excuses.
var Silence = []record.Class{record.Delayed, record.Unreachable, record.ConnectTimeout, record.Reset, record.Closed, record.ReplyTimeout, record.Stalled}

// Disturbed is a run of the scenario drain over three nodes with a pod each, in which node-2 loses power, and which proves its detector.
// The load balancer removes the node at leftAt. It has neither losses nor attempts: see Measure.
func Disturbed(leftAt time.Duration) *Lab {
	s := NewLab(11)
	s.Run.Scenario = "drain"
	s.Services[WebAddress] = &Service{Name: "default/web", Seed: 7}
	s.Services[CanaryAddress] = &Service{Name: "hitless/canary", Seed: 7}
	for i, node := range NodeNames {
		s.Pod(Pod{Name: "web-" + node, Node: node, Address: fmt.Sprintf("10.244.%d.9", i+1), Service: "default/web", Ready: 2 * time.Second})
	}
	s.Pod(Pod{Name: "canary-1", Node: "node-1", Address: "10.244.1.2", Service: "hitless/canary", Ready: 2 * time.Second})
	s.Balance(CanaryAddress, 2100*time.Millisecond, NodeNames...)
	s.Balance(WebAddress, 3*time.Second, NodeNames...)
	s.Phase("baseline", BaselineAt)
	s.Phase("proof", ProofAt)
	s.Phase("scenario", ScenarioAt)
	s.Phase("settle", 80*time.Second)
	s.Phase("end", disturbedEnd)
	s.inject("proof-200", Fault{Lane: 1, From: ProofAt + time.Second, To: ProofAt + 1200*time.Millisecond, Class: record.Delayed}, "canary", true)
	s.Event(OffAt, record.KindStep, "node-2", "take the power from node-2", "take the power from node-2", "state", "begin")
	s.Event(OffAt, record.KindNode, "node-2", "node-2", "node-2 lost power", "state", "off")
	s.Balance(WebAddress, leftAt, "node-1", "node-3")
	s.Event(leftAt+time.Second, record.KindStep, "node-2", "take the power from node-2", "done", "state", "end")
	return s
}

// Excuse adds an excuse. Without classes it is for Silence.
func (s *Lab) Excuse(path, node string, from, until time.Duration, share float64, classes ...record.Class) {
	if len(classes) == 0 {
		classes = Silence
	}
	var words []string
	for _, c := range classes {
		words = append(words, c.String())
	}
	s.Event(from, record.KindExcuse, node, "web", "the power was cut", "path", path, "service", "default/web", "share", strconv.FormatFloat(share, 'g', -1, 64),
		"fromNs", strconv.FormatInt(int64(from), 10), "untilNs", strconv.FormatInt(int64(until), 10), "classes", strings.Join(words, ","))
}

// Lose fails what goes over a node for a time.
func (s *Lab) Lose(node string, from, to time.Duration, class record.Class) {
	s.Faults = append(s.Faults, Fault{Node: node, Lane: 0, From: from, To: to, Class: class})
}

// Measure makes the attempts of the lane web, and those of the canary.
func (s *Lab) Measure() {
	s.Probe(Lane{ID: 0, Name: "web", Target: WebAddress, Rate: 100, From: BaselineAt + 3*time.Millisecond, To: disturbedEnd})
	s.Probe(Lane{ID: 1, Name: "canary", Target: CanaryAddress, Rate: 100, From: BaselineAt + 5*time.Millisecond, To: ScenarioAt, Control: true})
}
