package site

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/scenarios"
)

// guestKernel returns the kernel that the guest boots. The error lists all that it lacks. Every error is a UsageError.
func (l *lab) guestKernel(ctx context.Context) (vm.Kernel, error) {
	choice, err := vm.ParseKernelChoice(l.GuestKernel)
	if err != nil {
		return vm.Kernel{}, Usagef("--guest-kernel: %w", err)
	}
	kernel, err := vm.FetchKernel(ctx, choice, filepath.Join(l.Cache, "kernel"), l.message)
	if err != nil {
		return kernel, UsageError{Reason: err}
	}
	needed, err := l.features()
	if err != nil {
		return kernel, UsageError{Reason: err}
	}
	lacking, err := kernel.Lacks(needed)
	if err != nil {
		return kernel, err
	}
	if len(lacking) > 0 {
		return kernel, Usagef("the guest's kernel %s (--guest-kernel %s) lacks what this run needs:\n  %s\ngive a kernel that has it",
			kernel.Release, choice, strings.Join(lacking, "\n  "))
	}
	return kernel, nil
}

// CheckGuestKernel refuses a VM whose kernel cannot be had or lacks what the run needs. It builds nothing.
func CheckGuestKernel(ctx context.Context, s Site) error {
	v, is := s.(*VM)
	if !is {
		return nil
	}
	_, err := v.guestKernel(ctx)
	return err
}

// labFeatures are what every lab needs of its kernel.
var labFeatures = []vm.Feature{
	{Name: "nodes in network namespaces", Modules: []string{"veth", "bridge"}},
	{Name: "a control group for each node", Since: "5.7"}, // CLONE_INTO_CGROUP
	{Name: "connection tracking", Modules: []string{"nf_conntrack", "nf_conntrack_netlink"}},
	{Name: "NAT and the load balancer, by nftables", Modules: []string{"nf_tables", "nft_ct", "nf_nat", "nft_chain_nat", "nft_nat", "nft_masq", "nft_hash"}},
}

// The features of proxies.
var (
	ipvsFeatures = []vm.Feature{
		{Name: "IPVS", Modules: []string{"ip_vs"}},
		{Name: "IPVS with the scheduler rr", Modules: []string{"ip_vs_rr"}},
		{Name: "a network interface for the addresses of Services", Modules: []string{"dummy"}},
	}
	setFeature = vm.Feature{Name: "sets of addresses (ipset)", Modules: []string{"ip_set", "xt_set", "ip_set_hash_ip", "ip_set_hash_net",
		"ip_set_hash_ipport", "ip_set_hash_ipportip", "ip_set_hash_ipportnet", "ip_set_bitmap_port"}}
	iptablesFeature = vm.Feature{Name: "the rules of iptables-nft", Modules: []string{"nft_compat", "xt_comment", "xt_conntrack", "xt_mark", "xt_MASQUERADE",
		"xt_nat", "xt_addrtype", "xt_statistic", "xt_tcpudp"}}
	nftablesFeature = vm.Feature{Name: "the rules of kube-proxy in mode nftables", Modules: []string{"nft_numgen", "nft_fib_ipv4", "nft_reject_inet"}}
)

// nftablesCheck is the first minor of kube-proxy whose mode nftables refuses kernels before 5.13.
const nftablesCheck = 33

// features are what the run needs of its kernel. What a described proxy needs is known by its mode and its modules.
func (l *lab) features() ([]vm.Feature, error) {
	all := slices.Clone(labFeatures)
	if !l.plan.NeedsSubjects() {
		return all, nil
	}
	proxies, err := l.proxies()
	if err != nil {
		return nil, err
	}
	for _, p := range proxies {
		all = append(all, featuresOf(p)...)
	}
	if e := l.plan.Exec; e != nil && len(e.Modules) > 0 {
		all = append(all, vm.Feature{Name: "modules: of " + filepath.Base(e.Pack.Source), Modules: e.Modules})
	}
	for _, family := range scenarios.Params(l.plan.Parameters).Family().Each() {
		all = append(all, vm.Feature{Name: "refused connections over " + family.API(), Modules: []string{"nft_reject_" + string(family)}})
	}
	return all, nil
}

// featuresOf are what a proxy needs of its kernel.
func featuresOf(p subject.Spec) (all []vm.Feature) {
	kube := p.Name == subject.KubeProxy
	switch p.Mode {
	case "ipvs":
		all = append(all, ipvsFeatures...)
		if _, scheduler, named := strings.Cut(p.Flags, "ipvs-scheduler="); kube && named {
			scheduler, _, _ = strings.Cut(scheduler, "&")
			all = append(all, vm.Feature{Name: "IPVS with the scheduler " + scheduler, Modules: []string{"ip_vs_" + scheduler}})
		}
		if kube {
			all = append(all, setFeature, iptablesFeature)
		}
	case "iptables", "userspace":
		all = append(all, iptablesFeature)
	case "nftables":
		if !kube {
			break
		}
		all = append(all, nftablesFeature)
		if minorOf(p.Version) >= nftablesCheck {
			all = append(all, vm.Feature{Name: fmt.Sprintf("%s, which refuses older kernels", p), Since: "5.13"})
		}
	}
	return all
}

// minorOf is 37 of v1.37.1; 0 if the version has none.
func minorOf(version string) int {
	parts := strings.Split(version, ".")
	if len(parts) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(parts[1])
	return n
}
