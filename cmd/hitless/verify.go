package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/analysis/verify"
	"github.com/hitless/hitless/record"
)

func verifyCommand() *cobra.Command {
	var key string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "verify DIR", Short: "Count the losses of a run again, from the packets that it captured", Args: cobra.ExactArgs(1),
		Long: `Count the losses of a run again, from the packets that it captured with --capture, and compare the result with its record and report.

The packets of the client alone tell the outcome of each new connection; those of the nodes tell its path. Compared are each attempt, and
the report's seconds, paths and outages. docs/verify.md describes what packets cannot tell.

The seal is checked first. Nothing is written. Exit codes: 0, all agree; 1, a disagreement; 2, wrong usage, such as a run without a capture;
3, inconclusive, as when the capture lost packets.`,
		Example: `  hitless run rollout --capture
  hitless verify out/rollout`,
		RunE: func(cmd *cobra.Command, args []string) error {
			h, err := openRun(cmd.Context(), args[0], key)
			if err != nil {
				return err
			}
			if why := h.Distrust(); why != "" {
				return exitError{code: exitInvalid, err: fmt.Errorf("verifying %s: the record is invalid: %s", args[0], why)}
			}
			r, err := verifyRun(h)
			if err != nil {
				return fmt.Errorf("verifying %s: %w", args[0], err)
			}
			return concludeVerify(cmd, r, asJSON)
		},
	}
	verifyFlag(cmd.Flags(), &key)
	cmd.Flags().BoolVar(&asJSON, "json", false, "write the result as JSON")
	return cmd
}

func verifyRun(h *record.History) (*verify.Result, error) {
	folder, err := h.Folder()
	if err != nil {
		return nil, err
	}
	in, err := os.Open(filepath.Join(folder, record.CaptureFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("it has no %s; repeat the run with --capture", record.CaptureFile)
	}
	if err != nil {
		return nil, err
	}
	defer in.Close()
	report, err := analysis.Build(h)
	if err != nil {
		return nil, err
	}
	return verify.Verify(h, report, in)
}

func concludeVerify(cmd *cobra.Command, r *verify.Result, asJSON bool) error {
	out := cmd.OutOrStdout()
	if asJSON {
		if err := encode(out, r); err != nil {
			return err
		}
	} else if err := r.WriteText(out); err != nil {
		return err
	}
	switch {
	case r.Doubt() != "":
		return exitError{code: exitInvalid}
	case !r.Agrees():
		return exitError{code: analysis.Fail.ExitCode()}
	}
	return nil
}
