package results

import (
	"context"
	"strings"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
)

// BesideUpstream is what hitless counted beside a spec of upstream, on the Service of that spec: a few figures of a report with megabytes.
type BesideUpstream struct {
	Proxy            string           `json:"proxy"` // of the cluster, such as kube-proxy v1.25.3/iptables
	Verdict          analysis.Verdict `json:"verdict"`
	Rate             float64          `json:"rate"` // attempts per second
	Attempts         int              `json:"attempts"`
	Dropped          int              `json:"dropped"`
	Delayed          int              `json:"delayed"`
	DroppedPerSecond []int            `json:"droppedPerSecond"` // of the run
	Causes           map[string]int   `json:"causes"`           // failed attempts by kind of cause
	ProgramSha256    string           `json:"programSha256,omitempty"`
	Kernel           string           `json:"kernel,omitempty"`
	ControlPlane     string           `json:"controlPlane,omitempty"`
	Made             *record.Made     `json:"made,omitempty"`
}

// besides are files with a BesideUpstream: a row, which only an idle machine can repeat.
var besides = format{"a count beside a spec of upstream", func(_ string, k keys) bool { return k.has("proxy", "droppedPerSecond") }, readBeside}

// ReadBeside reads the file of a BesideUpstream.
func ReadBeside(ctx context.Context, path string) (b BesideUpstream, err error) {
	err = decode(ctx, path, &b)
	return b, err
}

func readBeside(ctx context.Context, path string) ([]Row, error) {
	b, err := ReadBeside(ctx, path)
	if err != nil {
		return nil, err
	}
	return []Row{{Name: b.Proxy, Subject: b.Proxy, Verdict: string(b.Verdict), Origin: Origin{b.ProgramSha256, b.Kernel, b.ControlPlane, b.Made}}}, nil
}

// logs are lines of upstream's log. They have no rows: the count beside them does.
var logs = format{"a log of upstream", func(name string, _ keys) bool { return strings.HasSuffix(name, ".log") },
	func(context.Context, string) ([]Row, error) { return nil, nil }}
