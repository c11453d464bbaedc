package reports

import (
	"bytes"
	"fmt"
	"html"
	"strings"
	"testing"
	"time"
)

// What the proxy of an outage's node says is evidence; what others say is not, and a flood of lines does not hide events.
func TestLinesOfLogsAreEvidence(t *testing.T) {
	const died = 10 * time.Second
	s := staleLab(died, 5*time.Millisecond)
	says := func(at time.Duration, node, text string) {
		s.event(at, EventLog, node, "proxy", text, "program", "proxy", "level", "error")
	}
	says(died-time.Second, "node-2", "the proxy of node-2: failed to sync")
	says(died-time.Second, "node-3", "the proxy of node-3: failed to sync")
	says(died-3*time.Second, "node-2", "the proxy of node-2: long before")
	for i := range 40 {
		says(died+time.Duration(i)*time.Millisecond, "node-2", fmt.Sprintf("the proxy of node-2: again %d", i))
	}
	s.event(died+time.Second, EventNode, "node-2", "node-2", "node-2 was cordoned")
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
