package results

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/bench"
	"github.com/hitless/hitless/internal/input"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports/compare"
	"github.com/hitless/hitless/suites/conformance"
	"github.com/hitless/hitless/suites/mutants"
)

// decode reads one value of JSON without unknown fields.
func decode(ctx context.Context, path string, to any) error {
	data, err := input.Read(ctx, path, input.ReportBytes)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(to); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return fmt.Errorf("reading %s: more follows after its end", path)
	}
	return nil
}

// conformances are the reports of `hitless conformance`: a row for each spec.
var conformances = format{"a conformance report", func(name string, _ keys) bool { return name == conformance.File }, readConformance}

func readConformance(ctx context.Context, path string) (rows []Row, err error) {
	r, err := conformance.Read(ctx, filepath.Dir(path), nil)
	if err != nil {
		return nil, err
	}
	call, err := record.ParseCommand(r.Command)
	if err != nil {
		return nil, err
	}
	for _, s := range r.Specs {
		row := Row{Name: s.Name, Subject: r.Implementation.Subject, Verdict: string(s.State), HistorySha256: s.HistorySha256,
			Origin: Origin{Program: r.Program, Kernel: r.Site.Kernel, ControlPlane: r.Site.ControlPlane}}
		if s.Failures != nil {
			row.Kinds, row.KindsTold = kindsOf(*s.Failures), true
		}
		if i := slices.IndexFunc(r.Made, func(m conformance.RunMade) bool { return m.Run == s.Run }); i >= 0 {
			row.Made = &r.Made[i].Made
		}
		if s.Run == "" {
			continue // it was skipped: nothing was measured
		}
		if call.Is("conformance") && inLab(call) {
			row.Again = &Again{append(slices.Clone(call.Words[1:]), "--focus", conformance.FocusOf(s.Name)), specOf(s.Name)}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// specOf reads one spec of a suite that was repeated.
func specOf(name string) func(context.Context, string) (Row, error) {
	return func(ctx context.Context, dir string) (Row, error) {
		rows, err := readConformance(ctx, filepath.Join(dir, conformance.File))
		if err != nil {
			return Row{}, err
		}
		i := slices.IndexFunc(rows, func(r Row) bool { return r.Name == name })
		if i < 0 {
			return Row{}, fmt.Errorf("the suite did not run the spec %q", name)
		}
		return rows[i], nil
	}
}

// kills are tables of mutants: a row for each run of each proxy.
var kills = format{"a table of mutants", func(name string, k keys) bool {
	return k.has("schemaVersion", "rows") && !k.has("command")
}, readKills}

func readKills(_ context.Context, path string) (rows []Row, err error) {
	t, err := mutants.Read(path)
	if err != nil {
		return nil, err
	}
	for _, r := range t.Rows {
		for _, c := range r.Cells {
			if c.Hitless != "" && c.HistorySha256 == "" && len(c.Skipped) > 0 && len(c.Failed)+len(c.Invalid) == 0 {
				continue // all specs were skipped, as those of IPv6 with an old kube-proxy: nothing was run
			}
			row := Row{Name: r.Name + " " + c.Run, Subject: r.Name, Verdict: fmt.Sprintf("%d failed, %d invalid, %d skipped", len(c.Failed), len(c.Invalid), len(c.Skipped)),
				KindsTold: true, HistorySha256: c.HistorySha256, Origin: Origin{c.Hitless, c.Kernel, c.ControlPlane, c.Made}}
			for _, spec := range c.Failed {
				row.Kinds = append(row.Kinds, analysis.FailureKind{Lane: spec, Class: "failed"})
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// benchmarks are files of `hitless bench-proxier`: a row for each subject and number of Services.
var benchmarks = format{"a benchmark", func(_ string, k keys) bool { return k.has("command", "rows") }, readBenchmark}

func readBenchmark(_ context.Context, path string) (rows []Row, err error) {
	b, err := bench.ReadResults(path)
	if err != nil {
		return nil, err
	}
	for _, r := range b.Rows {
		rows = append(rows, Row{Name: fmt.Sprintf("%s, min-sync-period %s, at %d Services", r.Subject, r.MinSync, r.Services), Subject: r.Subject, Verdict: "measured",
			Origin: Origin{b.ProgramSha256, kernelOf(b.Kernel), b.ControlPlane, b.Made}})
	}
	return rows, nil
}

// pictures are reports of single runs: one row.
var pictures = format{"the report of a run", func(_ string, k keys) bool { return k.has("verdict", "lanes", "totals") }, readPicture}

func readPicture(_ context.Context, path string) ([]Row, error) {
	r, err := analysis.Read(path)
	if err != nil {
		return nil, err
	}
	s := subject.Spec{Name: r.Subject.Name, Version: r.Subject.Version, Mode: r.Subject.Mode, Flags: r.Subject.Flags}.String()
	row := rowOf(compare.RunOf(r, "", ""), s)
	row.Name, row.Made = fmt.Sprintf("%s seed %d", r.Run.Scenario, r.Run.Seed), r.Made
	return []Row{row}, nil
}

// drawings are texts that `hitless report --format lanes` drew. They have no rows: the report beside them names the run.
var drawings = format{"a drawing", func(name string, _ keys) bool { return strings.HasSuffix(name, ".lanes.txt") }, func(context.Context, string) ([]Row, error) { return nil, nil }}

// upstream are tables of Kubernetes' own specs, from `make upstream-e2e`: a row for each spec. Lines at the begin say what made them.
var upstream = format{"specs of upstream", func(name string, _ keys) bool { return strings.HasSuffix(name, ".tsv") }, readUpstream}

// factsPrefix begins the first line of such a table, an object with upstreamFacts.
const factsPrefix = "# "

// upstreamFacts are the first line of a table of upstream's specs. hack/upstream-e2e.sh writes it.
type upstreamFacts struct {
	Subject       string       `json:"subject"`
	ProgramSha256 string       `json:"programSha256"`
	Kernel        string       `json:"kernel"`
	ControlPlane  string       `json:"controlPlane"`
	Made          *record.Made `json:"made"`
}

func readUpstream(ctx context.Context, path string) (rows []Row, err error) {
	data, err := input.Read(ctx, path, input.TextBytes)
	if err != nil {
		return nil, err
	}
	var facts upstreamFacts
	if first, rest, _ := bytes.Cut(data, []byte("\n")); bytes.HasPrefix(first, []byte(factsPrefix)) {
		if err := json.Unmarshal(first[len(factsPrefix):], &facts); err != nil {
			return nil, fmt.Errorf("its first line: %w; `make upstream-e2e` writes it again", err)
		}
		data = rest
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		columns := strings.Split(lines.Text(), "\t")
		if len(columns) != 3 {
			return nil, fmt.Errorf("the line %q has not three columns; `make upstream-e2e` writes it again", lines.Text())
		}
		rows = append(rows, Row{Name: columns[2], Subject: facts.Subject, Verdict: columns[0], Origin: Origin{facts.ProgramSha256, facts.Kernel, facts.ControlPlane, facts.Made}})
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, errors.New("it has no spec; `make upstream-e2e` writes it again")
	}
	return rows, nil
}
