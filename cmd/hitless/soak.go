package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/flags"
	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/shard"
	"github.com/hitless/hitless/reports"
)

func soakCommand() *cobra.Command {
	var o run.Options
	var set []string
	var seeds, part string
	var length, every time.Duration
	var keepGoing bool
	cmd := &cobra.Command{
		Use:   "soak",
		Short: "Days of churn in virtual time, on one seed or many",
		Long: `Days of churn in virtual time, on one seed or many.

Rollouts, restarts of proxies and scaling happen at random times, which the seed determines. --set adds flaps, lost nodes, outages of the API
and bursts of other Services' endpoints. Probes open a connection every --probe-every. A soak ends at its first failed attempt, or goes on with
--keep-going. After the failed attempt the proxies are restarted, to see whether that repairs them. A seed that fails does so again: the command
that repeats it is printed. The detector is proved before the churn and again every six hours of it (--set proofEvery). If a later proof fails,
the soak is invalid from the last good one on.

Exit codes: 0, pass; 1, a seed fails; 2, wrong usage or environment; 3, the measurement cannot be trusted; 130, interrupted.`,
		Example: `  hitless soak --for 24h --controlplane replay
  hitless soak --for 24h --seeds 1..8 --controlplane replay --subject kube-proxy@v1.12.2/ipvs`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			first, last, err := parseSeeds(seeds)
			if err != nil {
				return err
			}
			for _, pair := range set {
				if key, _, _ := strings.Cut(pair, "="); key == "for" || key == "keepGoing" {
					return fmt.Errorf("--set %s: a soak has the flags --for and --keep-going for that", pair)
				}
			}
			if every < time.Millisecond || every > time.Hour {
				return fmt.Errorf("--probe-every %s: give a duration from 1ms to 1h", every)
			}
			if err := fill(&o, cmd, "soak", append([]string{"for=" + length.String(), "keepGoing=" + onOff(keepGoing)}, set...)); err != nil {
				return err
			}
			o.Rate = float64(time.Second) / float64(every)
			s, err := shard.Parse(part)
			if err != nil {
				return err
			}
			return soakSeeds(cmd, o, first, last, s)
		},
	}
	f := cmd.Flags()
	subjectFlag(f, &o)
	f.DurationVar(&length, "for", 24*time.Hour, "virtual time of the churn")
	f.DurationVar(&every, "probe-every", 5*time.Second, "time between two connections of the probe")
	f.StringVar(&seeds, "seeds", "1", "one seed, or a range such as 1..16; as many at a time as this machine has CPUs and memory for")
	f.BoolVar(&keepGoing, "keep-going", false, "go on after the first failed attempt")
	f.StringVar(&o.Out, "out", filepath.Join("out", "soak"), "folder for the results, one below it for each seed")
	flags.Aside(f, "out")
	signFlag(f, &o.Sign)
	shardFlag(f, &part, "runs")
	guestKernelFlag(f, &o)
	commonFlags(f, &o, &set)
	return cmd
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

// parseSeeds reads N or N..M.
func parseSeeds(text string) (first, last int64, err error) {
	low, high, isRange := strings.Cut(text, "..")
	if !isRange {
		high = low
	}
	first, err1 := strconv.ParseInt(low, 10, 64)
	last, err2 := strconv.ParseInt(high, 10, 64)
	if err1 != nil || err2 != nil || last < first || uint64(last)-uint64(first) >= 10_000 || first <= 0 && last >= 0 {
		return 0, 0, fmt.Errorf("--seeds %s: give one seed, or a range of at most 10,000 such as 1..16, without 0", text)
	}
	return first, last, nil
}

// soakSeeds runs the seeds side by side, prints each result, and returns the worst verdict: fail before invalid before pass.
func soakSeeds(cmd *cobra.Command, o run.Options, first, last int64, part shard.Shard) (err error) {
	folder, err := reports.Lock(o.Out, "hitless soak")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	told := soakSummary{out: cmd.OutOrStdout(), code: exitPass}
	var group errgroup.Group
	group.SetLimit(run.AtOnce(cmd.Context(), o))
	var all []string
	for i := range uint64(last) - uint64(first) + 1 {
		one := o
		one.Seed = first + int64(i)
		name := fmt.Sprintf("seed-%d", one.Seed)
		all = append(all, name)
		if !part.Has(int(i)) {
			continue
		}
		one.Out = filepath.Join(o.Out, name)
		pace := pace{now: time.Now}
		one.Progress = progress.Named(fmt.Sprintf("seed %d", one.Seed), func(e progress.Event) { o.Progress(pace.add(e)) })
		group.Go(func() error {
			if cmd.Context().Err() == nil {
				result, err := run.Run(cmd.Context(), one)
				told.add(cmd.Context(), one.Seed, result, err)
			}
			return nil
		})
	}
	_ = group.Wait() // errors are printed
	switch {
	case part.Of == 0 || cmd.Context().Err() != nil:
	case !told.complete():
		fmt.Fprintf(told.out, "the shard is not complete, because a seed has no report; run it again before `hitless merge`\n")
	default:
		if err := shard.Write(cmd.Context(), o.Out, shard.Soak, callOf(cmd), part, all); err != nil {
			return err
		}
	}
	return told.end(cmd.Context())
}

// soakSummary prints the results of seeds.
type soakSummary struct {
	mu    sync.Mutex
	out   io.Writer
	ended int   // seeds that have run
	usage error // why a seed could not begin
	lost  int   // seeds whose runs ended without a report
	code  int   // the worst of those that have run
}

// add prints the result of a seed, unless it was interrupted.
func (s *soakSummary) add(ctx context.Context, seed int64, result *run.Result, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case run.IsUsage(err):
		s.usage = err
	case err != nil && ctx.Err() != nil:
	case err != nil:
		s.ended++
		s.lost++
		fmt.Fprintf(s.out, "seed %d  INVALID  %v\n", seed, err)
		s.code = worse(s.code, exitInvalid)
	default:
		s.ended++
		soakLine(s.out, seed, result)
		s.code = worse(s.code, result.Report.Verdict.ExitCode())
	}
}

// complete reports whether each seed has a report. A shard without that has no manifest: `hitless merge` could not read it.
func (s *soakSummary) complete() bool { return s.usage == nil && s.lost == 0 }

// end is the error of the soak. A seed that could not begin after others had counts as invalid.
func (s *soakSummary) end(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.usage != nil && s.ended == 0 {
		return s.usage
	}
	if s.usage != nil {
		fmt.Fprintf(s.out, "not every seed has run: %v\n", s.usage)
		s.code = worse(s.code, exitInvalid)
	}
	if s.code != exitPass {
		return exitError{code: s.code}
	}
	return nil
}

func soakLine(out io.Writer, seed int64, s *run.Result) {
	r := s.Report
	virtual := time.Duration(r.Run.Duration * float64(time.Second)).Round(time.Second)
	fmt.Fprintf(out, "seed %d  %s  %s\n        %s; history sha256 %s; %s\n", seed, strings.ToUpper(string(r.Verdict)),
		strings.Join(r.Reasons, "; "), paceOf(virtual, s.Wall, s.CPUTime), s.HistorySha256, filepath.Join(s.Dir, reports.PageFile))
	if r.Verdict == analysis.Fail {
		fmt.Fprintf(out, "        repeat it: %s\n", s.Command)
	}
}

// pace adds to the text of checkpoints how fast virtual time passes.
type pace struct {
	now   func() time.Time
	begin time.Time // wall time of the first event of the guest
}

func (p *pace) add(e progress.Event) progress.Event {
	if e.Kind != progress.Stage && e.Kind != progress.Checkpoint {
		return e
	}
	if p.begin.IsZero() {
		p.begin = p.now()
	}
	if wall := p.now().Sub(p.begin); e.Kind == progress.Checkpoint && wall > 0 {
		e.Text = fmt.Sprintf("%s; %s of wall time, %.0f times as fast", e.Text, wall.Round(time.Second), e.At.Seconds()/wall.Seconds())
	}
	return e
}

// paceOf is the speed of virtual time relative to wall time, and to the CPU time of the run.
func paceOf(virtual, wall, cpu time.Duration) string {
	text := fmt.Sprintf("%s of virtual time in %s of wall time: %.0f times as fast", virtual, wall.Round(time.Second), virtual.Seconds()/wall.Seconds())
	if cpu > 0 {
		text += fmt.Sprintf(" (%.0f by the %s of CPU that it took)", virtual.Seconds()/cpu.Seconds(), cpu.Round(time.Second))
	}
	return text
}

// worse is the exit code of two runs: a failure tells more than a run that cannot be trusted, and that more than one that was not made.
func worse(a, b int) int {
	for _, code := range []int{analysis.Fail.ExitCode(), exitInvalid, exitUsage} {
		if a == code || b == code {
			return code
		}
	}
	return max(a, b)
}
