package subject

import (
	"fmt"
	"os/exec"
	"slices"

	"github.com/hitless/hitless/lab/topology"
)

// needsChains tells the subjects that want chains of the kubelet of their era.
func needsChains(p Program) bool {
	return p.Spec.Name == "kube-proxy" && p.Spec.Mode != "nftables" && p.Spec.minor() <= 24
}

// prepare gives a node what the era of its subjects expects of it.
//
// Up to 1.24 the kubelet made the chains KUBE-MARK-DROP (nat) and KUBE-FIREWALL (filter), and kube-proxy's rules jump to
// them; without them every sync fails half-way and looks like a bug of the proxy.
func prepare(programs []Program, node *topology.Node) error {
	if !slices.ContainsFunc(programs, needsChains) {
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
		err := node.Do(func() error {
			if out, err := exec.Command("iptables", rule...).CombinedOutput(); err != nil {
				return fmt.Errorf("iptables %v: %w: %s", rule, err, out)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
