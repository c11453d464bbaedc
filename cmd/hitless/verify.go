package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/analysis/verify"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
)

func verifyCommand() *cobra.Command {
	var key string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "verify DIR", Short: "Judge a run again, by its packets and by a loop of curl", Args: cobra.ExactArgs(1),
		Long: `Judge a run again without the probes, and compare the result with its record and report.

A run with --capture has its packets. Those of the client alone tell the outcome of each new connection; those of the nodes tell its path.
Compared are each attempt, the report's seconds, paths and outages, and the figures of the kernels. docs/verify.md describes what packets cannot tell.

A run with --loop has the requests of curl, one each second. Each request that failed must lie in an outage of the report.

The seal is checked first. Nothing is written. Exit codes: 0, all agree; 1, a disagreement; 2, wrong usage, such as a run that has neither a
capture nor a loop; 3, inconclusive, as when the capture lost packets.`,
		Example: `  hitless run rollout --capture --loop
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
	report, err := reportIn(h, folder)
	if err != nil {
		return nil, err
	}
	result := verify.NewResult(h, report)
	captured, err := reading(filepath.Join(folder, record.CaptureFile), func(in io.Reader) (err error) {
		result, err = verify.Verify(h, report, in)
		return err
	})
	if err != nil {
		return nil, err
	}
	counted := false
	if captured {
		if counted, err = reading(filepath.Join(folder, record.CountersFile), result.CompareCounters); err != nil {
			return nil, err
		}
	}
	looped, err := reading(filepath.Join(folder, record.LoopFile), func(in io.Reader) error { return result.CompareLoop(report, in) })
	if err == nil && !captured && !looped {
		err = fmt.Errorf("it has neither %s nor %s; repeat the run with --capture, --loop or both", record.CaptureFile, record.LoopFile)
	}
	if err == nil {
		err = identify(result, h, folder)
	}
	if err != nil {
		return nil, err
	}
	files, err := missing(h.Run.Command, map[string]bool{record.CaptureFile: captured, record.CountersFile: counted, record.LoopFile: looped})
	result.Missing = append(result.Missing, files...)
	return result, err
}

// missing are the files that the flags of a command promise and that do not exist.
func missing(command string, exists map[string]bool) (files []string, err error) {
	c, err := record.ParseCommand(command)
	if err != nil {
		return nil, fmt.Errorf("reading the command of the run: %w", err)
	}
	for _, f := range []struct{ flag, file string }{{"capture", record.CaptureFile}, {"capture", record.CountersFile}, {"loop", record.LoopFile}} {
		if c.Has(f.flag) && !exists[f.file] {
			files = append(files, f.file)
		}
	}
	return files, nil
}

// reportIn is the report.json of a run's folder. Without one it is computed from the record.
func reportIn(h *record.History, folder string) (*analysis.Report, error) {
	data, err := record.ReadFile(os.DirFS(folder), reports.ReportFile)
	if errors.Is(err, fs.ErrNotExist) {
		return analysis.Build(h)
	}
	if err != nil {
		return nil, err
	}
	r, err := analysis.Parse(data, filepath.Join(folder, reports.ReportFile))
	if err != nil {
		return nil, err
	}
	return r, reports.FitsSeal(folder, r, h)
}

// identify adds which run the result is of, when it was made, and with what.
func identify(result *verify.Result, h *record.History, folder string) error {
	origin, err := h.Origin()
	if err != nil {
		return err
	}
	result.Run.HistorySha256 = origin.HistorySha256
	result.Run.Made, err = record.MadeIn(os.DirFS(folder))
	return err
}

// reading reads a file that a run may have.
func reading(file string, read func(io.Reader) error) (exists bool, err error) {
	in, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer in.Close()
	return true, read(in)
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
