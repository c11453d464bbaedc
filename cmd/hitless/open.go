package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/reports/compare"
	"github.com/hitless/hitless/reports/serve"
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
		}
	}
	if _, err := record.FolderOf(dir); err != nil {
		return "", record.Nor(err, "a comparison ("+compare.PageFile+")")
	}
	return "", fmt.Errorf("%s has no %s; `hitless report %s` makes it again", dir, reports.PageFile, dir)
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

func serveCommand() *cobra.Command {
	var listen, verify string
	cmd := &cobra.Command{
		Use:   "serve DIR",
		Short: "Show the runs in a folder, and drops by version and date, in a browser",
		Long: `List the runs in a folder and below it, with what they dropped by version of the subject and by date, and serve their
reports and logs. Nothing is written, nothing but the reports and logs of runs is served, and nothing outside the folder. Only
this machine can ask, unless --listen names another address; whoever can reach that sees all runs. Ctrl-C ends it.`,
		Example: `  hitless report serve out`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return serveRuns(cmd, args[0], listen, verify)
		},
	}
	verifyFlag(cmd.Flags(), &verify)
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:7788", "`ADDRESS:PORT` to listen on; port 0 takes a free one")
	return cmd
}

func serveRuns(cmd *cobra.Command, dir, listen, verify string) error {
	key, err := verifyingKey(cmd.Context(), verify)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listening on %s: %w; give another address with --listen", listen, err)
	}
	defer listener.Close()
	address := listener.Addr().(*net.TCPAddr)
	handler, err := serve.Open(dir, address.IP.IsLoopback(), key)
	if err != nil {
		return err
	}
	defer handler.Close()
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(cmd.Context(), func() { server.Close() })
	defer stop()
	fmt.Fprintf(cmd.OutOrStdout(), "the runs in %s: http://%s/\n", dir, address)
	if !address.IP.IsLoopback() {
		fmt.Fprintln(cmd.ErrOrStderr(), "whoever can reach this address sees all runs")
	}
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving %s: %w", dir, err)
	}
	return nil
}
