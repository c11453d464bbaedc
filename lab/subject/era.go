package subject

import (
	"fmt"
	"os/exec"

	"github.com/hitless/hitless/lab/topology"
)

// prepare gives a node what the subject's era expects of it.
//
// Up to 1.24 the kubelet made the chains KUBE-MARK-DROP (nat) and KUBE-FIREWALL (filter), and kube-proxy's rules jump to
// them; without them every sync fails half-way and looks like a bug of the proxy.
func prepare(s Spec, node *topology.Node) error {
	if s.Name != "kube-proxy" || s.Mode == "nftables" || s.minor() > 24 {
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
