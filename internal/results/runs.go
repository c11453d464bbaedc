package results

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/analysis/verify"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/reports/compare"
	"github.com/hitless/hitless/scenarios"
)

// comparisons are files of `hitless compare`: a row for each run.
var comparisons = format{"a comparison", func(_ string, k keys) bool { return k.has("scenario", "subjects") }, readComparison}

func readComparison(ctx context.Context, path string) (rows []Row, err error) {
	c, err := compare.Read(ctx, path)
	if err != nil {
		return nil, err
	}
	for _, s := range c.Subjects {
		for _, r := range s.Runs {
			subject, _, _ := strings.Cut(s.Subject, onKernel)
			row := rowOf(r, subject)
			row.Name = fmt.Sprintf("%s seed %d", s.Subject, r.Seed)
			args, err := ofComparison(c.Command, s.Subject, r.Seed)
			if err == nil {
				row.Again = &Again{args, readRun}
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// onKernel separates a subject from its kernel, in the names of a comparison of kernels.
const onKernel = " on "

// rowOf is a row without a name.
func rowOf(r compare.Run, subject string) Row {
	return Row{Subject: subject, Verdict: string(r.Verdict), HistorySha256: r.HistorySha256, Kinds: kindsOf(r.Failures),
		KindsTold: len(r.Failures) > 0 || r.Dropped+r.Delayed == 0, Origin: Origin{r.ProgramSha256, kernelOf(r.Kernel), r.ControlPlane, r.Made}}
}

func kindsOf(failures []analysis.Failures) (kinds []analysis.FailureKind) {
	for _, f := range failures {
		kinds = append(kinds, f.Kind())
	}
	return kinds
}

// ofComparison are the arguments of the run of one subject and seed in the command of a comparison.
func ofComparison(command, subject string, seed int64) (args []string, err error) {
	c, err := record.ParseCommand(command)
	if err != nil {
		return nil, err
	}
	if !c.Is("compare") || len(c.Args) != 3 || !inLab(c) {
		return nil, fmt.Errorf("%q is no command of a comparison in a lab", command)
	}
	name, kernel, _ := strings.Cut(subject, onKernel)
	given := name
	for _, f := range c.Flags {
		flag := "--" + f.Name
		switch {
		case f.Name == "subject":
			if subjectName(f.Value) == name {
				given = f.Value
			}
		case f.Name == "runs" || f.Name == "against" || f.Name == "guest-kernel" && kernel != "":
		case f.Name == "set" && f.Value == "to="+name: // as in a comparison: an upgrade of the subject to itself
			args = append(args, flag, "to="+scenarios.Itself)
		case f.Value == "":
			args = append(args, flag)
		default:
			args = append(args, flag, f.Value)
		}
	}
	if kernel != "" {
		args = append(args, "--guest-kernel", kernel)
	}
	return append([]string{"run", c.Args[2], "--subject", given, "--seed", strconv.FormatInt(seed, 10)}, args...), nil
}

// subjectName is the name of a subject in a comparison: exec:FILE without its folder and extension.
func subjectName(given string) string {
	if file, is := strings.CutPrefix(given, "exec:"); is {
		return "exec:" + strings.TrimSuffix(filepath.Base(file), ".yaml")
	}
	return given
}

// readRun reads the folder of a run.
func readRun(_ context.Context, dir string) (Row, error) {
	f, err := reports.OpenRun(dir, nil)
	if err != nil {
		return Row{}, err
	}
	return rowOf(compare.RunOf(f.Report, "", f.Origin.HistorySha256), ""), nil
}

// suiteRuns are files of the nightly suites: a row for each run.
var suiteRuns = format{"runs of a suite", func(_ string, k keys) bool { return k.has("suite", "runs") }, readSuite}

func readSuite(ctx context.Context, path string) (rows []Row, err error) {
	s, err := compare.ReadSuite(ctx, path)
	if err != nil {
		return nil, err
	}
	for _, r := range s.Runs {
		row := rowOf(r.Run, r.Subject)
		row.Name, row.Again = r.Command, ofCommand(r.Command, readRun)
		rows = append(rows, row)
	}
	return rows, nil
}

// inLab reports whether a command runs in a lab, and writes only its results: a check must not touch a live cluster because a file says so.
func inLab(c record.Command) bool {
	return !c.Has("kubeconfig", "in-cluster", "kind", "sign", "out")
}

// ofCommand repeats a row by its own command; nil if that is none of a run in a lab.
func ofCommand(command string, read func(context.Context, string) (Row, error)) *Again {
	c, err := record.ParseCommand(command)
	if err != nil || !c.Is("run") || len(c.Words) < 3 || !inLab(c) {
		return nil
	}
	return &Again{c.Words[1:], read}
}

// verified are the results of `hitless verify --json`: one row.
var verified = format{"a verified run", func(_ string, k keys) bool { return k.has("run", "lanes", "findings") }, readVerified}

func readVerified(ctx context.Context, path string) ([]Row, error) {
	r, err := ReadVerified(ctx, path)
	if err != nil {
		return nil, err
	}
	subject := ""
	c, err := record.ParseCommand(r.Run.Command)
	if given := c.Values("subject"); err == nil && len(given) > 0 {
		subject = given[0]
	}
	row := Row{Name: r.Run.Command, Subject: subject, Verdict: string(r.Run.Verdict), Wrong: wrongOf(r), HistorySha256: r.Run.HistorySha256, Again: ofCommand(r.Run.Command, readRun),
		Origin: Origin{r.Run.ProgramSha256, kernelOf(r.Run.Kernel), r.Run.ControlPlane, r.Run.Made}}
	if r.Run.Failures != nil {
		row.Kinds, row.KindsTold = kindsOf(*r.Run.Failures), true
	}
	return []Row{row}, nil
}

// wrongOf is why a verification does not confirm its run; empty if it does.
func wrongOf(r *verify.Result) string {
	if doubt := r.Doubt(); doubt != "" {
		return "whose verification is inconclusive: " + doubt
	}
	if n := len(r.Findings) + r.More; n > 0 {
		return "whose verification found " + units.Plural(n, "disagreement")
	}
	return ""
}

// ReadVerified reads a result of `hitless verify --json`.
func ReadVerified(ctx context.Context, path string) (*verify.Result, error) {
	var r verify.Result
	if err := decode(ctx, path, &r); err != nil {
		return nil, err
	}
	if r.Run.Command == "" {
		return nil, errors.New("it names no command; `make verify-runs` writes it again")
	}
	return &r, nil
}

// kernelOf is the text of a kernel; empty for nil.
func kernelOf(k *record.Kernel) string {
	if k == nil {
		return ""
	}
	return k.String()
}
