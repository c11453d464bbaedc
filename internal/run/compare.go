package run

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/internal/shard"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/reports/compare"
	"github.com/hitless/hitless/scenarios"
)

// ComparisonFolder is the folder of a comparison with these options.
func ComparisonFolder(o Options) string {
	return cmp.Or(o.Out, filepath.Join("out", "compare-"+o.Scenario))
}

// Comparison is what a user asks to compare.
type Comparison struct {
	Subjects []string // bundled if there are none and several Kernels
	// Kernels are those of the guest, as LabOptions.GuestKernel: each subject runs on each of them; none for that of the options.
	Kernels    []string
	Runs       int               // of each subject, with the seeds 1 to this number
	Against    string            // a subject, a kernel, or a subject on a kernel as the comparison names it; empty for the first
	BudgetFile string            // judges each run; empty for the budgets of the runs
	Key        ed25519.PublicKey // as for record.OpenSigned
	Shard      shard.Shard       // only these runs; the folder then gets a part of the comparison, which hitless merge joins
}

// variant is a subject on a kernel.
type variant struct{ subject, kernel string }

// variants are what is compared, in order: each subject on each kernel.
func (asked Comparison) variants(o Options) (all []variant) {
	subjects, kernels := asked.Subjects, asked.Kernels
	if len(subjects) == 0 {
		subjects = []string{subject.Bundled.Name}
	}
	if len(kernels) == 0 {
		kernels = []string{o.GuestKernel}
	}
	for _, s := range subjects {
		for _, k := range kernels {
			all = append(all, variant{s, k})
		}
	}
	return all
}

// name is the name of a variant in the comparison. It has the kernel only where kernels are compared.
func (asked Comparison) name(spec subject.Spec, kernel string) (string, error) {
	if len(asked.Kernels) < 2 {
		return spec.String(), nil
	}
	choice, err := vm.ParseKernelChoice(kernel)
	if err != nil {
		return "", usagef("--guest-kernel: %w", err)
	}
	return spec.String() + " on " + choice.String(), nil
}

// isAgainst reports whether the reference that was asked for is that variant.
func (asked Comparison) isAgainst(v variant, spec subject.Spec, name string) bool {
	if asked.Against == v.subject || asked.Against == spec.String() || asked.Against == name {
		return true
	}
	return asked.Against != "" && len(asked.Kernels) > 1 && asked.Against == v.kernel
}

// Compare runs a scenario against each subject with the same seeds. The runs are interleaved, so that changes of this machine
// affect all subjects alike. Seeds are the samples, since runs are deterministic. An invalid run makes the comparison invalid, and the
// other runs go on. Compare writes compare.json, compare.html and compare.md into o.Out, and each run into a folder below it. An earlier
// comparison there stays until the new one is complete. Of a shard it writes a part and its manifest instead, and returns nil.
func Compare(ctx context.Context, o Options, asked Comparison) (c *compare.Comparison, err error) {
	variants := asked.variants(o)
	switch {
	case asked.Runs < 1 || asked.Runs > 10_000:
		return nil, usagef("--runs %d: give a number from 1 to 10,000", asked.Runs)
	case len(variants) < 2:
		return nil, usagef("comparing needs two subjects or kernels or more: give --subject or --guest-kernel again; %d subjects and %d kernels were given",
			len(asked.Subjects), len(asked.Kernels))
	}
	if err := o.fillDefaults(ctx); err != nil {
		return nil, err
	}
	if err := o.loadKey(ctx); err != nil {
		return nil, err
	}
	o.Out, o.Budget = ComparisonFolder(o), asked.BudgetFile
	compared, options, err := o.comparable(ctx, asked)
	if err != nil {
		return nil, err
	}
	command := o.compareCommand(asked)
	folder, err := reports.ClaimComparison(o.Out, command)
	if err != nil {
		return nil, UsageError{Reason: err}
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	if _, err := folder.Begin(); err != nil {
		return nil, UsageError{Reason: err}
	}
	names := runFolders(variants, compared, asked.Runs, options)
	if err := o.compareRuns(ctx, folder.Work(), names, asked.Shard, variants, compared, options); err != nil {
		return nil, fmt.Errorf("%w; the runs that have ended are in %s until the next comparison", err, folder.Work())
	}
	if asked.Shard.Of > 0 {
		return nil, errors.Join(asked.writePart(ctx, folder.Work(), names, compare.NewPart(o.Scenario, command, compared, options)), folder.Finish())
	}
	if c, err = compare.New(o.Scenario, compared, options); err != nil {
		return nil, err
	}
	c.Command = command
	if err := compare.Write(folder.Work(), c, asked.Key); err != nil {
		return nil, err
	}
	return c, folder.Finish()
}

// writePart writes what a shard has made.
func (asked Comparison) writePart(ctx context.Context, dir string, runs []string, p compare.Part) error {
	for i, s := range p.Subjects { // without the places for the runs of other shards
		p.Subjects[i].Runs = slices.DeleteFunc(s.Runs, func(r compare.Run) bool { return r.Report == "" })
	}
	return errors.Join(compare.WritePart(dir, p), shard.Write(ctx, dir, shard.Comparison, p.Command, asked.Shard, runs))
}

// comparable checks a call before its first run. It returns the subjects with room for their runs.
func (o Options) comparable(ctx context.Context, asked Comparison) (compared []compare.Subject, options compare.Options, err error) {
	options.Kernels = len(asked.Kernels) > 1
	var names []string
	for _, v := range asked.variants(o) {
		name, is, err := o.compares(ctx, asked, v)
		if err != nil {
			return nil, options, err
		}
		if slices.Contains(names, name) {
			return nil, options, usagef("%s is given twice; give each subject and each kernel once, and files of kernels different names", name)
		}
		compared, names = append(compared, compare.Subject{Subject: name, Runs: make([]compare.Run, asked.Runs)}), append(names, name)
		if is && options.Against == "" {
			options.Against = name
		}
	}
	if asked.Against != "" && options.Against == "" {
		return nil, options, usagef("--against %s: it is none of the subjects; give one of %s", asked.Against, strings.Join(names, ", "))
	}
	if asked.BudgetFile != "" {
		o.Budget = asked.BudgetFile
		if err := o.loadBudget(ctx); err != nil {
			return nil, options, err
		}
		options.Budget = &o.budget.Budget
	}
	return compared, options, nil
}

// compares checks a variant, and returns its name and whether it is the reference that was asked for.
func (o Options) compares(ctx context.Context, asked Comparison, v variant) (name string, against bool, err error) {
	one := o.of(v)
	plan, spec, err := one.plan(ctx)
	if err != nil {
		return "", false, err
	}
	if name, err = asked.name(spec, v.kernel); err != nil || len(asked.Kernels) == 0 {
		return name, asked.isAgainst(v, spec, name), err
	}
	s, err := site.NewLab(ctx, one.call(), one.LabOptions, plan, spec)
	if err == nil {
		err = site.CheckGuestKernel(ctx, s)
	}
	return name, asked.isAgainst(v, spec, name), err
}

// of are the options for the runs of one variant. A subject that is the one of `to` already becomes itself: this compares an upgrade with
// the same steps of the new version alone.
func (o Options) of(v variant) Options {
	name := v.subject
	o.Subject, o.GuestKernel = name, v.kernel
	if o.Set[scenarios.To.Key] == name {
		o.Set = maps.Clone(o.Set)
		o.Set[scenarios.To.Key] = scenarios.Itself
	}
	return o
}

// folderName makes the name of a folder of a name in a comparison, without letters that NTFS and actions/upload-artifact refuse.
var folderName = strings.NewReplacer("/", "-", "@", "-", "?", "-", "&", "-", "=", "-", " ", "-", ",", "-",
	":", "-", `\`, "-", "*", "-", "<", "-", ">", "-", "|", "-", `"`, "-", "\r", "-", "\n", "-")

// runFolders are the names of the folders of all runs: each subject with the first seed, then with the next.
func runFolders(variants []variant, compared []compare.Subject, runs int, options compare.Options) (names []string) {
	for seed := 1; seed <= runs; seed++ {
		for i, v := range variants {
			subject := v.subject
			if options.Kernels {
				subject = compared[i].Subject
			}
			names = append(names, fmt.Sprintf("%s-seed-%d", folderName.Replace(subject), seed))
		}
	}
	return names
}

// compareRuns runs each subject with each seed of the shard, in the named folders below dir. The budget of the options judges the runs, unless it
// is nil.
func (o Options) compareRuns(ctx context.Context, dir string, names []string, part shard.Shard, variants []variant, compared []compare.Subject, options compare.Options) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(o.atOnceOf(ctx, variants))
	for at, name := range names {
		if !part.Has(at) {
			continue
		}
		i, seed := at%len(variants), at/len(variants)+1
		group.Go(func() error {
			one := o.of(variants[i])
			one.Seed = int64(seed)
			one.Out = filepath.Join(dir, name)
			one.Progress = progress.Named(name, o.report)
			result, err := Run(ctx, one)
			if invalid := (*InvalidError)(nil); errors.As(err, &invalid) && result != nil {
				one.report(progress.Event{Kind: progress.Message, Text: invalid.Error()})
				compared[i].Runs[seed-1] = compare.InvalidRun(one.Seed, filepath.Join(name, reports.ReportFile), result.HistorySha256)
				return nil
			}
			if err != nil {
				return fmt.Errorf("%s with seed %d: %w", compared[i].Subject, seed, err)
			}
			compared[i].Runs[seed-1], err = entry(result, filepath.Join(name, reports.ReportFile), options.Budget)
			return err
		})
	}
	return group.Wait()
}

// atOnceOf is how many runs of these variants this machine has room for at once.
func (o Options) atOnceOf(ctx context.Context, variants []variant) int {
	var all []Options
	for _, v := range variants {
		all = append(all, o.of(v))
	}
	return AtOnce(ctx, all...)
}

// entry is the entry of a run with a report, which the budget judges again unless it is nil.
func entry(result *Result, path string, budget *record.Budget) (compare.Run, error) {
	if budget == nil {
		return compare.RunOf(result.Report, path, result.HistorySha256), nil
	}
	h, err := record.OpenHistory(result.Dir)
	if err != nil {
		return compare.Run{}, err
	}
	return compare.Judged(h, result.Report, path, budget)
}

func (o Options) compareCommand(asked Comparison) string {
	words := []string{"hitless compare", o.Scenario}
	for _, s := range asked.Subjects {
		words = append(words, "--subject", record.Word(s))
	}
	for _, k := range asked.Kernels {
		words = append(words, "--guest-kernel", record.Word(k))
	}
	if asked.Against != "" {
		words = append(words, "--against", record.Word(asked.Against))
	}
	if asked.BudgetFile != "" {
		words = append(words, "--budget", record.Word(asked.BudgetFile))
		o.Budget = "" // else its runs' words would have the file again
	}
	return strings.Join(append(words, append([]string{"--runs", strconv.Itoa(asked.Runs)}, o.LabOptions.Words(o.call(), filepath.Base)...)...), " ")
}
