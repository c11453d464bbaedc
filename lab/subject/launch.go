//go:build linux

package subject

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/hitless/hitless/lab/procs"
	"github.com/hitless/hitless/lab/topology"
)

// processSpec is the process of the subject on a node.
func (f *Fleet) processSpec(node *topology.Node) (procs.Spec, error) {
	run := f.program(node.Name)
	start := procs.Spec{
		Name: logName(node.Name), Path: run.Path,
		// As on a node with several cores, so that races between goroutines can occur on the single CPU of the guest.
		Env: slices.Concat([]string{"GOMAXPROCS=4"}, f.cfg.Env),
	}
	e := run.Spec.Exec
	if e == nil {
		start.Args = run.Spec.Args(node.Name, f.cfg.Kubeconfig, run.Fallback)
		if f.cfg.ClusterCIDR != "" && f.cfg.ClusterCIDR != topology.ClusterCIDR.String() {
			start.Args = replaceFlags(start.Args, []string{"--cluster-cidr=" + f.cfg.ClusterCIDR})
		}
		start.Args = replaceFlags(start.Args, f.cfg.Flags)
		return start, nil
	}
	values, err := f.placeholderValues(node)
	if err != nil {
		return start, err
	}
	start.Path, start.Args = e.Program, expandAll(e.Args, values)
	start.Env, start.TimerSlack = slices.Concat(start.Env, expandAll(e.Env, values)), e.TimerSlack
	return start, nil
}

// placeholderValues are the values of the placeholders on a node.
func (f *Fleet) placeholderValues(node *topology.Node) (map[string]string, error) {
	run := f.program(node.Name)
	config, err := clientcmd.BuildConfigFromFlags("", f.cfg.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig for %s: %w", run.Spec, err)
	}
	return map[string]string{"program": run.Spec.Exec.Program, "node": node.Name, "nodeIP": joined(node.Addrs()),
		"podCIDR": joined(node.PodCIDRs()), "clusterCIDR": cmp.Or(f.cfg.ClusterCIDR, topology.ClusterCIDR.String()), "kubeconfig": f.cfg.Kubeconfig,
		"devices": strings.Join(f.devices(), ","), "nodeDevice": f.devices()[0],
		"server": config.Host, "terminatingFallback": run.Fallback, "terminatingFallbackBool": strconv.FormatBool(run.Fallback == "on")}, nil
}

// devices are those of Config.Devices, or that of the lab's nodes.
func (f *Fleet) devices() []string {
	if len(f.cfg.Devices) > 0 {
		return f.cfg.Devices
	}
	return []string{topology.FabricInterface}
}

// joined are the values of the families, separated by commas.
func joined[T fmt.Stringer](values []T) string {
	var all []string
	for _, v := range values {
		all = append(all, v.String())
	}
	return strings.Join(all, ",")
}

// checkExecReady returns the reason why a proxy of a file is not ready; nil when it is.
func (f *Fleet) checkExecReady(ctx context.Context, node *topology.Node) error {
	ready := f.spec(node.Name).Exec.Ready
	if len(ready.Command) > 0 {
		start, err := f.commandSpec(node, "ready", ready.Command)
		if err != nil {
			return err
		}
		return f.runCommand(ctx, node, start)
	}
	values, err := f.placeholderValues(node)
	if err != nil {
		return err
	}
	_, err = get(ctx, node, expand(ready.URL, values))
	return err
}

// stopSignal returns the signal that stops the subject and the time before SIGKILL.
func (s Spec) stopSignal() (syscall.Signal, time.Duration) {
	if s.Exec == nil {
		return syscall.SIGTERM, 30 * time.Second
	}
	return signalOf(s.Exec.Stop.Signal), s.Exec.Stop.Within
}

// needsKubeletChains reports whether a subject expects iptables chains that the kubelet of its version made.
func needsKubeletChains(p Program) bool {
	return p.Spec.Name == KubeProxy && p.Spec.Mode != "nftables" && p.Spec.minor() <= 24
}

// prepare mounts what the file of a proxy mounts, and makes the programs of proxies that can be blocked. It also makes the chains
// KUBE-MARK-DROP (nat) and KUBE-FIREWALL (filter) of kubelets up to 1.24: without them each sync of kube-proxy would fail halfway.
func prepare(programs []Program, node *topology.Node) error {
	for _, p := range programs {
		if err := p.Spec.Exec.mountAll(node); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(programs, func(p Program) bool { return p.Spec.CheckBlock() == nil }) {
		if err := makePrograms(node); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(programs, needsKubeletChains) {
		return nil
	}
	for _, rule := range [][]string{
		{"-t", "nat", "-N", "KUBE-MARK-DROP"},
		{"-t", "nat", "-A", "KUBE-MARK-DROP", "-j", "MARK", "--or-mark", "0x8000"},
		{"-t", "filter", "-N", "KUBE-FIREWALL"},
		{"-t", "filter", "-A", "KUBE-FIREWALL", "-m", "mark", "--mark", "0x8000/0x8000", "-j", "DROP"},
		{"-t", "filter", "-I", "INPUT", "-j", "KUBE-FIREWALL"},
		{"-t", "filter", "-I", "OUTPUT", "-j", "KUBE-FIREWALL"},
	} {
		if _, err := runIn(context.Background(), node, "", append([]string{"iptables"}, rule...)...); err != nil {
			return err
		}
	}
	return nil
}

// mountAll mounts a described proxy's file systems on a node.
func (e *Exec) mountAll(node *topology.Node) error {
	if e == nil {
		return nil
	}
	for _, m := range e.Mounts {
		kind := m.Kind
		if kind == BPFFS {
			kind = "bpf" // its name in the kernel
		}
		if err := node.Mount(kind, m.At); err != nil {
			return fmt.Errorf("mounts: %w", err)
		}
	}
	return nil
}
