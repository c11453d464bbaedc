package main

import (
	"cmp"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/hitless/hitless/internal/run"
)

func demoCommand() *cobra.Command {
	var o run.Options
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a rollout behind the bundled proxier, with a first result before the real control plane is built",
		Long: `Run a rollout behind the bundled proxier in a lab with the real control plane, as ` + "`hitless run rollout --set rollouts=1`" + ` does.

On a machine where programs of the real control plane are not in the cache yet, they are built first, which takes minutes. Meanwhile a
rollout runs with the replay control plane, a small stand-in. Its report is a first result, in a folder beside that of --out whose
name ends in -first. The first lines tell how long all that takes. Later calls have the programs, and only run.

If the programs cannot be built, the first result stays, and the exit code is 2. Otherwise the exit code is that of the run with the real
control plane, as of hitless run. After Ctrl-C nothing half-made is left; what a build has compiled so far, the next one uses.`,
		Example: "  hitless demo\n  hitless demo --programs released",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out = cmp.Or(o.Out, filepath.Join("out", "demo"))
			o.Progress = newScreen(cmd.ErrOrStderr()).report
			result, err := run.Demo(cmd.Context(), o, func(r *run.Result, err error) { printFirst(cmd, r, err) })
			return concludeRun(cmd, o, result, err)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Out, "out", "", "folder for the results (default out/demo)")
	programsFlags(f, &o)
	verboseFlag(f)
	return cmd
}

// printFirst prints the first result of a demo. A first run that ended early decides nothing.
func printFirst(cmd *cobra.Command, r *run.Result, err error) {
	out := cmd.OutOrStdout()
	fmt.Fprintln(out, "first result, with the replay control plane:")
	if err != nil {
		fmt.Fprintln(out, err)
	}
	if r != nil && r.Report != nil {
		if err := terminalOf(cmd).Write(out, r.Report, r.Origin()); err != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), "hitless: printing the first result:", err)
		}
	}
	if r != nil {
		printPlace(cmd, r)
	}
	fmt.Fprintln(out)
}
