package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/run"
)

func doctorCommand() *cobra.Command {
	var check, repair, install bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check what this machine can run, and what to install for the rest", Args: cobra.NoArgs,
		Long: `Check what this machine can run, and what to install for the rest. Each line has a state, a name, and what is there or what to do:

  ok       it is there
  missing  a lab needs it
  note     a lab runs without it

With --install, first install the packages that a lab lacks: on Debian and Ubuntu, as root, by apt-get, whose commands are printed. On
another system, or for another user, nothing is done, and the error says what to install.

Exit codes: 0 nothing is missing, 2 something is missing or cannot be installed, 130 interrupted.

With --cache, read every entry of the cache, and compare it with its digest. The cache is $HITLESS_CACHE, or hitless in the
user's cache directory. Each line has state, size, digest and name of an entry:

  ok         the content is the one that was written
  damaged    it is not; the next run that needs the entry makes it again
  left over  of a killed process or an older program; nothing uses it
  in use     a process writes it now
  unknown    hitless did not write it

Exit codes with --cache: 0 nothing is damaged, 1 entries are damaged, 2 the cache cannot be checked, 130 interrupted.`,
		Example: "  hitless doctor\n  sudo hitless doctor --install\n  hitless doctor --cache\n  hitless doctor --cache --repair",
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case install && (check || repair):
				return errors.New("--install is not for the cache: leave --cache and --repair out")
			case check:
				return checkCache(cmd.Context(), cmd.OutOrStdout(), newScreen(cmd.ErrOrStderr()), repair)
			case repair:
				return errors.New("--repair needs --cache: give both")
			}
			if install {
				if err := run.Install(cmd.Context(), cmd.ErrOrStderr()); err != nil {
					return err
				}
			}
			findings, err := run.Doctor(cmd.Context())
			if err != nil {
				return err
			}
			return writeFindings(cmd.OutOrStdout(), findings)
		},
	}
	cmd.Flags().BoolVar(&install, "install", false, "first install the packages that a lab lacks (Debian and Ubuntu, as root)")
	cmd.Flags().BoolVar(&check, "cache", false, "read every entry of the cache and compare it with its digest")
	cmd.Flags().BoolVar(&repair, "repair", false, "with --cache: remove damaged and left-over entries; runs make them again")
	return cmd
}

// writeFindings writes a line for each finding. The error says that a lab lacks something.
func writeFindings(out io.Writer, findings []run.Finding) error {
	lacking := 0
	var text strings.Builder
	for _, f := range findings {
		if f.State == run.Missing {
			lacking++
		}
		fmt.Fprintf(&text, "%-8s %-26s %s\n", f.State, f.Name, f.Text)
	}
	if _, err := io.WriteString(out, text.String()); err != nil {
		return err
	}
	if lacking > 0 {
		return fmt.Errorf("a lab on this machine lacks what the lines with \"missing\" name (%d); each of them says what to do", lacking)
	}
	return nil
}

// checkInterval is the time between two lines of progress.
const checkInterval = 2 * time.Second

// exitDamaged is the exit code for a cache with damaged entries.
const exitDamaged = 1

func checkCache(ctx context.Context, out io.Writer, s *screen, repair bool) error {
	dir, err := cache.Dir()
	if err != nil {
		return err
	}
	check := run.CacheCheck{Dir: dir, Repair: repair, Interval: checkInterval,
		Progress: func(done, total int64) { s.message(fmt.Sprintf("read %s of %s", megabytes(done), megabytes(total))) },
		Entry:    func(e run.CheckedEntry) { writeEntry(out, e) },
	}
	fmt.Fprintln(out, "cache", dir)
	damaged, err := check.CheckCache(ctx)
	if err != nil {
		return fmt.Errorf("checking the cache %s: %w", dir, err)
	}
	if damaged > 0 {
		return exitError{exitDamaged, fmt.Errorf("%d damaged entries are in the cache; the next run that needs one makes it again, or remove them: hitless doctor --cache --repair", damaged)}
	}
	return nil
}

// writeEntry writes a line about an entry, and a second one with the reason if it is not intact.
func writeEntry(out io.Writer, e run.CheckedEntry) {
	digest := e.Digest
	if digest == "" {
		digest = "no digest"
	}
	fmt.Fprintf(out, "%-10s %10s  %-71s  %s\n", e.State, megabytes(e.Bytes), digest, e.Name)
	if e.Why != "" {
		fmt.Fprintf(out, "%10s %s\n", "", e.Why)
	}
	if e.Removed {
		fmt.Fprintf(out, "%10s removed\n", "")
	}
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
