package reports

import (
	"fmt"
	"html"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// staleRules is staleLab with the rules of a proxy in nftables or iptables mode in place of IPVS.
func staleRules(mode string) *lab {
	s := staleLab(10*time.Second, 5*time.Millisecond)
	s.run.Subject.Mode = mode
	for _, e := range s.events {
		if e.Kind() == record.KindKernelTable {
			e.Attrs["table"] = "nftables"
		}
	}
	return s
}

// A rule that outlives its backend is told as IPVS is, in the words of the proxy's mode.
func TestAKeptRuleIsNamed(t *testing.T) {
	for _, mode := range []string{"nftables", "iptables"} {
		s := staleRules(mode)
		h := s.write(t)
		o := onlyOutage(t, s)
		want := fmt.Sprintf("node-2 kept 10.244.2.7 in %s for 4.09–4.11 s after its process exited; %d new connections were refused", mode, o.Failed())
		if !strings.Contains(o.Cause.Text, want) || o.Cause.Event != "pod exited" {
			t.Errorf("event %q, want %q in: %s", o.Cause.Event, want, o.Cause.Text)
		}
		_, page := pageFrom(t, h)
		page = html.UnescapeString(page)
		for _, must := range []string{"Backends of 203.0.113.10:80 by the rules of " + mode + " on node-2",
			"<td>10.244.2.7:8080</td><td>web-1, exited at +10.000 s</td><td>in the rules</td><td>in the rules</td><td>in the rules</td><td>–</td></tr>"} {
			if !strings.Contains(page, must) {
				t.Errorf("the page lacks %s", must)
			}
		}
	}
}

// The twins: with what was watched 10 s off nothing is explained and no rule is blamed, and neither is one of a table that the
// node's proxy does not have.
func TestARuleThatWasNotKeptIsNotNamed(t *testing.T) {
	for _, shift := range []time.Duration{10 * time.Second, -10 * time.Second} {
		s := staleRules("nftables")
		for i := range s.events {
			switch e := &s.events[i]; e.Kind() {
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
		r := s.report(t)
		if o := r.Lanes[0].Outages[0]; strings.Contains(o.Cause.Text, "kept") || r.Unexplained.Share < 0.8 {
			t.Errorf("shifted by %v: %.0f %% unexplained, want at least 80 %%: %s", shift, 100*r.Unexplained.Share, o.Cause.Text)
		}
	}
	for mode, table := range map[string]string{"ipvs": "nftables", "nftables": "ipvs", "iptables": "ipvs", "exec": "nftables"} {
		s := staleRules(mode)
		for _, e := range s.events {
			if e.Kind() == record.KindKernelTable {
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
	s := staleRules("ipvs")
	s.event(1500*time.Millisecond, record.KindProxy, "node-2", "kube-proxy@v1.37.1/nftables", "the proxy on node-2 is ready", "state", "ready")
	s.look("node-2", 0, 2600*time.Millisecond, "") // of IPVS, where nothing is left
	if o := onlyOutage(t, s); !strings.Contains(o.Cause.Text, "node-2 kept 10.244.2.7 in nftables for 4.09–4.11 s") {
		t.Errorf("%s", o.Cause.Text)
	}
}

func TestAMissingRuleIsNamed(t *testing.T) {
	from, to := 10*time.Second, 12*time.Second
	s := staleLab(29*time.Second, 5*time.Millisecond)
	s.run.Subject.Mode = "nftables"
	s.events = s.events[:len(s.events)-2] // the lane's declaration, and the look that would find the dead backend out
	s.attempts, s.faults = nil, []fault{{anyLane: true, from: from, to: to, class: record.Rejected}}
	s.look("node-2", from-10*time.Millisecond, from, "absent")
	s.look("node-2", to-10*time.Millisecond, to+10*time.Millisecond, "10.244.3.7:8080=1")
	for i := range s.pods {
		s.pods[i].gone = 0
	}
	for _, e := range s.events {
		if e.Kind() == record.KindKernelTable {
			e.Attrs["table"] = "nftables"
		}
	}
	s.probe(simLane{id: 0, name: "web", target: webAddress, rate: 100, from: 3 * time.Second, to: 30 * time.Second})
	want := "node-2 had no rule to a backend for 203.0.113.10:80 in nftables for 1.99–2.01 s"
	if o := onlyOutage(t, s); !strings.Contains(o.Cause.Text, want) {
		t.Errorf("want %q in: %s", want, o.Cause.Text)
	}
}

// The instants of the table that the page shows do not go back, however late the only failure met the fault.
func TestTheKernelsTableIsShownInOrderOfTime(t *testing.T) {
	s := staleRules("nftables")
	s.attempts, s.faults = nil, []fault{{anyLane: true, node: "node-2", from: 11 * time.Second, to: 11*time.Second + 9*time.Millisecond, class: record.Refused}}
	s.events = slices.DeleteFunc(s.events, func(e record.Event) bool { return e.Kind() == record.KindLane })
	s.probe(simLane{id: 0, name: "web", target: webAddress, rate: 100, from: 3 * time.Second, to: 30 * time.Second})
	a, err := analyse(s.write(t))
	if err != nil || len(a.lanes[0].outages) != 1 {
		t.Fatal(err, len(a.lanes[0].outages))
	}
	o := a.lanes[0].outages[0]
	o.struck = o.to + 5*time.Millisecond
	var times []string
	for _, column := range a.kernelView(o).Columns {
		_, at, _ := strings.Cut(column, ", ")
		times = append(times, at)
	}
	if !slices.IsSorted(times) || len(times) != 4 {
		t.Errorf("%q", times)
	}
}
