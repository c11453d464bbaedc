package analysis

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// The twins: with what was watched 10 s off nothing is explained and no rule is blamed, and neither is one of a table that the
// node's proxy does not have.
func TestARuleThatWasNotKeptIsNotNamed(t *testing.T) {
	for _, shift := range []time.Duration{10 * time.Second, -10 * time.Second} {
		s := recordtest.StaleRules("nftables")
		for i := range s.Events {
			switch e := &s.Events[i]; e.Kind {
			case record.KindKernelTable:
				from, err := strconv.ParseInt(e.Attrs["fromNs"], 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				e.Attrs["fromNs"] = strconv.FormatInt(max(0, from+int64(shift)), 10)
				e.At = max(0, e.At+shift)
			case record.KindPod, record.KindEndpoint:
				e.At = max(0, e.At+shift)
			}
		}
		r := reportOf(t, s)
		if o := r.Lanes[0].Outages[0]; strings.Contains(o.Cause.Text, "kept") || r.Unexplained.Share < 0.8 {
			t.Errorf("shifted by %v: %.0f %% unexplained, want at least 80 %%: %s", shift, 100*r.Unexplained.Share, o.Cause.Text)
		}
	}
	for mode, table := range map[string]string{"ipvs": "nftables", "nftables": "ipvs", "iptables": "ipvs", "exec": "nftables"} {
		s := recordtest.StaleRules(mode)
		for _, e := range s.Events {
			if e.Kind == record.KindKernelTable {
				e.Attrs["table"] = table
			}
		}
		if o := onlyOutage(t, s); strings.Contains(o.Cause.Text, "kept") {
			t.Errorf("mode %s, table %s: %s", mode, table, o.Cause.Text)
		}
	}
}

// A node that was upgraded from one mode to another has both tables, and the one that its proxy has is told of.
func TestTheTableIsThatOfTheProxyAtThatTime(t *testing.T) {
	s := recordtest.StaleRules("ipvs")
	s.Event(1500*time.Millisecond, record.KindProxy, "node-2", "kube-proxy@v1.37.1/nftables", "the proxy on node-2 is ready", "state", "ready")
	s.Look("node-2", 0, 2600*time.Millisecond, "") // of IPVS, where nothing is left
	if o := onlyOutage(t, s); !strings.Contains(o.Cause.Text, "node-2 kept 10.244.2.7 in nftables for 4.09–4.11 s") {
		t.Errorf("%s", o.Cause.Text)
	}
}

func TestAMissingRuleIsNamed(t *testing.T) {
	from, to := 10*time.Second, 12*time.Second
	s := recordtest.StaleLab(29*time.Second, 5*time.Millisecond)
	s.Run.Subject.Mode = "nftables"
	s.Events = s.Events[:len(s.Events)-2] // the lane's declaration, and the look that would find the dead backend out
	s.Attempts, s.Faults = nil, []recordtest.Fault{{AnyLane: true, From: from, To: to, Class: record.Rejected}}
	s.Look("node-2", from-10*time.Millisecond, from, "absent")
	s.Look("node-2", to-10*time.Millisecond, to+10*time.Millisecond, "10.244.3.7:8080=1")
	for i := range s.Pods {
		s.Pods[i].Gone = 0
	}
	for _, e := range s.Events {
		if e.Kind == record.KindKernelTable {
			e.Attrs["table"] = "nftables"
		}
	}
	s.Probe(recordtest.Lane{ID: 0, Name: "web", Target: recordtest.WebAddress, Rate: 100, From: 3 * time.Second, To: 30 * time.Second})
	want := "node-2 had no rule to a backend for 203.0.113.10:80 in nftables for 1.99–2.01 s"
	if o := onlyOutage(t, s); !strings.Contains(o.Cause.Text, want) {
		t.Errorf("want %q in: %s", want, o.Cause.Text)
	}
}

// The instants of the table that the page shows do not go back, however late the only failure met the fault.
func TestTheKernelsTableIsShownInOrderOfTime(t *testing.T) {
	s := recordtest.StaleRules("nftables")
	s.Attempts, s.Faults = nil, []recordtest.Fault{{AnyLane: true, Node: "node-2", From: 11 * time.Second, To: 11*time.Second + 9*time.Millisecond, Class: record.Refused}}
	s.Events = slices.DeleteFunc(s.Events, func(e recordtest.Event) bool { return e.Kind == record.KindLane })
	s.Probe(recordtest.Lane{ID: 0, Name: "web", Target: recordtest.WebAddress, Rate: 100, From: 3 * time.Second, To: 30 * time.Second})
	a, err := New(s.Write(t))
	if err != nil || len(a.Lanes[0].Outages) != 1 {
		t.Fatal(err, len(a.Lanes[0].Outages))
	}
	o := a.Lanes[0].Outages[0]
	o.struck = o.to + 5*time.Millisecond
	var times []string
	for _, column := range a.KernelView(o).Columns {
		_, at, _ := strings.Cut(column, ", ")
		times = append(times, at)
	}
	if !slices.IsSorted(times) || len(times) != 4 {
		t.Errorf("%q", times)
	}
}
