package reports

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
	"github.com/hitless/hitless/reports/page"
)

// What the proxy of an outage's node says is evidence; what others say is not, and a flood of lines does not hide events.
func TestLinesOfLogsAreEvidence(t *testing.T) {
	const died = 10 * time.Second
	s := recordtest.StaleLab(died, 5*time.Millisecond)
	says := func(at time.Duration, node, text string) {
		s.Event(at, record.KindLog, node, "proxy", text, "program", "proxy", "level", "error")
	}
	says(died-time.Second, "node-2", "the proxy of node-2: failed to sync")
	says(died-time.Second, "node-3", "the proxy of node-3: failed to sync")
	says(died-3*time.Second, "node-2", "the proxy of node-2: long before")
	for i := range 40 {
		says(died+time.Duration(i)*time.Millisecond, "node-2", fmt.Sprintf("the proxy of node-2: again %d", i))
	}
	s.Event(died+time.Second, record.KindNode, "node-2", "node-2", "node-2 was cordoned")
	h, r, _ := built(t, s)
	var written bytes.Buffer
	if err := page.Write(&written, r, h); err != nil {
		t.Fatal(err)
	}
	text := html.UnescapeString(written.String())
	rows := text[strings.Index(text, "Events from 2 s before"):]
	rows = rows[:strings.Index(rows, "</table>")]
	for want, is := range map[string]bool{
		"<td>the proxy of node-2: failed to sync</td>": true, "<td>the proxy of node-3: failed to sync</td>": false,
		"<td>the proxy of node-2: long before</td>": false, "<td>the proxy of node-2: again 8</td>": true,
		"<td>the proxy of node-2: again 9</td>": false, "<td>node-2 was cordoned</td>": true,
	} {
		if strings.Contains(rows, want) != is {
			t.Errorf("%v: %s", !is, want)
		}
	}
}

// What the client saw is told by the way in which attempts failed: how many, how they ended, and who said so.
func TestWhatTheClientSawIsEvidence(t *testing.T) {
	s := recordtest.StaleLab(10*time.Second, 5*time.Millisecond)
	n := 0
	for i := range s.Attempts {
		a := &s.Attempts[i]
		if a.Class == record.OK || a.Lane != 0 {
			continue
		}
		if n++; n == 1 {
			a.Source, a.Retrans, a.Total = netip.MustParseAddrPort("198.51.100.9:4242"), 1, 1200*time.Millisecond
			a.Detail, a.Offender = "EHOSTUNREACH", netip.MustParseAddr("10.0.0.12")
			continue
		}
		a.Detail, a.Total = "ECONNREFUSED", 2*time.Millisecond
	}
	h, r, _ := built(t, s)
	o := r.Lanes[0].Outages[0]
	var written bytes.Buffer
	if err := page.Write(&written, r, h); err != nil {
		t.Fatal(err)
	}
	text := html.UnescapeString(written.String())
	for _, must := range []string{
		fmt.Sprintf(`<td>refused</td><td>ECONNREFUSED</td><td></td><td class="n">%d</td><td class="n">0</td><td class="n">0</td><td>2.0 ms</td>`, o.Failed()-1),
		fmt.Sprintf(`<td>refused</td><td>EHOSTUNREACH</td><td>10.0.0.12</td><td class="n">1</td><td class="n">0</td><td class="n">1</td><td>1.20 s</td><td>198.51.100.9:4242 at +%.3f s</td>`, o.From),
	} {
		if !strings.Contains(text, must) {
			t.Errorf("the page lacks %s; its rows are %s", must, text[strings.Index(text, "What the client saw"):][:1500])
		}
	}
}

// Each failed attempt that the kernel was asked about is joined with the backend, its pod's life and the rule's age.
func TestWhatTheKernelChoseIsTold(t *testing.T) {
	s := recordtest.StaleLab(10*time.Second, 5*time.Millisecond)
	s.Choose(func(i int) (string, string, bool) {
		switch {
		case i%2 == 1:
			return "", "", false
		case i < 4:
			return "", "", true
		}
		return "node-2", "10.244.2.7:8080", true
	})
	h, r, _ := built(t, s)
	o := r.Lanes[0].Outages[0]
	age := units.Millis(time.Duration(o.From*1e9) - 2500*time.Millisecond)
	want := []analysis.ChosenReport{{Backend: "10.244.2.7:8080", Pod: "web-1", Attempts: (o.Failed()+1)/2 - 2, RuleAgeMs: &age}, {Attempts: 2}}
	if diff := gocmp.Diff(want, o.Chosen); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, e := range r.Events {
		if e.Kind == record.KindChoice {
			t.Fatalf("the report's events have one for each attempt: %+v", e)
		}
	}
	checkSchema(t, r)
	var written bytes.Buffer
	if err := page.Write(&written, r, h); err != nil {
		t.Fatal(err)
	}
	text := html.UnescapeString(written.String())
	for _, must := range []string{"<tr><td>10.244.2.7:8080</td><td>web-1, exited at +10.000 s</td><td>at least 7.50 s</td><td class=\"n\">" + strconv.Itoa(want[0].Attempts) + "</td></tr>",
		"<tr><td>none: no node had the connection</td><td></td><td></td><td class=\"n\">2</td></tr>"} {
		if !strings.Contains(text, must) {
			t.Errorf("the page lacks %s", must)
		}
	}
}

// Where the address changed hands within an outage, each of the two is told with the attempts that it was given.
func TestAnAddressThatChangesHandsWithinAnOutage(t *testing.T) {
	s := recordtest.StaleLab(10*time.Second, 5*time.Millisecond)
	s.Event(12*time.Second, record.KindPod, "node-2", "web-9", "created", "state", "created", "pod", "web-9", "node", "node-2", "ip", "10.244.2.7")
	s.Choose(func(int) (string, string, bool) { return "node-2", "10.244.2.7:8080", true })
	h, r, _ := built(t, s)
	o := r.Lanes[0].Outages[0]
	if len(o.Chosen) != 2 || o.Chosen[0].Pod != "web-9" || o.Chosen[1].Pod != "web-1" || o.Chosen[0].Attempts+o.Chosen[1].Attempts != o.Failed() {
		t.Errorf("%d failed, and met %+v", o.Failed(), o.Chosen)
	}
	var written bytes.Buffer
	if err := page.Write(&written, r, h); err != nil {
		t.Fatal(err)
	}
	for _, must := range []string{"<td>web-9</td>", "<td>web-1, exited at +10.000 s</td>"} {
		if !strings.Contains(html.UnescapeString(written.String()), must) {
			t.Errorf("the page lacks %s", must)
		}
	}
}

// A rule that outlives its backend is told as IPVS is, in the words of the proxy's mode.
func TestAKeptRuleIsNamed(t *testing.T) {
	for _, mode := range []string{"nftables", "iptables"} {
		s := recordtest.StaleRules(mode)
		h := s.Write(t)
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

// The page shows the table before, at and after the outage, and leaves the looks at other nodes out of the evidence.
func TestThePageShowsTheKernelsTable(t *testing.T) {
	s := recordtest.StaleLab(10*time.Second, 5*time.Millisecond)
	s.Look("node-3", 10*time.Second, 10100*time.Millisecond, "10.244.9.9:8080=1")
	h := s.Write(t)
	_, page := pageFrom(t, h)
	page = html.UnescapeString(page)
	_, outage, _ := strings.Cut(page, `<details class="outage"`)
	outage, _, _ = strings.Cut(outage, "</details>")
	for _, must := range []string{"Virtual server 203.0.113.10:80 in IPVS of node-2",
		"<tr><td>10.244.2.7:8080</td><td>web-1, exited at +10.000 s</td><td>weight 1</td><td>weight 1</td><td>weight 1</td><td>–</td></tr>",
		"<tr><td>10.244.3.7:8080</td><td>web-2</td><td>weight 1</td><td>weight 1</td><td>weight 1</td><td>weight 1</td></tr>"} {
		if !strings.Contains(outage, must) {
			t.Errorf("the outage lacks %s:\n%s", must, outage)
		}
	}
	if strings.Contains(outage, "10.244.9.9") {
		t.Error("the evidence has a look at another node")
	}
}

// Lost workers are stated, and the rest is judged: nothing of theirs is a success, and nothing a loss of the subject's.
func TestLostWorkersAreStatedGaps(t *testing.T) {
	s := recordtest.FleetLab(20)
	end := recordtest.Clean().EndAt()
	s.State(103, s.Kill(103, 50*time.Second), end)
	s.State(117, s.Kill(117, 60*time.Second), 64*time.Second)
	s.AddWorker(120, 20, 64*time.Second, end)
	s.Declared(120)["joined"] = "true"
	r := reportOf(t, s)
	checkSchema(t, r)
	if r.Verdict != analysis.Pass || len(r.Reasons) != 3 || !strings.HasPrefix(r.Reasons[1], "a gap in the record of worker fleet-103 from +49.") ||
		!strings.Contains(r.Reasons[2], "its pod is gone") {
		t.Errorf("%s: %q, want pass with two gaps", r.Verdict, r.Reasons)
	}
	for name, write := range map[string]func(io.Writer, *analysis.Report, record.Origin) error{"terminal": WriteTerminal, "summary": WriteMarkdown} {
		var b strings.Builder
		if err := write(&b, r, record.Origin{}); err != nil || strings.Count(b.String(), "a gap in the record of worker") != 2 {
			t.Errorf("the %s does not tell of the two gaps (%v):\n%s", name, err, b.String())
		}
	}
	for _, l := range r.Lanes {
		lost := l.Name == "fleet-103" || l.Name == "fleet-117"
		if (l.Name == "web") != (l.Fleet == nil) || l.Fleet != nil && (l.Fleet.ClockMs != 3 || (len(l.Fleet.Gaps) == 1) != lost) {
			t.Errorf("lane %s has %+v", l.Name, l.Fleet)
		}
	}
	s.Faults = append(s.Faults, recordtest.Fault{Lane: 130, From: 45 * time.Second, To: 46 * time.Second, Class: record.Refused})
	s.AddWorker(130, 20, recordtest.BaselineAt, end)
	if r := reportOf(t, s); r.Verdict != analysis.Fail || !strings.Contains(strings.Join(r.Reasons, "\n"), "a gap in the record of worker fleet-103") {
		t.Errorf("%s: %q, want fail with the gaps", r.Verdict, r.Reasons)
	}
}
