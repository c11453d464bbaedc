package analysis

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

func onlyOutage(t testing.TB, s *recordtest.Lab) OutageReport {
	t.Helper()
	r := reportOf(t, s)
	if len(r.Lanes[0].Outages) != 1 {
		t.Fatalf("%d outages, want one: %+v", len(r.Lanes[0].Outages), r.Lanes[0].Outages)
	}
	return r.Lanes[0].Outages[0]
}

// The rule's state is told: which dead backend it kept, for how long, and what that cost.
func TestAKeptBackendIsNamed(t *testing.T) {
	o := onlyOutage(t, recordtest.StaleLab(10*time.Second, 5*time.Millisecond))
	want := fmt.Sprintf("node-2 kept 10.244.2.7 in IPVS for 4.09–4.11 s after its process exited; %d new connections were refused", o.Failed())
	if !strings.Contains(o.Cause.Text, want) || o.Cause.Event != "pod exited" {
		t.Errorf("event %q, want %q in: %s", o.Cause.Event, want, o.Cause.Text)
	}
}

// The twins: nothing is said of a backend whose process lives, that had weight 0, that was out before anything failed, that
// stood in the table of another node, or whose address another pod had got.
func TestABackendThatWasNotKeptIsNotNamed(t *testing.T) {
	died := 10 * time.Second
	for name, change := range map[string]func(e *recordtest.Event){
		"it lives": func(e *recordtest.Event) {
			if e.Attrs["state"] == "exited" {
				e.Attrs["state"] = "unready"
			}
		},
		"weight 0": func(e *recordtest.Event) {
			e.Attrs["backends"] = strings.Replace(e.Attrs["backends"], "2.7:8080=1", "2.7:8080=0", 1)
		},
		"out before": func(e *recordtest.Event) {
			if e.Attrs["fromNs"] != "0" && e.Kind == record.KindKernelTable {
				e.At, e.Attrs["fromNs"] = died-time.Second, strconv.FormatInt(int64(died-2*time.Second), 10)
			}
		},
		"another node": func(e *recordtest.Event) {
			if e.Kind == record.KindKernelTable {
				e.Node = "node-3"
			}
		},
		"another pod": func(e *recordtest.Event) {
			if e.Attrs["state"] == "exited" {
				e.At = 2100 * time.Millisecond
			} else if e.Attrs["state"] == "ready" && e.Attrs["pod"] == "web-1" && e.Kind == record.KindPod {
				e.At = 2200 * time.Millisecond
			}
		},
	} {
		s := recordtest.StaleLab(died, 5*time.Millisecond)
		for i := range s.Events {
			if s.Events[i].Attrs != nil {
				change(&s.Events[i])
			}
		}
		if o := onlyOutage(t, s); strings.Contains(o.Cause.Text, "kept") {
			t.Errorf("%s: %s", name, o.Cause.Text)
		}
	}
}

// However far apart the looks are, the bounds hold how long the backend was kept.
func TestTheBoundsOfAKeptBackendHoldTheTruth(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		died := time.Duration(rapid.IntRange(9_000, 14_000).Draw(rt, "died")) * time.Millisecond
		blur := time.Duration(rapid.IntRange(0, 6_000).Draw(rt, "blur")) * time.Millisecond
		a, err := New(recordtest.StaleLab(died, blur).Write(t))
		if err != nil || len(a.damage) > 0 || len(a.Lanes[0].Outages) != 1 {
			rt.Fatalf("%v, %v, %d outages", err, a.damage, len(a.Lanes[0].Outages))
		}
		k, ok := a.keptAfterExit(a.Lanes[0].Outages[0])
		if !ok && blur >= recordtest.StaleFor {
			return // nobody looked while it was kept, and so nobody claims it
		}
		if !ok || k.exited != died || k.lower > recordtest.StaleFor || k.upper < recordtest.StaleFor || k.address.String() != "10.244.2.7:8080" {
			rt.Fatalf("%+v, %v; the truth is %v after %v", k, ok, recordtest.StaleFor, died)
		}
	})
}

// Where looks are far apart, what the last one found is no longer known: a soak looks at its tables when its lanes begin, and
// again when attempts fail, days later. Nor is an IPVS table to blame while another proxy serves.
func TestNothingIsClaimedOfWhatNobodySaw(t *testing.T) {
	died, failed := 10*time.Second, 25*time.Second
	for name, c := range map[string]struct {
		before string // what the lane's first look found
		mode   string
		want   string
	}{
		"a backend that went long ago": {"10.244.2.7:8080=1,10.244.3.7:8080=1", "bundled", ""},
		"no virtual server long ago":   {"absent", "bundled", ""},
		"no real server long ago":      {"", "bundled", ""},
		"looked at, and kept":          {"looked", "bundled", "kept 10.244.2.7 in IPVS for"},
		"another proxy's":              {"looked", "kube-proxy@v1.37.1/nftables", ""},
	} {
		s := recordtest.StaleLab(died, 5*time.Millisecond)
		s.Attempts, s.Faults = nil, []recordtest.Fault{{AnyLane: true, From: failed, To: failed + 500*time.Millisecond, Class: record.Refused}}
		s.Events = slices.DeleteFunc(s.Events, func(e recordtest.Event) bool { return e.Kind == record.KindKernelTable || e.Kind == record.KindLane })
		first := 2500 * time.Millisecond
		if c.before == "looked" {
			s.Look("node-2", 0, first, "10.244.2.7:8080=1,10.244.3.7:8080=1")
			first = failed - time.Second
		} else {
			s.Look("node-2", 0, first, c.before)
		}
		s.Look("node-2", first, failed+100*time.Millisecond, "10.244.3.7:8080=1")
		s.Event(1500*time.Millisecond, record.KindProxy, "node-2", c.mode, "the proxy on node-2 is ready", "state", "ready")
		s.Probe(recordtest.Lane{ID: 0, Name: "web", Target: recordtest.WebAddress, Rate: 100, From: 3 * time.Second, To: 30 * time.Second})
		if got := onlyOutage(t, s).Cause.Text; (c.want == "" && strings.Contains(got, "IPVS")) || !strings.Contains(got, c.want) {
			t.Errorf("%s: want %q in: %s", name, c.want, got)
		}
	}
}

func TestAnEmptyTableIsNamed(t *testing.T) {
	from, to := 10*time.Second, 12*time.Second
	for backends, want := range map[string]string{
		"":                  "node-2 had no backend accepting new connections to 203.0.113.10:80 in IPVS for 1.99–2.01 s",
		"10.244.3.7:8080=0": "node-2 had no backend accepting new connections to 203.0.113.10:80 in IPVS for 1.99–2.01 s",
		"absent":            "node-2 had no virtual server for 203.0.113.10:80 in IPVS for 1.99–2.01 s",
		"10.244.3.7:8080=1": "",
	} {
		s := recordtest.StaleLab(29*time.Second, 5*time.Millisecond)
		s.Events = s.Events[:len(s.Events)-2] // the lane's declaration, and the look that would find the dead backend out
		s.Attempts, s.Faults = nil, []recordtest.Fault{{AnyLane: true, From: from, To: to, Class: record.Rejected}}
		s.Look("node-2", from-10*time.Millisecond, from, backends)
		s.Look("node-2", to-10*time.Millisecond, to+10*time.Millisecond, "10.244.3.7:8080=1")
		for i := range s.Pods {
			s.Pods[i].Gone = 0
		}
		s.Probe(recordtest.Lane{ID: 0, Name: "web", Target: recordtest.WebAddress, Rate: 100, From: 3 * time.Second, To: 30 * time.Second})
		o := onlyOutage(t, s)
		if got := o.Cause.Text; (want == "" && strings.Contains(got, "IPVS")) || !strings.Contains(got, want) {
			t.Errorf("%q: want %q in: %s", backends, want, got)
		}
	}
}

func TestDamagedLooksAreTold(t *testing.T) {
	for key, value := range map[string]string{"address": "x", "fromNs": "soon", "backends": "10.244.2.7:8080"} {
		s := recordtest.StaleLab(10*time.Second, time.Millisecond)
		for i := range s.Events {
			if s.Events[i].Kind == record.KindKernelTable {
				s.Events[i].Attrs[key] = value
			}
		}
		if r := reportOf(t, s); r.Verdict != Invalid {
			t.Errorf("%s=%s: verdict %s", key, value, r.Verdict)
		}
	}
}

// A table that is not read any more explains no later outage. What it explains before goes no further than it was read.
func TestATableThatIsNotReadExplainsNothing(t *testing.T) {
	const kept, until = "kept 10.244.2.7 in IPVS ", "until its table was not read any more"
	for name, c := range map[string]struct {
		ends  time.Duration // 0 for a table that is read to the end
		fails time.Duration
		want  string // empty for nothing about the table
	}{
		"read to the end":       {0, 25 * time.Second, kept + "until the end of the record"},
		"read until before":     {15 * time.Second, 25 * time.Second, ""},
		"read until soon after": {26 * time.Second, 25 * time.Second, kept + until},
		"read until after":      {29 * time.Second, 25 * time.Second, kept + until},
	} {
		s := recordtest.StaleLab(10*time.Second, 5*time.Millisecond)
		s.Attempts, s.Faults = nil, []recordtest.Fault{{AnyLane: true, From: c.fails, To: c.fails + 500*time.Millisecond, Class: record.Refused}}
		s.Events = slices.DeleteFunc(s.Events, func(e recordtest.Event) bool { return e.Kind == record.KindKernelTable || e.Kind == record.KindLane })
		s.Look("node-2", 0, 2500*time.Millisecond, "10.244.2.7:8080=1,10.244.3.7:8080=1")
		if c.ends > 0 {
			s.Look("node-2", c.ends, c.ends, string(record.TableUnread))
		}
		s.Event(1500*time.Millisecond, record.KindProxy, "node-2", "bundled", "the proxy on node-2 is ready", "state", "ready")
		s.Probe(recordtest.Lane{ID: 0, Name: "web", Target: recordtest.WebAddress, Rate: 100, From: 3 * time.Second, To: 30 * time.Second})
		if got := onlyOutage(t, s).Cause.Text; c.want == "" && strings.Contains(got, "IPVS") || !strings.Contains(got, c.want) {
			t.Errorf("%s: want %q in: %s", name, c.want, got)
		}
	}
}
