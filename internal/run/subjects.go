package run

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/build"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/vm"
)

// Testable reports whether this machine can test a kind of subject.
type Testable struct {
	Subject  string // as --subject takes it, with placeholders in capitals
	OK       bool
	Versions string
	Text     string // a note, or what is missing and how to install it
}

// BuiltProxy is a kube-proxy in the cache.
type BuiltProxy struct {
	Version  string
	Modes    []string
	Fallback string // its terminatingFallback
}

// machine is what subjects need of this machine.
type machine struct {
	has   func(program string) bool
	built func() ([]build.Target, error) // versions of kube-proxy in the cache
	guest error                          // why there is no program for guests
}

// Subjects returns the kinds of subjects with their requirements, and the kube-proxies in the cache.
func Subjects(ctx context.Context) ([]Testable, []BuiltProxy, error) {
	dir, err := cache.Dir()
	if err != nil {
		return nil, nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	m := machine{has: installed, guest: site.GuestProgram(program), built: func() ([]build.Target, error) {
		return (&build.Builder{Cache: filepath.Join(dir, "build")}).CachedAll(ctx, subject.KubeProxy)
	}}
	return m.subjects()
}

var vmNeeds = requirementsOf(vm.QEMU, "apt-get")

// missing names the missing programs and the command that installs them; it is empty if nothing is missing.
func (m machine) missing(needs []requirement) string {
	var programs, packages []string
	for _, n := range needs {
		if !m.has(n.program) {
			programs, packages = append(programs, n.program), append(packages, n.packageName)
		}
	}
	if len(programs) == 0 {
		return ""
	}
	return fmt.Sprintf("missing: %s; `apt-get install %s` installs it", strings.Join(programs, ", "), strings.Join(packages, " "))
}

func (m machine) subjects() ([]Testable, []BuiltProxy, error) {
	targets, err := m.built()
	if err != nil {
		return nil, nil, err
	}
	lab := m.missing(vmNeeds)
	if lab == "" && m.guest != nil {
		lab = m.guest.Error()
	}
	row := func(name, versions, why, text string) Testable {
		return Testable{name, why == "", versions, cmp.Or(why, text)}
	}
	const ipvs = "IPVS is the guest kernel's; this machine's own kernel need not have it"
	all := []Testable{row("bundled", "this program", lab, "the IPVS proxier that comes with hitless; "+ipvs)}
	proxy := lab
	if proxy == "" && len(targets) == 0 && !m.has("go") {
		proxy = "no kube-proxy is built, and go, which builds them, is missing; install Go 1.26 or later, or use --programs released"
	}
	for _, mode := range subject.Modes() {
		why, text := proxy, map[string]string{"userspace": "the process itself carries the connections; needs --set trafficPolicy=Cluster", "ipvs": ipvs, "nftables": "also with --kernel host",
			"iptables": "as iptables-nft, the nft variant of iptables; also with --kernel host"}[mode]
		if lab != "" && strings.Contains(text, "--kernel host") {
			why += "; --kernel host needs no virtual machine"
		}
		all = append(all, row("kube-proxy@VERSION/"+mode, subject.Oldest(mode)+" to "+subject.Newest(mode, newest()), why, text))
	}
	for _, s := range subject.DataPlanes() {
		why := lab
		if why == "" && !m.has("go") {
			why = "go, which builds it, is missing; install Go 1.26 or later"
		}
		all = append(all, row(s.String(), s.Version, why, "built from its Go module, in a virtual machine only: docs/subjects.md#cilium"))
	}
	all = append(all,
		row("exec:FILE", "any", lab, "any other proxy, described by a YAML file: docs/subjects.md"),
		row("cluster", "-", "not a subject of the lab; hitless run SCENARIO --kubeconfig FILE tests the proxy of a live cluster", ""))
	var built []BuiltProxy
	for _, t := range targets {
		built = append(built, builtProxy(t.Version))
	}
	return all, built, nil
}

// newest is the newest release of kube-proxy that is known to build.
func newest() string {
	for _, r := range build.Versions() {
		if r.Name == subject.KubeProxy {
			return r.Newest
		}
	}
	return ""
}

func builtProxy(version string) BuiltProxy {
	b := BuiltProxy{Version: version}
	for _, s := range subject.KubeProxies(version) {
		b.Modes = append(b.Modes, s.Mode)
		b.Fallback = s.DefaultFallback()
		if _, switchable := s.Fallback(); switchable {
			b.Fallback += ", can be switched"
		}
	}
	return b
}
