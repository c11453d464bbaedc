package verify

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// Loop is what curl found in the run, which requested the Service once a second.
type Loop struct {
	Requests int `json:"requests"`
	Failed   int `json:"failed"` // exit code other than 0
}

// maxLoopLine bounds a line of a loop's file in bytes; a line has about 60.
const maxLoopLine = 4096

// CompareLoop compares the requests of a loop (record.LoopFile) with a report: each request that failed must lie in an outage of a measured
// lane. The error is a file that cannot be read.
func (r *Result) CompareLoop(report *analysis.Report, in io.Reader) error {
	r.Loop = &Loop{}
	lines := bufio.NewScanner(in)
	for lines.Buffer(nil, maxLoopLine); lines.Scan(); {
		q, err := readRequest(lines.Bytes())
		if err != nil {
			return fmt.Errorf("reading the requests of the loop: line %d: %w", r.Loop.Requests+1, err)
		}
		if r.Loop.Requests++; q.Exit == 0 {
			continue
		}
		r.Loop.Failed++
		if !inOutage(report, q) {
			r.add(Finding{Kind: OtherLoop, At: units.Seconds(q.At), Text: fmt.Sprintf("curl from port %d ended with exit code %d after %s, and no measured lane has an outage then",
				q.Port, q.Exit, q.Took.Round(time.Millisecond))})
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading the requests of the loop: %w", err)
	}
	return nil
}

func readRequest(line []byte) (q record.LoopRequest, err error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err = d.Decode(&q); err == nil && (q.At < 0 || q.Took < 0) {
		err = fmt.Errorf("a time is negative: %s", line)
	}
	return q, err
}

// inOutage reports whether a request lies in an outage, which may have begun and ended up to its bounds earlier and later. A node's
// outage is enough, since nothing tells over which node the request went.
func inOutage(report *analysis.Report, q record.LoopRequest) bool {
	from, to := units.Seconds(q.At), units.Seconds(q.At+q.Took)
	return slices.ContainsFunc(report.Lanes, func(l analysis.LaneReport) bool {
		return slices.ContainsFunc(l.Outages, func(o analysis.OutageReport) bool {
			slack := (o.UpperMs - o.LowerMs) / 1e3
			return o.From-slack <= to && from <= o.To+slack
		})
	})
}

func (l *Loop) writeText(b *strings.Builder) {
	fmt.Fprintf(b, "curl, once a second: %s, %s failed\n", units.Plural(l.Requests, "request"), units.Thousands(l.Failed))
}

// ofLoop reports whether a connection is the loop's and no attempt.
func ofLoop(client netip.AddrPort) bool {
	return client.Port() >= record.FirstLoopPort && client.Port() < record.FirstLoopPort+record.LoopPorts
}
