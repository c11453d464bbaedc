// Command hitless tests whether a Kubernetes Service proxy drops connections when something changes.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/hitless/hitless/internal/flags"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/probes/fleet"
	"github.com/hitless/hitless/record"
)

// The exit codes.
const (
	exitPass        = 0
	exitFail        = 1
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
	initGuest()
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs a command line and returns the exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), interrupts()...)
	defer stop()
	cmd := root()
	cmd.SetArgs(args)
	if isForUsers(cmd, args) {
		surviveDeadOutput()
	}
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	if text := message(ctx, err); text != "" {
		fmt.Fprintln(stderr, "hitless:", text)
	}
	return exitCode(ctx, err)
}

// interrupts are the signals that end a command in order. SIGHUP is the end of a terminal or an SSH session, unless nohup ignores it.
func interrupts() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}

// isForUsers reports whether users call the command of these arguments, rather than this program.
func isForUsers(root *cobra.Command, args []string) bool {
	called, _, err := root.Find(args)
	for ; err == nil && called != nil; called = called.Parent() {
		if called.Hidden {
			return false
		}
	}
	return err == nil
}

// surviveDeadOutput makes a write to a pipe without a reader an error: SIGPIPE would end the program before it puts a cluster back. The
// signal is not ignored, since the programs that hitless starts would ignore it too.
func surviveDeadOutput() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// isDeadOutput reports whether a write failed because the program that read this output has ended, as after `| head`.
func isDeadOutput(err error) bool {
	var at *fs.PathError
	return errors.As(err, &at) && errors.Is(at, syscall.EPIPE) && (at.Path == os.Stdout.Name() || at.Path == os.Stderr.Name())
}

// message is the text of an error. After an interrupt it begins with that.
func message(ctx context.Context, err error) string {
	switch {
	case err == nil || err.Error() == "" || isDeadOutput(err):
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
hitless takes a Kubernetes Service proxy through rollouts, restarts and faults. Probes open connections to an external IP at a fixed rate.
The report names every dropped connection, second by second, with its cause.

Exit codes: 0 pass, 1 fail (more loss or latency than accepted, or a proxy does not follow changes any more), 2 wrong usage or
environment, or skipped, 3 the measurement cannot be trusted, 130 interrupted.`),
		SilenceErrors: true, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				return printVersion(cmd.Context(), cmd.OutOrStdout())
			}
			return cmd.Help()
		},
	}
	cmd.Flags().BoolVar(&version, "version", false, "print the version, the revision, the Go version and the program's sha256")
	cmd.SetFlagErrorFunc(suggestFlag)
	cmd.AddCommand(demoCommand(), runCommand(), replayCommand(), recordCommand(), minimizeCommand(), cleanCommand(), compareCommand(), probeCommand(), watchCommand(), mergeCommand(), resultsCommand(), soakCommand(), museumCommand(), conformanceCommand(), reportCommand(), openCommand(), gateCommand(), verifyCommand(), schemaCommand(),
		scenariosCommand(), subjectsCommand(), buildCommand(), doctorCommand(), versionCommand(),
		hidden(benchProxierCommand()), hidden(probes.Command()), fleet.Command())
	cmd.AddCommand(linuxCommands()...)
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
