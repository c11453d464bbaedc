package site

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/vm"
)

// The needed kernel features are those of all proxies of a run, including the proxies that a scenario changes to.
func TestFeaturesOfRuns(t *testing.T) {
	for _, c := range []struct {
		subject, next string
		family        string
		needs, spares []string
	}{
		{"bundled", "", "ipv4", []string{"veth", "nf_tables", "ip_vs", "ip_vs_rr", "dummy", "nft_reject_ipv4"}, []string{"ip_set", "nft_compat", "nft_reject_ipv6"}},
		{"bundled", "", "dual", []string{"nft_reject_ipv4", "nft_reject_ipv6"}, nil},
		{"kube-proxy@v1.25.3/iptables", "", "ipv4", []string{"nft_compat", "xt_MASQUERADE"}, []string{"ip_vs", "nft_numgen"}},
		{"kube-proxy@v1.25.3/iptables", "bundled", "ipv4", []string{"nft_compat", "ip_vs"}, nil},
		{"kube-proxy@v1.37.1/ipvs", "", "ipv4", []string{"ip_vs", "xt_set", "ip_set_hash_ip"}, []string{"nft_numgen", "ip_vs_sh"}},
		{"kube-proxy@v1.37.1/ipvs?ipvs-scheduler=sh", "", "ipv4", []string{"ip_vs_sh"}, nil},
		{"kube-proxy@v1.37.1/nftables", "", "ipv4", []string{"nft_numgen", "since 5.13"}, []string{"ip_vs", "nft_compat"}},
		{"kube-proxy@v1.30.14/nftables", "", "ipv4", []string{"nft_numgen"}, []string{"since 5.13"}},
	} {
		spec, err := subject.Parse(c.subject)
		if err != nil {
			t.Fatal(err)
		}
		l := &lab{plan: guest.Plan{Scenario: "rollout", Parameters: map[string]string{"family": c.family}}, spec: spec}
		if c.next != "" {
			l.plan.Next = &guest.Next{Subject: c.next}
		}
		features, err := l.features()
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, f := range features {
			all = append(all, f.Modules...)
			if f.Since != "" {
				all = append(all, "since "+f.Since)
			}
		}
		for _, name := range c.needs {
			if !slices.Contains(all, name) {
				t.Errorf("%s to %q with %s does not need %s: %q", c.subject, c.next, c.family, name, all)
			}
		}
		for _, name := range c.spares {
			if slices.Contains(all, name) {
				t.Errorf("%s to %q with %s needs %s", c.subject, c.next, c.family, name)
			}
		}
	}
}

// The modules of a subject's file are loaded by the guest, and a kernel that lacks one is refused with its name.
func TestModulesOfADescribedProxy(t *testing.T) {
	dir := describe(t, map[string]string{"proxy": "#!/bin/sh\n", "subject.yaml": "program: proxy\n" + ready + "modules: [cls-bpf, no_such_module]\n"})
	spec, err := subject.Parse("exec:" + filepath.Join(dir, "subject.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{plan: guest.Plan{Scenario: "rollout", Exec: spec.Exec}, spec: spec}
	if got := l.plan.Modules(); !slices.Equal(got, []string{"cls_bpf", "no_such_module"}) {
		t.Errorf("the guest loads %v", got)
	}
	features, err := l.features()
	if err != nil {
		t.Fatal(err)
	}
	lacking, err := vm.Kernel{}.Lacks(features[len(features)-2:])
	if err != nil || !slices.Contains(lacking, "modules: of subject.yaml: modules cls_bpf, no_such_module") {
		t.Errorf("%v, a kernel without modules lacks %q", err, lacking)
	}
}
