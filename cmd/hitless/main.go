// Command hitless tests whether a Kubernetes Service proxy drops connections when something changes.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/hitless/hitless/internal/flags"
	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/internal/run"
	_ "github.com/hitless/hitless/lab/backend/early" // handles the command `backend`
	"github.com/hitless/hitless/lab/compile"
	"github.com/hitless/hitless/lab/host"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/probes/fleet"
	"github.com/hitless/hitless/proxier"
	"github.com/hitless/hitless/record"
)

// The exit codes.
const (
	exitPass        = 0
	exitUsage       = 2
	exitInvalid     = 3
	exitInterrupted = 130
)

// exitError ends the program with a code, after its message if it has one.
type exitError struct {
	code int
	err  error
}

// Error is the message.
func (e exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func main() {
	if os.Getpid() == 1 && os.Args[0] == "/init" { // the kernel passes unknown words to init
		vm.Init(guest.Program, "guest")
	}
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs a command line and returns the exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := root()
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	if text := message(ctx, err); text != "" {
		fmt.Fprintln(stderr, "hitless:", text)
	}
	return exitCode(ctx, err)
}

// message is the text of an error. After an interrupt it begins with that.
func message(ctx context.Context, err error) string {
	switch {
	case err == nil || err.Error() == "":
		return ""
	case errors.As(err, new(exitError)) || ctx.Err() == nil:
		return err.Error()
	case err == ctx.Err():
		return "interrupted"
	}
	return "interrupted: " + strings.TrimPrefix(err.Error(), "interrupted: ")
}

func exitCode(ctx context.Context, err error) int {
	var exit exitError
	switch {
	case err == nil:
		return exitPass
	case errors.As(err, &exit):
		return exit.code
	case record.IsDamaged(err):
		return exitInvalid
	case ctx.Err() != nil:
		return exitInterrupted
	case errors.As(err, new(*run.InvalidError)):
		return exitInvalid
	default:
		return exitUsage
	}
}

func root() *cobra.Command {
	var version bool
	cmd := &cobra.Command{
		Use:   "hitless",
		Short: "Does this Kubernetes Service proxy drop connections when something changes?",
		Long: strings.TrimSpace(`
hitless runs a Kubernetes Service proxy through rollouts, restarts and faults, while probes open connections to an
external IP at a fixed rate, and reports every dropped connection, second by second, with its cause.

Exit codes: 0 pass, 1 fail (more connections dropped or delayed than accepted), 2 wrong usage or environment, or skipped, 3 the measurement
cannot be trusted, 130 interrupted.`),
		SilenceErrors: true, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				return printVersion(cmd.OutOrStdout())
			}
			return cmd.Help()
		},
	}
	cmd.Flags().BoolVar(&version, "version", false, "print the version, the revision, the Go version and the program's sha256")
	cmd.SetFlagErrorFunc(suggestFlag)
	cmd.AddCommand(demoCommand(), runCommand(), replayCommand(), recordCommand(), minimizeCommand(), labCommand(), cleanCommand(), compareCommand(), probeCommand(), watchCommand(), resultsCommand(), soakCommand(), museumCommand(), conformanceCommand(), reportCommand(), openCommand(), gateCommand(), verifyCommand(), schemaCommand(),
		scenariosCommand(), subjectsCommand(), buildCommand(), doctorCommand(), versionCommand(), proxier.Command(),
		hidden(benchProxierCommand()), hidden(probes.Command()), fleet.Command(), guestCommand())
	cmd.SetHelpCommand(helpCommand())
	cmd.InitDefaultHelpCmd()
	cmd.InitDefaultCompletionCmd()
	complete(cmd)
	flags.Strict(cmd)
	return cmd
}

func hidden(c *cobra.Command) *cobra.Command {
	c.Hidden = true
	return c
}

// guestCommand runs in the guest: in a VM as the child of the first process, on the host as the first process (guest init) and as its
// child (guest host).
func guestCommand() *cobra.Command {
	first := &cobra.Command{Use: "init", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return host.Init(guest.Program, "guest", "host") }}
	onHost := &cobra.Command{Use: "host", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return guest.HostMain() }}
	c := hidden(&cobra.Command{Use: "guest", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return guest.Main() }})
	// A proxy calls it as clang, with clang's flags.
	clang := &cobra.Command{Use: "clang", DisableFlagParsing: true, Run: func(_ *cobra.Command, args []string) {
		os.Exit(compile.Main(args, guest.NodeFiles, vm.Call, os.Stdout, os.Stderr))
	}}
	c.AddCommand(first, onHost, clang)
	return c
}
