package main

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/hitless/hitless/internal/flags"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/probes/session"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
)

func probeCommand() *cobra.Command {
	var o session.Options
	var source, sign string
	cmd := &cobra.Command{
		Use:   "probe HOST:PORT",
		Short: "Measure any address from this machine while something changes it",
		Long: `Measure any address from this machine while something changes it: an upgrade, a rollout, a pulled cable.

The first 3.5 seconds are the baseline, in which nothing may change, and the proof of the detector: on a canary lane to
the same target, what arrives for its sockets is dropped by this machine's own kernel for 20 ms and for 200 ms. A
measurement that does not find both is invalid. "pass" says that this machine saw no outage longer than the detection floor in
the report. It does not say whether your change took place.

It needs no privilege, runs by the real clock, and adds --rate connections a second to the target (and the canary's, at
least 100 a second, for those seconds). Results go to --out: report.html, report.json, junit.xml, summary.md, history/
and host.json.

Ctrl-C ends the measurement in an orderly way and is no failure: the exit code is that of the verdict (0 pass, 1 fail,
3 invalid). Ended before the proof is over, the measurement is invalid.`,
		Example: `  hitless probe 203.0.113.10:80
  hitless probe '[2001:db8::10]:80' --rate 1000 --policy reuse:10s --duration 10m
  hitless probe 203.0.113.10:80 --protocol http-reuse --rate 10
  hitless probe shop.example:80 --path /healthz --policy reuse:5s --close rst`,
		Args: oneTarget,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := fillSession(&o, cmd, "probe", args[0], source, sign); err != nil {
				return err
			}
			o.Progress = newScreen(cmd.ErrOrStderr()).message
			o.OnSecond = secondsTo(cmd.ErrOrStderr())
			result, err := site.Execute(cmd.Context(), &site.Machine{Options: o})
			if err != nil {
				return err
			}
			defer fmt.Fprintf(cmd.OutOrStdout(), "report           %s\n", filepath.Join(result.Dir, reports.PageFile))
			return conclude(cmd, result.Report, result.Origin())
		},
	}
	sessionFlags(cmd.Flags(), &o, &source, session.RecordAll)
	signFlag(cmd.Flags(), &sign)
	verboseFlag(cmd.Flags())
	cmd.Flags().DurationVar(&o.Duration, "duration", 0, "how long to measure after the baseline; 0 is until Ctrl-C")
	flags.Allow(cmd.Flags(), "duration", flags.Zero)
	cmd.Flags().StringVar(&o.Out, "out", filepath.Join("out", session.Scenario), "folder for the results")
	flags.Aside(cmd.Flags(), "out")
	return cmd
}

// sessionFlags are those of everything that measures an address from here; kept is the default of --record.
func sessionFlags(f *pflag.FlagSet, o *session.Options, source *string, kept string) {
	f.Float64Var(&o.Rate, "rate", 100, "attempts per second")
	f.StringVar(&o.Protocol, "protocol", probes.ProtocolTCPNew, "what an attempt is: "+strings.Join(probes.Protocols(), ", "))
	f.StringVar(&o.Policy, "policy", probes.PolicyFresh, "five-tuples: fresh, or reuse:INTERVAL such as reuse:5s")
	f.StringVar(&o.Close, "close", probes.CloseFIN, "how a connection ends: fin or rst")
	f.StringVar(&o.Path, "path", "/hostname", "what is asked for over HTTP; an answer is right if its status is that of the first one, whatever its body")
	f.DurationVar(&o.DelayedAfter, "delayed-after", 0,
		"an answer later than this counts as delayed, such as 500ms for load balancers that terminate connections; 0: no limit over TCP, 500ms over UDP")
	f.StringVar(&o.Record, "record", kept, "what is recorded of attempts: all of them, or thinned: one by one near failures and events, "+
		"and elsewhere as counts and histograms of each second; the report is the same")
	f.StringVar(source, "source", "",
		"range of local addresses to draw five-tuples from, for rates that one address has too few ports for; "+
			"\"ip route add local RANGE dev lo\" makes one")
	flags.Allow(f, "delayed-after", flags.Zero)
	flags.Words(f, "protocol", probes.Protocols()...)
	flags.Words(f, "close", probes.CloseFIN, probes.CloseRST)
	flags.Words(f, "record", session.RecordAll, record.RecordThinned)
}

func oneTarget(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("give one target as HOST:PORT, %d were given", len(args))
	}
	return nil
}

// fillSession sets what the flags cannot set themselves; name is the command as a user calls it. A watch of a cluster has no target.
func fillSession(o *session.Options, cmd *cobra.Command, name, target, source, sign string) (err error) {
	var args []string
	if target != "" {
		args = []string{target}
	}
	o.Target, o.Words = target, commandLine(cmd, name, args, asGiven)
	o.Command = record.JoinWords(o.Words)
	if o.Source, err = prefix(source); err == nil {
		o.Sign, err = signingKey(cmd.Context(), sign)
	}
	return err
}

func prefix(text string) (netip.Prefix, error) {
	if text == "" {
		return netip.Prefix{}, nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Errorf("--source %s is no range of addresses; give one such as 10.200.0.0/16", text)
	}
	return p, nil
}

// secondsTo prints a line for each second on a terminal; elsewhere, where lines are kept, only for those with failures.
func secondsTo(w io.Writer) func(session.Second) {
	terminal := isTerminal(w)
	return func(s session.Second) {
		if terminal || s.Failed() > 0 {
			fmt.Fprintln(w, s)
		}
	}
}

func isTerminal(w io.Writer) bool {
	f, is := w.(*os.File)
	if !is {
		return false
	}
	return term.IsTerminal(int(f.Fd()))
}
