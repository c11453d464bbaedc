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
	err := suggestCommands(cmd.ExecuteContext(ctx))
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
hitless disturbs a Kubernetes cluster while probes open connections to a Service at a fixed rate. It reports the dropped connections of each
second, and the cause of each outage if the record shows one. By default the cluster is a lab in a virtual machine.

Exit codes: 0 pass, 1 fail (more loss or latency than accepted, or a proxy no longer applies changes of endpoints), 2 wrong usage or
environment, or skipped, 3 the measurement cannot be trusted, 130 interrupted.

The documentation is at ` + documentation + `. In help texts and errors, docs/NAME.md is a page there.`),
		Example: `  hitless demo
  hitless run rollout --subject kube-proxy@v1.25.3/iptables
  hitless compare rollout --subject kube-proxy@v1.25.3/iptables --subject bundled`,
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
	for _, g := range commandGroups() {
		cmd.AddGroup(&cobra.Group{ID: g.title, Title: g.title + ":"})
		for _, c := range g.commands {
			c.GroupID = g.title
		}
		cmd.AddCommand(g.commands...)
	}
	cmd.SetCompletionCommandGroupID(preparing)
	cmd.AddCommand(hidden(benchProxierCommand()), hidden(probes.Command()), fleet.Command())
	cmd.SetHelpCommand(helpCommand())
	cmd.InitDefaultHelpCmd()
	cmd.InitDefaultCompletionCmd()
	complete(cmd)
	flags.Strict(cmd)
	return cmd
}

// documentation is the place of the pages that help texts and errors name.
const documentation = "https://github.com/hitless/hitless/tree/main"

// commandGroup is a part of the list of commands.
type commandGroup struct {
	title    string
	commands []*cobra.Command
}

// preparing is the title of the group that also has the commands of cobra.
const preparing = "Prepare and look up"

func commandGroups() []commandGroup {
	return []commandGroup{
		{"Test a proxy", []*cobra.Command{demoCommand(), runCommand(), compareCommand(), soakCommand(), conformanceCommand(), museumCommand(), replayCommand()}},
		{"Measure while something else changes", []*cobra.Command{probeCommand(), watchCommand(), recordCommand()}},
		{"Read and judge results", []*cobra.Command{reportCommand(), openCommand(), gateCommand(), verifyCommand(), minimizeCommand(), mergeCommand(), resultsCommand(), schemaCommand()}},
		{preparing, append([]*cobra.Command{scenariosCommand(), subjectsCommand(), buildCommand(), doctorCommand(), cleanCommand(), versionCommand()}, linuxCommands()...)},
	}
}

func hidden(c *cobra.Command) *cobra.Command {
	c.Hidden = true
	return c
}
