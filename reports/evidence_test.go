package reports

import (
	"bytes"
	"fmt"
	"html"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// What the proxy of an outage's node says is evidence; what others say is not, and a flood of lines does not hide events.
func TestLinesOfLogsAreEvidence(t *testing.T) {
	const died = 10 * time.Second
	s := staleLab(died, 5*time.Millisecond)
	says := func(at time.Duration, node, text string) {
		s.event(at, record.KindLog, node, "proxy", text, "program", "proxy", "level", "error")
	}
	says(died-time.Second, "node-2", "the proxy of node-2: failed to sync")
	says(died-time.Second, "node-3", "the proxy of node-3: failed to sync")
	says(died-3*time.Second, "node-2", "the proxy of node-2: long before")
	for i := range 40 {
		says(died+time.Duration(i)*time.Millisecond, "node-2", fmt.Sprintf("the proxy of node-2: again %d", i))
	}
	s.event(died+time.Second, record.KindNode, "node-2", "node-2", "node-2 was cordoned")
	h, r, _ := s.built(t)
	var page bytes.Buffer
	if err := WritePage(&page, r, h); err != nil {
		t.Fatal(err)
	}
	text := html.UnescapeString(page.String())
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
	s := staleLab(10*time.Second, 5*time.Millisecond)
	n := 0
	for i := range s.attempts {
		a := &s.attempts[i]
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
	h, r, _ := s.built(t)
	o := r.Lanes[0].Outages[0]
	var page bytes.Buffer
	if err := WritePage(&page, r, h); err != nil {
		t.Fatal(err)
	}
	text := html.UnescapeString(page.String())
	for _, must := range []string{
		fmt.Sprintf(`<td>refused</td><td>ECONNREFUSED</td><td></td><td class="n">%d</td><td class="n">0</td><td class="n">0</td><td>2.0 ms</td>`, o.Failed()-1),
		fmt.Sprintf(`<td>refused</td><td>EHOSTUNREACH</td><td>10.0.0.12</td><td class="n">1</td><td class="n">0</td><td class="n">1</td><td>1.20 s</td><td>198.51.100.9:4242 at +%.3f s</td>`, o.From),
	} {
		if !strings.Contains(text, must) {
			t.Errorf("the page lacks %s; its rows are %s", must, text[strings.Index(text, "What the client saw"):][:1500])
		}
	}
}
