package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/reports/compare"
)

func openCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "open DIR",
		Short: "Open the page of a run or of a comparison in a browser",
		Long: `Open report.html of a run's folder, or compare.html of a comparison's folder, in the browser that BROWSER names, or else in the default one
of the desktop. The command ends when the browser has been started.`,
		Example: `  hitless open out/rollout
  hitless open out/compare-rollout`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			page, err := pageIn(args[0])
			if err != nil {
				return err
			}
			if err := openPage(page); err != nil {
				return fmt.Errorf("opening %s in a browser: %w; open the file yourself, or name a browser in BROWSER", page, err)
			}
			fmt.Fprintln(cmd.OutOrStdout(), page)
			return nil
		},
	}
}

// pageIn is the page in the folder of a run or of a comparison.
func pageIn(dir string) (string, error) {
	for _, name := range []string{compare.PageFile, reports.PageFile} {
		page, err := filepath.Abs(filepath.Join(dir, name))
		if err != nil {
			return "", fmt.Errorf("looking for a page in %s: %w", dir, err)
		}
		if _, err := os.Stat(page); err == nil {
			return page, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("looking for a page in %s: %w", dir, err)
		}
	}
	return "", fmt.Errorf("%s has neither %s nor %s: give the folder of a run; `hitless report %s` makes its page again", dir, reports.PageFile, compare.PageFile, dir)
}

// openPage starts a browser and does not wait for its end.
func openPage(page string) error {
	desktop := map[string]string{"darwin": "open", "windows": "explorer"}[runtime.GOOS]
	program, err := exec.LookPath(cmp.Or(os.Getenv("BROWSER"), desktop, "xdg-open"))
	if err != nil {
		return err
	}
	browser := exec.Command(program, page)
	if err := browser.Start(); err != nil {
		return err
	}
	return browser.Process.Release()
}
