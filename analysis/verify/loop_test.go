package verify

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// The measured lane of losing fails for 300 ms at +30 s, +32 s and so on.
func TestRequestsOfALoop(t *testing.T) {
	h := losing().Write(t)
	report, err := analysis.Build(h)
	if err != nil {
		t.Fatal(err)
	}
	request := func(at, took time.Duration, exit int) string {
		line, err := json.Marshal(record.LoopRequest{At: at, Took: took, Port: record.FirstLoopPort, Exit: exit})
		if err != nil {
			t.Fatal(err)
		}
		return string(line) + "\n"
	}
	answered := request(20*time.Second, 12*time.Millisecond, 0)
	for name, c := range map[string]struct {
		lines          string
		failed, others int
		agrees         bool
	}{
		"an answer":                           {answered, 0, 0, true},
		"a failure in an outage":              {answered + request(30100*time.Millisecond, 500*time.Millisecond, 28), 1, 0, true},
		"a request that an outage interrupts": {answered + request(29600*time.Millisecond, 500*time.Millisecond, 28), 1, 0, true},
		"a failure before the outages":        {answered + request(25*time.Second, 500*time.Millisecond, 28), 1, 1, false},
		"a refusal between two outages":       {answered + request(31*time.Second, 10*time.Millisecond, 7), 1, 1, false},
		"no request":                          {"", 0, 0, false},
	} {
		r := NewResult(h, report)
		if err := r.CompareLoop(report, strings.NewReader(c.lines)); err != nil {
			t.Fatal(name, err)
		}
		if r.Loop.Failed != c.failed || len(r.Findings) != c.others || r.Agrees() != c.agrees {
			t.Errorf("%s: %d failed, findings %v, agrees %v", name, r.Loop.Failed, r.Findings, r.Agrees())
		}
	}
	for _, lines := range []string{"{", `{"atNs":-1}`, `{"at":1}`, answered + "[]\n", strings.Repeat(" ", maxLoopLine+1)} {
		if err := NewResult(h, report).CompareLoop(report, strings.NewReader(lines)); err == nil {
			t.Errorf("%.20q is accepted", lines)
		}
	}
}

// A capture that verifies no measured lane proves nothing, also beside a loop. A loop alone has no lanes.
func TestALoopDoesNotReplacePackets(t *testing.T) {
	for name, c := range map[string]struct {
		captured, control, doubt bool
	}{"a loop alone": {false, true, false}, "a lane and a loop": {true, false, false}, "controls and a loop": {true, true, true}} {
		r := &Result{Loop: &Loop{Requests: 1}, Lanes: []*LaneResult{{Control: c.control}}, captured: c.captured}
		if doubt := r.Doubt(); (doubt != "") != c.doubt {
			t.Errorf("%s: doubt %q", name, doubt)
		}
	}
}

// Connections of the loop are no attempts, and no disagreement.
func TestThePacketsOfALoopAreNoAttempts(t *testing.T) {
	s := losing()
	w := captured(t, s)
	a := s.Attempts[100]
	for _, c := range []struct {
		port   uint16
		agrees bool
	}{{record.FirstLoopPort + 7, true}, {1024, false}} {
		other := a
		other.Source = netip.AddrPortFrom(a.Source.Addr(), c.port)
		w.connect(&other, recordtest.WebAddress, "node-1")
		if r := verified(t, s, w.capture(0)); r.Agrees() != c.agrees {
			t.Errorf("a connection from port %d: agrees %v, findings %v", c.port, r.Agrees(), r.Findings)
		}
	}
}
