package suites

import (
	"strings"
	"testing"

	"github.com/hitless/hitless/reports"
)

func TestExplained(t *testing.T) {
	r := &reports.Report{Totals: reports.Totals{Dropped: 100}, Lanes: []reports.LaneReport{{Name: "tcp-new", Outages: []reports.OutageReport{
		{From: 3, Node: "node-1", Cause: reports.CauseReport{Event: "pod exited"}, Classes: map[string]int{"refused": 94}},
		{From: 7, Node: "node-2", Classes: map[string]int{"reset": 6}}}}}}
	for share, want := range map[float64]bool{0: true, 0.05: true, 0.06: false, 1: false} {
		r.Unexplained.Share = share
		err := Explained(r)
		if (err == nil) != want {
			t.Errorf("%v unexplained: %v", share, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "+7.000 s") || strings.Contains(err.Error(), "+3.000 s")) {
			t.Errorf("the outages are not those that nothing explains: %v", err)
		}
	}
}
