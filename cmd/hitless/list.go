package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/flags"
	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/internal/version"
	"github.com/hitless/hitless/lab/build"
	"github.com/hitless/hitless/lab/debian"
	"github.com/hitless/hitless/lab/tools"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports/compare"
	"github.com/hitless/hitless/scenarios"
	"github.com/hitless/hitless/suites/conformance"
)

func scenariosCommand() *cobra.Command {
	return &cobra.Command{
		Use: "scenarios [NAME]", Short: "List the scenarios and their parameters, or those of one scenario", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			w := scenarioTable{tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)}
			if len(args) == 0 {
				w.all()
				return w.Flush()
			}
			if err := w.one(args[0]); err != nil {
				return err
			}
			return w.Flush()
		},
	}
}

// scenarioTable prints scenarios and parameters in columns.
type scenarioTable struct{ *tabwriter.Writer }

// all prints each scenario with its own parameters, and then the parameters that many have.
func (w scenarioTable) all() {
	for _, s := range scenarios.All() {
		w.scenario(s, s.Parameters)
	}
	fmt.Fprintln(w, "\nscenarios with lanes\thave these keys as well")
	for _, k := range scenarios.LaneKeys() {
		help := k.Help
		if len(k.Without) > 0 {
			help += " (not in " + strings.Join(k.Without, ", ") + ")"
		}
		w.parameters([]scenarios.Parameter{{Key: k.Key, Default: k.Default, Help: help}})
	}
	fmt.Fprintln(w, "\nevery scenario\thas these keys as well; its own default above comes first")
	w.parameters(scenarios.Common())
}

// one prints the entries of a scenario with all of their parameters.
func (w scenarioTable) one(name string) error {
	found := false
	for _, s := range scenarios.All() {
		if s.Name == name {
			w.scenario(s, s.AllParameters())
			found = true
		}
	}
	if !found {
		_, err := scenarios.Find(name, nil)
		return err
	}
	return nil
}

func (w scenarioTable) scenario(s scenarios.Scenario, parameters []scenarios.Parameter) {
	name := s.Name
	if len(s.Lacks(guest.Offers(record.ControlReplay, "vm"))) > 0 {
		name += " --kubeconfig"
	}
	fmt.Fprintf(w, "%s\t%s\n", name, s.Summary)
	w.parameters(parameters)
}

func (w scenarioTable) parameters(all []scenarios.Parameter) {
	for _, p := range all {
		fmt.Fprintf(w, "  %s=%s\t%s\n", p.Key, p.Default, p.Help)
	}
}

func buildCommand() *cobra.Command {
	b := &build.Builder{}
	cmd := &cobra.Command{
		Use: "build NAME@VERSION... | control-plane | guest-tools", Short: "Build upstream programs from their modules into the cache, or download them",
		Long: `Build upstream programs from their modules into the cache, and print their files. With --programs released, download upstream's
release artifacts instead, and verify them by the published SHA-256 or SHA-512. A download that was interrupted continues. The variables
HITLESS_KUBERNETES_RELEASES (https://dl.k8s.io) and HITLESS_ETCD_RELEASES (https://github.com/etcd-io/etcd/releases/download) name mirrors;
HTTPS_PROXY, HTTP_PROXY and NO_PROXY name a proxy.

guest-tools are iptables, ipset, conntrack, nft, haproxy, a shell and coreutils for guests: pinned packages of Debian. The mirror is the one
in this machine's package lists; ` + debian.MirrorVariable + ` names another one, as http://… or file:///….

A run gets all that it needs by itself. These commands get it before, for a run without a network.`,
		Example: "  hitless build kube-proxy@v1.26.0\n  hitless build control-plane guest-tools\n  hitless build kube-proxy@v1.37.1 --programs released",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			targets, withTools, err := buildTargets(args)
			if err != nil {
				return err
			}
			dir, err := cache.Dir()
			if err != nil {
				return err
			}
			if withTools {
				if err := buildTools(cmd, dir); err != nil {
					return err
				}
			}
			b.Cache, b.Progress = filepath.Join(dir, "build"), func(s build.Step) { fmt.Fprintln(cmd.ErrOrStderr(), s.Text) }
			binaries, err := b.Build(cmd.Context(), targets...)
			for _, binary := range binaries {
				fmt.Fprintf(cmd.OutOrStdout(), "%s@%s\t%s\n", binary.Target.Name, binary.Target.Version, binary.Path)
				for _, note := range binary.Notes {
					fmt.Fprintf(cmd.OutOrStdout(), "\t%s\n", note)
				}
			}
			return err
		},
	}
	programsFlag(cmd.Flags(), &b.Programs)
	cmd.AddCommand(buildGuestCommand())
	return cmd
}

const guestTools = "guest-tools"

// buildTargets are the programs that arguments name, and whether they name the guest's tools too.
func buildTargets(args []string) (targets []build.Target, withTools bool, err error) {
	for _, arg := range args {
		switch arg {
		case "control-plane":
			targets = append(targets, build.ControlPlane...)
		case guestTools:
			withTools = true
		default:
			t, err := build.ParseTarget(arg)
			if err != nil {
				return nil, false, err
			}
			targets = append(targets, t)
		}
	}
	return targets, withTools, nil
}

// buildTools gets the guest's tools and prints their packages.
func buildTools(cmd *cobra.Command, dir string) error {
	set, err := tools.Fetch(cmd.Context(), site.ToolsDir(dir), tools.ForGuests, func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) })
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s\t%s\n", guestTools, set.Root())
	for _, p := range set.Packages {
		fmt.Fprintf(cmd.OutOrStdout(), "\t%s\n", p)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "\tsha256 %s\n", record.ToolsDigest(set.Packages))
	return nil
}

func buildGuestCommand() *cobra.Command {
	var o run.Options
	var set []string
	cmd := &cobra.Command{
		Use: "guest [SCENARIO]", Short: "Get all that a run in a VM needs, and print the digests of what it boots",
		Long: `Get all that a run of the scenario (default rollout) in a VM needs: kernel, control plane, subject and tools. Pack them, boot nothing,
and print the digests. A run with the same options boots these bytes, on every machine where the digests are the same.`,
		Example: "  hitless build guest --subject kube-proxy@v1.37.1/ipvs --controlplane replay",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := fill(&o, cmd, append(args, "rollout")[0], set); err != nil {
				return err
			}
			packed, err := run.PackGuest(cmd.Context(), o)
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			fmt.Fprintf(w, "kernel\t%s\t%s\nfiles that boot\t%s\t%s\nother files\t%s\t%s\n", packed.Kernel.Sha256, packed.Kernel.Package,
				packed.Boot.Sha256, packed.Boot.File, packed.Files.Sha256, packed.Files.File)
			for _, p := range packed.Tools {
				fmt.Fprintf(w, "tools\t%s\n", p)
			}
			return nil
		},
	}
	f := cmd.Flags()
	subjectFlag(f, &o)
	guestKernelFlag(f, &o)
	f.StringVar(&o.ControlPlane, "controlplane", record.ControlKube, "kube (real Kubernetes programs) or replay (small stand-in)")
	flags.Words(f, "controlplane", record.ControlKube, record.ControlReplay)
	programsFlags(f, &o)
	setFlag(f, &set)
	return cmd
}

func subjectsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "subjects", Short: "List the subjects, and which of them this machine can test", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, built, err := run.Subjects(cmd.Context())
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "SUBJECT\tHERE\tVERSIONS\tNOTE")
			for _, s := range all {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.Subject, map[bool]string{true: "yes", false: "no"}[s.OK], s.Versions, s.Text)
			}
			if err := w.Flush(); err != nil {
				return err
			}
			fmt.Fprintln(w, "\nAny version of kube-proxy within its range is built on first use. Built here:")
			fmt.Fprintln(w, "VERSION\tMODES\tTERMINATING FALLBACK")
			for _, b := range built {
				fmt.Fprintf(w, "%s\t%s\t%s\n", b.Version, strings.Join(b.Modes, " "), b.Fallback)
			}
			if len(built) == 0 {
				fmt.Fprintln(w, "none yet")
			}
			return w.Flush()
		},
	}
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version and the program's sha256, which is an input of runs", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printVersion(cmd.Context(), cmd.OutOrStdout())
		},
	}
}

// printVersion prints the version, the revision if the build has one, the Go version, and the sha256 of the program without its version.
func printVersion(ctx context.Context, out io.Writer) error {
	sum, err := version.OwnSum(ctx)
	if err != nil {
		return fmt.Errorf("reading the running program: %w", err)
	}
	_, err = fmt.Fprintf(out, "hitless %s sha256 %s\n", version.String(), sum)
	return err
}

func schemaCommand() *cobra.Command {
	schemas := map[string][]byte{"report": analysis.Schema, "compare": compare.Schema, "conformance": conformance.Schema}
	names := slices.Sorted(maps.Keys(schemas))
	return &cobra.Command{
		Use: "schema [report|compare|conformance]", Short: "Print the JSON Schema of report.json, compare.json or conformance.yaml", Args: cobra.MaximumNArgs(1),
		Long: `Print the JSON Schema (2020-12) of report.json, compare.json or conformance.yaml. Times are seconds from the start of the run; other
units stand in the fields' names or in their descriptions. A field is never taken away or given another meaning without
another schemaVersion.`,
		ValidArgs: names,
		RunE: func(cmd *cobra.Command, args []string) error {
			schema, known := schemas["report"], true
			if len(args) == 1 {
				schema, known = schemas[args[0]]
			}
			if !known {
				return fmt.Errorf("there is no schema %q; there are %s", args[0], strings.Join(names, ", "))
			}
			_, err := cmd.OutOrStdout().Write(schema)
			return err
		},
	}
}
