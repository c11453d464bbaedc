package vm

import (
	"path/filepath"
	"strings"
)

// Modules are what the lab and its subjects need of a stock kernel that does not have it built in.
var Modules = []string{
	"virtio_pci", "veth", "bridge", "dummy", "br_netfilter", "af_packet", "sch_netem", "sch_fq_codel",
	"nf_conntrack", "nf_conntrack_netlink", "nf_nat", "nf_tables", "nft_ct", "nft_nat", "nft_chain_nat", "nft_masq", "nft_redir",
	"nft_hash", "nft_numgen", "nft_reject_ipv4", "nft_reject_ipv6", "nft_reject_inet", "nft_limit", "nft_log", "nft_fib_ipv4", "nft_fib_ipv6", "nft_fib_inet", "nft_compat",
	"ip_vs", "ip_vs_rr", "ip_vs_wrr", "ip_vs_lc", "ip_vs_sh", "ip_vs_mh",
	"ip_set", "ip_set_hash_ip", "ip_set_hash_net", "ip_set_hash_ipport", "ip_set_hash_ipportip", "ip_set_hash_ipportnet", "ip_set_bitmap_port",
	"ip_tables", "iptable_nat", "iptable_filter", "iptable_mangle",
	"xt_comment", "xt_conntrack", "xt_mark", "xt_MASQUERADE", "xt_nat", "xt_addrtype", "xt_set", "xt_statistic", "xt_multiport",
	"xt_tcpudp", "xt_recent", "xt_nfacct", "xt_ipvs", "ipt_REJECT", "ip6t_REJECT", "xt_REDIRECT", "xt_physdev",
	"tcp_diag", "udp_diag", // what sockets there are, for who looks
}

// AddModules puts the modules and the order in which to load them into the image. Names that this kernel lacks are
// left out and returned: a kernel may have them built in.
func (img *Image) AddModules(k Kernel, names ...string) (missing []string, err error) {
	var have []string
	for _, name := range names {
		if _, err := k.ModuleFiles(name); err != nil {
			missing = append(missing, name)
			continue
		}
		have = append(have, name)
	}
	files, err := k.ModuleFiles(have...)
	if err != nil {
		return nil, err
	}
	var list strings.Builder
	for _, file := range files {
		guest := "/usr/lib/modules/" + filepath.Base(file)
		img.Add(guest, file, 0o644)
		list.WriteString(guest + "\n")
	}
	img.Text(ModuleList, list.String())
	// kube-proxy up to 1.12 leaves IPVS mode unless it knows this module, which is gone since Linux 4.19.
	img.Text("/usr/lib/modules/"+k.Release+"/modules.builtin", "kernel/net/ipv4/netfilter/nf_conntrack_ipv4.ko\n")
	return missing, nil
}
