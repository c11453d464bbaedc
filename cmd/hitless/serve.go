package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/hitless/hitless/reports/serve"
)

func serveCommand() *cobra.Command {
	var listen, verify string
	cmd := &cobra.Command{
		Use:   "serve DIR",
		Short: "Show the runs in a folder, and drops by version and date, in a browser",
		Long: `List the runs in a folder and below it, with what they dropped by version of the subject and by date, and serve their
reports. Nothing is written, nothing but the reports of runs is served, and nothing outside the folder. Only this machine can
ask, unless --listen names another address; whoever can reach that sees all runs. Ctrl-C ends it.`,
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
