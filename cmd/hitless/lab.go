//go:build linux

package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/internal/flags"
	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/lab"
	_ "github.com/hitless/hitless/lab/backend/early" // handles the command `backend`
	"github.com/hitless/hitless/lab/compile"
	"github.com/hitless/hitless/lab/host"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/proxier"
	"github.com/hitless/hitless/record"
)

// initGuest is the first process of a VM.
func initGuest() {
	if os.Getpid() == 1 && os.Args[0] == "/init" { // the kernel passes unknown words to init
		vm.Init(guest.Program, "guest")
	}
}

// linuxCommands need Linux: each has a line in its place on other systems.
func linuxCommands() []*cobra.Command {
	return []*cobra.Command{labCommand(), proxier.Command(), guestCommand()}
}

func labCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "lab", Short: "A lab as a cluster for other programs"}
	cmd.AddCommand(labUpCommand(), labShellCommand())
	return cmd
}

const labKubeconfig = "out/lab.kubeconfig"

func labUpCommand() *cobra.Command {
	var o run.Options
	var set []string
	var standing run.Standing
	cmd := &cobra.Command{
		Use: "up", Short: "Bring a lab up for other programs, until Ctrl-C",
		Long: `Bring a lab up and keep it until Ctrl-C: nodes, pods, a load balancer and a real control plane, as a cluster
for other programs. Its kubeconfig is written to a file; the API answers on this machine's loopback. The external addresses of its
Services are in the lab's network: ` + "`hitless lab shell`" + ` runs a program there.

The lab is in namespaces of this machine's kernel. With --kernel vm it is in a VM, which can run proxies in mode ipvs too, and the
bundled one. The VM has the real clock, as other programs do: unlike a run in a VM, such a lab is not the same each time. It is also
many times slower.

The proxies are programs, or with --proxy-daemonset the pods of the DaemonSet kube-system/kube-proxy, as in most clusters. Then
the scenarios restart and upgrade work on this lab; --proxy-image adds a version to upgrade to.

Nothing of this machine is changed, and nothing is left behind. Root is not needed where user namespaces are allowed.`,
		Example: `  hitless lab up --subject kube-proxy@v1.25.3/iptables
  # in another terminal, when the first one says that the lab is up:
  hitless lab shell -- hitless run rollout --kubeconfig ` + labKubeconfig + `

  hitless lab up --kernel vm --subject bundled --images

  hitless lab up --subject kube-proxy@v1.36.1/nftables --proxy-daemonset --proxy-image kube-proxy@v1.37.1
  # in another terminal, when the first one says that the lab is up:
  hitless lab shell -- hitless run upgrade --kubeconfig ` + labKubeconfig + ` --set proxy=kube-system/ds/kube-proxy \
    --set image=` + lab.ProxyImage("v1.37.1") + ` --allow-disruption`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fill(&o, cmd, "", set); err != nil {
				return err
			}
			standing.Up = func() {
				fmt.Fprintf(cmd.OutOrStdout(), "the lab is up: %s; Ctrl-C ends it\n", standing.File)
			}
			return run.Lab(cmd.Context(), o, standing)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Subject, "subject", "kube-proxy@v1.37.1/nftables", "proxy of the lab, a `SUBJECT`; hitless subjects lists them")
	f.StringVar(&o.ControlPlane, "controlplane", record.ControlKube, "kube (real Kubernetes programs) or replay (small stand-in)")
	f.StringVar(&o.Kernel, "kernel", "host", "where the lab runs: host (namespaces of this machine's kernel) or vm (with the real clock)")
	guestKernelFlag(f, &o)
	flags.Words(f, "controlplane", record.ControlKube, record.ControlReplay)
	flags.Words(f, "kernel", "host", "vm")
	f.IntVar(&o.Nodes, "nodes", 3, "nodes of the lab, 1 to 50")
	f.StringArrayVar(&set, "set", nil, "a parameter of the lab, `KEY=VALUE`: those that every scenario has")
	programsFlags(f, &o)
	f.BoolVar(&standing.DaemonSet, "proxy-daemonset", false, "run the subject, a kube-proxy, in the pods of the DaemonSet kube-system/kube-proxy")
	f.StringArrayVar(&standing.ProxyImages, "proxy-image", nil, "`KUBE-PROXY@VERSION` that these pods can run too, such as kube-proxy@v1.36.1; again for another")
	f.BoolVar(&standing.Images, "images", false, "pods run the programs of their images, with files, DNS, logs and exec; for e2e suites")
	f.StringVar(&standing.File, "kubeconfig", labKubeconfig, "`FILE` to write the lab's kubeconfig to: a new one, or that of an earlier lab")
	return cmd
}

func labShellCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "shell [-- COMMAND...]", Short: "Run a program, or a shell, in the network of a lab's client",
		Long: `Run a program, or a shell, in the network of a lab's client: in its network, where the external addresses of the lab's
Services are, and with everything else of this machine. It needs nsenter (util-linux).`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{cmp.Or(os.Getenv("SHELL"), "/bin/sh")}
			}
			words, err := run.LabShell(cmd.Context(), file, args)
			if err != nil {
				return err
			}
			path, err := exec.LookPath(words[0])
			if err != nil {
				return fmt.Errorf("entering the lab's network: %w; `apt-get install util-linux` installs nsenter", err)
			}
			if err := unix.Exec(path, words, os.Environ()); err != nil {
				return fmt.Errorf("starting %s: %w", path, err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "kubeconfig", labKubeconfig, "the lab's kubeconfig, a `FILE` that `hitless lab up` wrote")
	return cmd
}

// guestCommand runs in the guest: in a VM as the child of the first process, on the host as the first process (guest init) and as its
// child (guest host). Beside a VM it is the process of a network namespace (guest outside).
func guestCommand() *cobra.Command {
	first := &cobra.Command{Use: "init", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return host.Init(guest.Program, "guest", "host") }}
	onHost := &cobra.Command{Use: "host", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return guest.HostMain() }}
	outside := &cobra.Command{Use: "outside", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return host.OutsideMain() }}
	c := hidden(&cobra.Command{Use: "guest", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return guest.Main() }})
	// A proxy calls it as clang, with clang's flags.
	clang := &cobra.Command{Use: "clang", DisableFlagParsing: true, Run: func(_ *cobra.Command, args []string) {
		os.Exit(compile.Main(args, guest.NodeFiles, vm.Call, os.Stdout, os.Stderr))
	}}
	ask := &cobra.Command{Use: "ask SOCKET", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return guest.Ask(args[0]) }}
	reach := &cobra.Command{Use: "reach NETWORK ADDRESS", Args: cobra.ExactArgs(2), SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error { return guest.Reach(cmd.Context(), args[0], args[1]) }}
	c.AddCommand(first, onHost, outside, clang, ask, reach)
	return c
}
