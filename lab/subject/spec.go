// Package subject runs the proxy under test, one on each node of the lab: the bundled proxier, any kube-proxy, or a
// program that a file describes. It does not judge the proxy.
package subject

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hitless/hitless/record"
)

// Spec identifies a subject.
type Spec struct {
	Name    string // bundled, kube-proxy, or the name of an Exec
	Version string // v1.26.0; empty for the bundled proxier
	Mode    string // one of Modes; any word for an Exec
	Flags   string // of a built proxy, as NAME=VALUE&NAME=VALUE in order of the names; empty for none
	Exec    *Exec  // the content of a describing file, or what hitless describes as such; nil for the others
}

// KubeProxy is the name of Kubernetes' own proxy.
const KubeProxy = "kube-proxy"

// Bundled is the bundled proxier.
var Bundled = Spec{Name: "bundled", Mode: "ipvs"}

var kubeProxyForm = regexp.MustCompile(`^kube-proxy@(` + releaseForm + `)/(` + strings.Join(Modes(), "|") + `)(?:\?(.*))?$`)

// execPrefix leads the name of a file that describes a subject.
const execPrefix = "exec:"

// Parse is Read without an end of its context.
func Parse(text string) (Spec, error) { return Read(context.Background(), text) }

// Read reads the name of a subject on the command line, and the file of exec:FILE until ctx ends.
func Read(ctx context.Context, text string) (Spec, error) {
	if text == "bundled" {
		return Bundled, nil
	}
	if file, is := strings.CutPrefix(text, execPrefix); is {
		e, err := ReadExec(ctx, file)
		return FromExec(e), err
	}
	if s, is, err := readDataPlane(text); is {
		return s, err
	}
	m := kubeProxyForm.FindStringSubmatch(text)
	if m == nil {
		if rest, is := strings.CutPrefix(text, KubeProxy); is {
			return Spec{}, kubeProxyError(text, rest)
		}
		return Spec{}, fmt.Errorf("unknown subject %q; the subjects are bundled, exec:FILE, cilium@VERSION and kube-proxy@VERSION/MODE, "+
			"such as kube-proxy@v1.26.0/iptables or kube-proxy@v1.37.1/ipvs?ipvs-strict-arp=true, with a version from v1.11 on and a mode of %s", text, strings.Join(Modes(), ", "))
	}
	s := Spec{Name: KubeProxy, Version: m[1], Mode: m[2]}
	if strings.Contains(text, "?") {
		flags, err := parseFlags(m[3], ownedFlags)
		if err != nil {
			return Spec{}, fmt.Errorf("subject %q: %w", text, err)
		}
		s.Flags = flags
	}
	if s.minor() < oldestBuilt {
		return Spec{}, fmt.Errorf("subject %q: versions from v1.11 on can be built", text)
	}
	if m := modeOf(s.Mode); !m.in(s.minor()) {
		return Spec{}, fmt.Errorf("subject %q: kube-proxy has %s", text, m.limit)
	}
	return s, nil
}

// releaseForm is the pattern of the version of a release of Kubernetes.
const releaseForm = `v1\.\d+\.\d+`

var release = regexp.MustCompile(`^` + releaseForm + `$`)

// kubeProxyError says what is wrong with a subject of kube-proxy; rest is its text after the name.
func kubeProxyError(text, rest string) error {
	version, mode, hasMode := strings.Cut(strings.TrimPrefix(rest, "@"), "/")
	mode, _, _ = strings.Cut(mode, "?")
	modes := strings.Join(Modes(), ", ")
	switch {
	case !strings.HasPrefix(rest, "@"):
		return fmt.Errorf("subject %q has no version; give kube-proxy@VERSION/MODE, such as kube-proxy@v1.37.1/ipvs, with a mode of %s", text, modes)
	case !release.MatchString(version):
		return fmt.Errorf("subject %q: %q is no release of Kubernetes; give v1.MINOR.PATCH, such as kube-proxy@v1.37.1/ipvs", text, version)
	case !hasMode:
		return fmt.Errorf("subject %q has no mode; give %s/MODE with a mode of %s", text, text, modes)
	}
	return fmt.Errorf("subject %q: kube-proxy has no mode %q; its modes are %s", text, mode, modes)
}

// oldestBuilt is the oldest minor version of Kubernetes whose kube-proxy can be built.
const oldestBuilt = 11

// mode is a mode of kube-proxy, with the minor versions of Kubernetes that have it.
type mode struct {
	name   string
	oldest int
	newest int    // 0 for no end
	limit  string // why other versions do not have it
}

// modes are in the order of their introduction. In mode userspace the process itself carries all connections.
var modes = []mode{
	{name: "userspace", oldest: oldestBuilt, newest: 25, limit: "no userspace mode since v1.26 (kubernetes#112133)"},
	{name: "iptables", oldest: oldestBuilt},
	{name: "ipvs", oldest: oldestBuilt},
	{name: "nftables", oldest: 29, limit: "the nftables mode since v1.29 (KEP-3866)"},
}

func (m mode) in(minor int) bool { return minor >= m.oldest && (m.newest == 0 || minor <= m.newest) }

// modeOf returns the mode with a name of Modes.
func modeOf(name string) mode {
	return modes[slices.IndexFunc(modes, func(m mode) bool { return m.name == name })]
}

// Modes returns the modes of kube-proxy in the order of their introduction.
func Modes() (names []string) {
	for _, m := range modes {
		names = append(names, m.name)
	}
	return names
}

// Oldest is the oldest release of kube-proxy that can be tested in a mode, such as v1.29.
func Oldest(mode string) string { return "v1." + strconv.Itoa(modeOf(mode).oldest) }

// Newest is the newest release of kube-proxy that can be tested in a mode, such as v1.25; newest is that of all modes.
func Newest(mode, newest string) string {
	if last := modeOf(mode).newest; last > 0 {
		return "v1." + strconv.Itoa(last)
	}
	return newest
}

// KubeProxies returns one subject for each mode that a version of kube-proxy has.
func KubeProxies(version string) []Spec {
	var all []Spec
	for _, m := range modes {
		if s := (Spec{Name: KubeProxy, Version: version, Mode: m.name}); m.in(s.minor()) {
			all = append(all, s)
		}
	}
	return all
}

// String is the form that Parse reads; for an Exec it has the name instead of the file, which is a path of the host.
func (s Spec) String() string {
	switch {
	case s.Exec != nil && s.Exec.Subject != "":
		return s.Exec.Subject
	case s.Exec != nil:
		return execPrefix + s.Name
	case s.Name == "bundled":
		return s.Name
	}
	text := s.Name + "@" + s.Version + "/" + s.Mode
	if s.Flags != "" {
		text += "?" + s.Flags
	}
	return text
}

// Tables are the tables that the subject programs: its mode, or the Tables of an Exec.
func (s Spec) Tables() string {
	if s.Exec != nil && s.Exec.Tables != "" {
		return s.Exec.Tables
	}
	return s.Mode
}

// Binary is the file name of a kube-proxy among the lab's programs.
func (s Spec) Binary() string { return s.Name + "-" + s.Version }

// minor is the minor version of Kubernetes, 0 for all but kube-proxy.
func (s Spec) minor() int {
	if s.Name != KubeProxy {
		return 0
	}
	parts := strings.Split(s.Version, ".")
	if len(parts) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(parts[1])
	return n
}

// Fallback reports whether the subject falls back to terminating endpoints by default (KEP-1669), and whether that is a setting.
func (s Spec) Fallback() (has, switchable bool) {
	switch minor := s.minor(); {
	case s.Exec != nil:
		return s.Exec.Fallback == "on", s.Exec.switchable()
	case s.Name == "bundled":
		return true, true
	case minor < 22: // the feature gate came with 1.22 (PR 97238)
		return false, false
	case minor < 28: // GA and locked in 1.28 (PR 117718)
		return minor >= 26, true
	default:
		return true, false
	}
}

// LackError says what a run needs and the subject does not offer.
type LackError struct{ Reason string }

// Error is the reason.
func (e *LackError) Error() string { return e.Reason }

// DualStack reports whether the subject serves both address families: kube-proxy by default since 1.21 (KEP-563). What hitless builds from a
// recipe serves IPv4 only.
func (s Spec) DualStack() bool {
	return s.Exec.RecipeOf() == nil && (s.Name != KubeProxy || s.minor() >= 21)
}

// CheckFamily returns a LackError when the subject does not serve a family.
func (s Spec) CheckFamily(f record.Family) error {
	if s.DualStack() || !slices.Contains(f.Each(), record.IPv6) {
		return nil
	}
	if s.Exec.RecipeOf() != nil {
		return &LackError{Reason: fmt.Sprintf("family=%s: hitless starts %s for IPv4 only; leave family out", f, s)}
	}
	return &LackError{Reason: fmt.Sprintf("family=%s: %s serves no IPv6 by default: kube-proxy does since v1.21 (KEP-563); leave family out, or take a newer version", f, s)}
}

// CheckPolicy returns a LackError when the subject does not serve an externalTrafficPolicy: Local or Cluster.
func (s Spec) CheckPolicy(policy string) error {
	if policy != "Local" || s.Exec != nil || s.Mode != "userspace" {
		return nil
	}
	return &LackError{Reason: fmt.Sprintf("trafficPolicy=Local: %s does not serve it: its nodes without a pod forward to other nodes, and no node has the health check of the Service; "+
		"give --set trafficPolicy=Cluster", s)}
}

// Args are the subject's flags. fallback is "on", "off" or "" for the version's default.
func (s Spec) Args(node, kubeconfig, fallback string) []string {
	if s.Name == "bundled" {
		return []string{"proxier", "--kubeconfig=" + kubeconfig, "--hostname-override=" + node,
			"--cluster-cidr=10.244.0.0/16", "--terminating-fallback=" + strconv.FormatBool(fallback != "off")}
	}
	args := []string{"--proxy-mode=" + s.Mode, "--kubeconfig=" + kubeconfig, "--hostname-override=" + node,
		"--cluster-cidr=10.244.0.0/16",
		// These settings are read-only outside the first network namespace, and kube-proxy ends when it cannot write them.
		"--conntrack-max-per-core=0", "--conntrack-min=0",
		"--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0"}
	has, switchable := s.Fallback()
	if want := fallback == "on"; switchable && fallback != "" && want != has {
		args = append(args, "--feature-gates="+fallbackGate+"="+strconv.FormatBool(want))
	}
	if s.Mode == "nftables" && s.minor() < 31 { // alpha in 1.29 and 1.30, and off (KEP-3866)
		args = append(args, "--feature-gates=NFTablesProxyMode=true")
	}
	return s.withFlags(args)
}

// DefaultFallback is the subject's default of terminatingFallback.
func (s Spec) DefaultFallback() string {
	if has, _ := s.Fallback(); has {
		return "on"
	}
	return "off"
}

// CheckFallback returns an error when the subject does not support terminatingFallback=value.
func (s Spec) CheckFallback(value string) error {
	has, switchable := s.Fallback()
	if switchable || (value == "on") == has {
		return nil
	}
	if s.Exec != nil {
		return fmt.Errorf("%s cannot honour terminatingFallback=%s: %s says that it is %s and has no {terminatingFallback} in args or env",
			s, value, s.Exec.Pack.Source, s.Exec.Fallback)
	}
	return fmt.Errorf("%s cannot honour terminatingFallback=%s: kube-proxy can switch it from v1.22 to v1.27 only "+
		"(feature gate ProxyTerminatingEndpoints); this version has it %s", s, value, s.DefaultFallback())
}
