package proxier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/hitless/hitless/internal/flags"
	"github.com/hitless/hitless/proxier/engine"
	"github.com/hitless/hitless/proxier/kernel"
	"github.com/hitless/hitless/proxier/linux"
	"github.com/hitless/hitless/proxier/metrics"
	"github.com/hitless/hitless/proxier/watch"
)

// bundled is the name of this proxier in --from and --to.
const bundled = "bundled"

var kubeProxyModes = []string{"ipvs", "iptables", "nftables"}

// migration moves a node between kube-proxy and the bundled proxier. To drop as little as possible, it adds the new
// rules first, then removes the old ones, and then deletes conntrack entries of packets that neither has translated.
type migration struct {
	settings
	from, to string
	dryRun   bool

	out        io.Writer
	log        *slog.Logger
	kernel     kernel.Kernel
	linux      *linux.Kernel
	kubeProxy  *linux.KubeProxy
	stepNumber int
}

func migrateCommand() *cobra.Command {
	var m migration
	c := &cobra.Command{
		Use:   "migrate --from MODE --to MODE",
		Short: "Move this node from kube-proxy to this proxier, or back",
		Long: "Move this node from kube-proxy (ipvs, iptables or nftables) to this proxier (bundled), or back, in the order that\n" +
			"drops least, and remove all kernel state of the old proxy. The command stops and starts no programs.\n" +
			"To bundled: stop kube-proxy before, and start `hitless proxier` after it. Back: stop `hitless proxier` and start\n" +
			"kube-proxy before; it must serve already. --dry-run prints the plan and changes nothing.",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM, os.Interrupt)
			defer stop()
			if err := readConfig(m.config, c.Flags().Lookup); err != nil {
				return err
			}
			m.out = c.OutOrStdout()
			return m.run(ctx)
		},
	}
	m.flags(c)
	c.Flags().StringVar(&m.from, "from", "", "old proxy of this node: kube-proxy's mode ipvs, iptables or nftables, or bundled")
	c.Flags().StringVar(&m.to, "to", bundled, "new proxy of this node: bundled, or kube-proxy's mode ipvs, iptables or nftables")
	flags.Words(c.Flags(), "from", append([]string{bundled}, kubeProxyModes...)...)
	flags.Words(c.Flags(), "to", append([]string{bundled}, kubeProxyModes...)...)
	c.Flags().BoolVar(&m.dryRun, "dry-run", false, "print the plan and change nothing")
	return c
}

func (m *migration) run(ctx context.Context) (err error) {
	if err := m.validate(); err != nil {
		return err
	}
	if m.log, err = m.logger(); err != nil {
		return err
	}
	if err := m.resolvePodCIDRs(ctx); err != nil {
		return err
	}
	if m.kubeProxy, err = linux.FindKubeProxy(); err != nil {
		return err
	}
	options, err := m.kernelOptions()
	if err != nil {
		return err
	}
	if m.linux, err = linux.Open(options); err != nil {
		return err
	}
	defer m.linux.Close()
	m.kernel = m.linux
	if m.dryRun {
		m.kernel = dryRunKernel{m.linux}
		fmt.Fprintln(m.out, "dry run: nothing is changed")
	}
	if m.to == bundled {
		return m.toBundled(ctx)
	}
	return m.toKubeProxy(ctx)
}

// kernelOptions returns the options of the new proxier. Towards kube-proxy the existing rules are kept until they are
// removed.
func (m *migration) kernelOptions() (linux.Options, error) {
	options, err := m.settings.linuxOptions(metrics.New(), m.log)
	options.ReadOnly, options.KeepRules = m.dryRun, m.to != bundled
	return options, err
}

// resolvePodCIDRs reads the pod CIDRs if recognising pod traffic needs the API.
func (m *migration) resolvePodCIDRs(ctx context.Context) error {
	if m.to != bundled || m.detectLocal != "NodeCIDR" {
		return nil
	}
	node, err := m.nodeName()
	if err != nil {
		return err
	}
	config, err := m.client()
	if err != nil {
		return err
	}
	return m.awaitCIDRs(ctx, config, node, m.log)
}

// validate checks --from and --to.
func (m *migration) validate() error {
	modes := append([]string{bundled}, kubeProxyModes...)
	for _, flag := range []struct{ name, value string }{{"--from", m.from}, {"--to", m.to}} {
		if !slices.Contains(modes, flag.value) {
			return fmt.Errorf("%s is %q; it must be one of %s", flag.name, flag.value, strings.Join(modes, ", "))
		}
	}
	if (m.from == bundled) == (m.to == bundled) {
		return fmt.Errorf("from %s to %s: one of the two must be bundled; between modes of kube-proxy, migrate to bundled first", m.from, m.to)
	}
	return nil
}

// dryRunKernel is a kernel that is read but not changed.
type dryRunKernel struct{ kernel.Kernel }

func (dryRunKernel) Apply(kernel.Op) error { return nil }

// step prints the next step and performs it unless this is a dry run.
func (m *migration) step(do func() error, format string, args ...any) error {
	m.stepNumber++
	fmt.Fprintf(m.out, "%d. %s\n", m.stepNumber, fmt.Sprintf(format, args...))
	if m.dryRun || do == nil {
		return nil
	}
	return do()
}

func (m *migration) printNote(format string, args ...any) {
	fmt.Fprintf(m.out, "   "+format+"\n", args...)
}

// defaultMetrics is where kube-proxy serves /proxyMode with an empty address too: unlike this proxier, it cannot be told not to.
const defaultMetrics = "127.0.0.1:10249"

// modeClient asks this node itself, without a proxy of HTTP that the environment names.
var modeClient = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// runningMode returns the mode of the proxy that serves metrics on this node; empty if nothing listens there.
func (m *migration) runningMode(ctx context.Context) (string, error) {
	host, port, err := net.SplitHostPort(cmp.Or(m.metrics, defaultMetrics))
	if err != nil {
		return "", fmt.Errorf("looking for a running proxy at --metrics-bind-address: %w; give the HOST:PORT of kube-proxy's metrics", err)
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	asked := "http://" + net.JoinHostPort(host, port) + "/proxyMode"
	fail := func(err error) (string, error) {
		return "", fmt.Errorf("asking %s whether a proxy runs on this node: %w; give the address of kube-proxy's metrics with --metrics-bind-address", asked, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, asked, nil)
	if err != nil {
		return fail(err)
	}
	response, err := modeClient.Do(request)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "", nil
	}
	if err != nil {
		return fail(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 64))
	if err != nil {
		return fail(err)
	}
	if response.StatusCode != http.StatusOK {
		return fail(fmt.Errorf("it answered %s, as no proxy does", response.Status))
	}
	mode := strings.TrimSpace(string(text))
	if mode == "" {
		return fail(errors.New("it answered without a mode, as no proxy does"))
	}
	return mode, nil
}

// toBundled programs all Services in addition to the old rules, or in mode ipvs with the old virtual servers, and
// then removes the old rules.
func (m *migration) toBundled(ctx context.Context) error {
	mode, err := m.runningMode(ctx)
	if err != nil {
		return err
	}
	if mode != "" {
		if !m.dryRun {
			return fmt.Errorf("a proxy still runs on this node (/proxyMode at %s returns %q) and would restore what is removed; stop it first, its rules stay in place", cmp.Or(m.metrics, defaultMetrics), mode)
		}
		m.printNote("a proxy in mode %s still runs on this node; stop it before the migration, its rules stay in place", mode)
	}
	if !slices.Contains(m.kubeProxy.Modes(), m.from) {
		return fmt.Errorf("the kernel has no state of kube-proxy's mode %s (found: %s); is this its network namespace?", m.from, listOrNothing(m.kubeProxy.Modes()))
	}
	source, e, err := m.program(ctx)
	if err != nil {
		return err
	}
	if err := m.clearKubeProxy(ctx, source, e); err != nil {
		return err
	}
	flows := e.FlowFilters()
	if err := m.step(func() error { return m.kernel.Apply(kernel.ForgetFlows{Filters: flows}) },
		"delete conntrack entries of untranslated packets to %d virtual servers", len(flows)); err != nil {
		return err
	}
	m.printNote("done; start `hitless proxier` with the same flags; it adopts the kernel state")
	return nil
}

func listOrNothing(words []string) string {
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, ", ")
}

// program programs the Services of the cluster. If an operation fails, it returns an error and the old rules stay.
// Objects that the kernel rejects for good are refused instead.
func (m *migration) program(ctx context.Context) (*watch.Watcher, *engine.Engine, error) {
	node, err := m.nodeName()
	if err != nil {
		return nil, nil, err
	}
	config, err := m.client()
	if err != nil {
		return nil, nil, err
	}
	options, err := m.engineOptions(node)
	if err != nil {
		return nil, nil, err
	}
	options.Adopt = m.from == "ipvs"
	options.Desired.IPv6 = m.linux.IPv6() == nil
	nothing := func() {}
	source, err := watch.New(config, node, watch.Listener{Service: nothing, Endpoints: func(time.Time) {}, Taken: nothing, Eligible: func(bool) {}}, m.log)
	if err != nil {
		return nil, nil, err
	}
	if err := source.Run(ctx); err != nil {
		return nil, nil, err
	}
	before, err := m.kernel.Servers()
	if err != nil {
		return nil, nil, err
	}
	e := engine.New(m.kernel, source, options)
	report, err := programAll(ctx, e)
	if err != nil {
		return nil, nil, err
	}
	taken := 0
	for _, s := range before {
		if e.Owns(s.Key) {
			taken++
		}
	}
	_ = m.step(nil, "program %d Services: %d virtual servers, %d of them adopted with their connections, in %d operations",
		report.Services, e.Size(), taken, report.Operations)
	for _, r := range report.Refused {
		m.printNote("refused: %v: %s (%s)", r.Service, r.Detail, r.Reason)
	}
	if err := programmed(e, report); err != nil {
		return nil, nil, fmt.Errorf("programming the Services: %w; no state of kube-proxy was removed; run the command again", err)
	}
	return source, e, nil
}

// programAll programs all Services. It repeats failed operations as often as it takes to tell a rejection for good from
// a failure. The first pass does not count, since it may fail as one change of sets.
func programAll(ctx context.Context, e *engine.Engine) (engine.Report, error) {
	report, err := e.Full(ctx)
	for n := 0; n < engine.RejectionThreshold && err == nil && len(report.Failures) > 0; n++ {
		var again engine.Report
		again, err = e.Sync(ctx, nil)
		report.Operations += again.Operations
		report.Refused = append(report.Refused, again.Refused...)
		report.Failures = again.Failures
	}
	return report, err
}

// programmed returns the failures that are left; nil for none.
func programmed(e *engine.Engine, report engine.Report) error {
	if len(report.Failures) == 0 && e.Pending() {
		return errors.New("the kernel rejects every Service, for the reasons above")
	}
	return errors.Join(report.Failures...)
}

// clearKubeProxy removes the state of all modes of kube-proxy, since none of it is updated any more.
func (m *migration) clearKubeProxy(ctx context.Context, source engine.Objects, e *engine.Engine) error {
	p := m.kubeProxy
	if err := m.step(p.RemoveRules, "remove kube-proxy's rules in one transaction: %d iptables chains, %d nftables tables", len(p.Chains)-len(p.Kept), len(p.Tables)); err != nil {
		return err
	}
	for _, chain := range p.Kept {
		m.printNote("the chain %s stays, since rules of other programs jump to it", chain)
	}
	if p.Legacy {
		m.printNote("the kernel also has iptables-legacy tables; chains named KUBE- (see iptables-legacy-save) are not removed")
	}
	if err := m.step(func() error { return p.RemoveSets(ctx) }, "destroy %d ipsets", len(p.Sets)); err != nil {
		return err
	}
	stale, err := m.leftoverServers(source, e)
	if err != nil {
		return err
	}
	remove := func() error {
		for _, k := range stale {
			if err := m.kernel.Apply(kernel.DeleteVirtual{Key: k}); err != nil {
				return fmt.Errorf("deleting a virtual server of kube-proxy: %w", err)
			}
		}
		return nil
	}
	if err := m.step(remove, "delete %d virtual servers of kube-proxy that belong to no Service", len(stale)); err != nil {
		return err
	}
	for _, k := range stale {
		m.printNote("%v", k)
	}
	return m.step(p.RemoveDevice, "delete the device kube-ipvs0 with %d addresses", len(p.Addrs))
}

// leftoverServers returns the virtual servers of kube-proxy that were not adopted.
func (m *migration) leftoverServers(source engine.Objects, e *engine.Engine) ([]kernel.Key, error) {
	if m.from != "ipvs" {
		return nil, nil
	}
	servers, err := m.linux.Servers()
	if err != nil {
		return nil, err
	}
	addrs, err := m.linux.Addresses()
	if err != nil {
		return nil, err
	}
	left := kubeProxyServers{device: m.kubeProxy.Addrs, node: slices.Concat(addrs.Node, addrs.Virtual), ports: nodePortsOf(source)}
	var keys []kernel.Key
	for _, s := range servers {
		if !e.Owns(s.Key) && left.contains(s.Key) {
			keys = append(keys, s.Key)
		}
	}
	slices.SortFunc(keys, kernel.Key.Compare)
	return keys, nil
}

// kubeProxyServers identifies kube-proxy's virtual servers: those at addresses on its device, and those of NodePorts
// at node addresses.
type kubeProxyServers struct {
	device, node []netip.Addr
	ports        map[nodePort]bool
}

type nodePort struct {
	protocol kernel.Protocol
	port     uint16
}

func (l kubeProxyServers) contains(k kernel.Key) bool {
	return slices.Contains(l.device, k.Addr) || slices.Contains(l.node, k.Addr) && l.ports[nodePort{k.Protocol, k.Port}]
}

// nodePortsOf returns the NodePorts of all Services.
func nodePortsOf(source engine.Objects) map[nodePort]bool {
	all := map[nodePort]bool{}
	for _, name := range source.Names() {
		svc := source.Service(name)
		if svc == nil {
			continue
		}
		for _, p := range svc.Spec.Ports {
			if p.NodePort > 0 {
				all[nodePort{protocols[p.Protocol], uint16(p.NodePort)}] = true
			}
		}
	}
	return all
}

// protocols are the protocols of Service ports; the default is TCP.
var protocols = map[v1.Protocol]kernel.Protocol{"": kernel.TCP, v1.ProtocolTCP: kernel.TCP, v1.ProtocolUDP: kernel.UDP, v1.ProtocolSCTP: kernel.SCTP}
