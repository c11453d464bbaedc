package proxier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/hitless/hitless/proxier/engine"
	"github.com/hitless/hitless/proxier/kernel"
	"github.com/hitless/hitless/proxier/linux"
	"github.com/hitless/hitless/proxier/metrics"
	"github.com/hitless/hitless/proxier/watch"
)

// bundled is the name of this proxier among the modes of kube-proxy.
const bundled = "bundled"

var kubeProxyModes = []string{"ipvs", "iptables", "nftables"}

// migration moves a node from one proxy to another, one of them this one. The order is that which loses least: the new rules
// come first, then the old ones go, and then what conntrack remembers of packets that neither translated.
type migration struct {
	settings
	from, to string
	dryRun   bool

	out    io.Writer
	log    *slog.Logger
	kernel kernel.Kernel
	linux  *linux.Kernel
	left   *linux.KubeProxy
	number int
}

func migrateCommand() *cobra.Command {
	var m migration
	c := &cobra.Command{
		Use:   "migrate --from MODE --to MODE",
		Short: "Move this node from kube-proxy to this proxier, or back",
		Long: "Move this node from kube-proxy (ipvs, iptables or nftables) to this proxier (bundled), or back, in the order that\n" +
			"loses least, and take everything of the old one out of the kernel. What runs on the node stays yours to stop and start:\n" +
			"towards bundled, kube-proxy has ended before, and `hitless proxier` is started behind it; back, `hitless proxier` has\n" +
			"ended before, and kube-proxy serves already. --dry-run prints the plan and changes nothing.",
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
	c.Flags().StringVar(&m.from, "from", "", "what served this node until now: ipvs, iptables or nftables of kube-proxy, or bundled")
	c.Flags().StringVar(&m.to, "to", bundled, "what serves it from now on: bundled, or ipvs, iptables or nftables of kube-proxy")
	c.Flags().BoolVar(&m.dryRun, "dry-run", false, "print what would be done, and change nothing")
	return c
}

func (m *migration) run(ctx context.Context) (err error) {
	if err := m.check(); err != nil {
		return err
	}
	if m.log, err = m.logger(); err != nil {
		return err
	}
	if err := m.pods(ctx); err != nil {
		return err
	}
	if m.left, err = linux.FindKubeProxy(); err != nil {
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
		m.kernel = rehearsal{m.linux}
		fmt.Fprintln(m.out, "dry run: nothing is changed")
	}
	if m.to == bundled {
		return m.arrive(ctx)
	}
	return m.leave(ctx)
}

// kernelOptions are those of the proxier to come. On the way back there is none, and its rules stay until they go.
func (m *migration) kernelOptions() (linux.Options, error) {
	options, err := m.settings.kernel(metrics.New(), m.log)
	options.ReadOnly, options.KeepRules = m.dryRun, m.to != bundled
	return options, err
}

// pods finds out how to tell pods, where that takes the API.
func (m *migration) pods(ctx context.Context) error {
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

// check looks at the two names.
func (m *migration) check() error {
	modes := append([]string{bundled}, kubeProxyModes...)
	for _, flag := range []struct{ name, value string }{{"--from", m.from}, {"--to", m.to}} {
		if !slices.Contains(modes, flag.value) {
			return fmt.Errorf("%s is %q; it can be %s", flag.name, flag.value, strings.Join(modes, ", "))
		}
	}
	if (m.from == bundled) == (m.to == bundled) {
		return fmt.Errorf("from %s to %s: one of the two has to be bundled; between modes of kube-proxy, go by way of it", m.from, m.to)
	}
	return nil
}

// rehearsal is a kernel that is read and not changed.
type rehearsal struct{ kernel.Kernel }

func (rehearsal) Apply(kernel.Op) error { return nil }

// step says what is done next, and does it unless this is a dry run.
func (m *migration) step(do func() error, format string, args ...any) error {
	m.number++
	fmt.Fprintf(m.out, "%d. %s\n", m.number, fmt.Sprintf(format, args...))
	if m.dryRun || do == nil {
		return nil
	}
	return do()
}

func (m *migration) note(format string, args ...any) { fmt.Fprintf(m.out, "   "+format+"\n", args...) }

// running asks the proxy that serves metrics on this node for its mode; empty when none answers.
func (m *migration) running(ctx context.Context) string {
	_, port, err := net.SplitHostPort(m.metrics)
	if err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort("127.0.0.1", port)+"/proxyMode", nil)
	if err != nil {
		return ""
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 64))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// arrive programs all Services of the cluster, over the old rules or, from mode ipvs, with the old virtual servers; then the old
// rules go.
func (m *migration) arrive(ctx context.Context) error {
	if mode := m.running(ctx); mode != "" {
		if !m.dryRun {
			return fmt.Errorf("a proxy still runs on this node (%s answers /proxyMode with %q) and would put back what is removed; stop it first, its rules go on serving", m.metrics, mode)
		}
		m.note("a proxy in mode %s still runs on this node; it has to be stopped before this, and its rules go on serving", mode)
	}
	if !slices.Contains(m.left.Modes(), m.from) {
		return fmt.Errorf("kube-proxy left nothing of mode %s in this kernel (found: %s); is this its network namespace?", m.from, orNothing(m.left.Modes()))
	}
	source, e, err := m.program(ctx)
	if err != nil {
		return err
	}
	if err := m.clearKubeProxy(source, e); err != nil {
		return err
	}
	flows := e.FlowFilters()
	if err := m.step(func() error { return m.kernel.Apply(kernel.ForgetFlows{Filters: flows}) },
		"forget what conntrack remembers of packets to %d virtual servers that nobody translated", len(flows)); err != nil {
		return err
	}
	m.note("done; start `hitless proxier` with the same flags: it takes over what is there")
	return nil
}

func orNothing(words []string) string {
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, ", ")
}

// program brings the Services of the cluster into the kernel. It is an error when one operation fails: the old rules stay then.
func (m *migration) program(ctx context.Context) (*watch.Watcher, *engine.Engine, error) {
	node, err := m.nodeName()
	if err != nil {
		return nil, nil, err
	}
	config, err := m.client()
	if err != nil {
		return nil, nil, err
	}
	options, err := m.engine(node)
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
	report, err := e.Full(ctx)
	if err != nil {
		return nil, nil, err
	}
	taken := 0
	for _, s := range before {
		if e.Owns(s.Key) {
			taken++
		}
	}
	_ = m.step(nil, "program %d Services: %d virtual servers, %d of them taken over with their connections, by %d operations",
		report.Services, e.Size(), taken, report.Operations)
	for _, r := range report.Refused {
		m.note("refused: %v: %s (%s)", r.Service, r.Detail, r.Reason)
	}
	if len(report.Failures) > 0 {
		return nil, nil, fmt.Errorf("programming the Services: %w; nothing of kube-proxy was removed; say it again", errors.Join(report.Failures...))
	}
	return source, e, nil
}

// clearKubeProxy takes everything of kube-proxy out, of all its modes: none of it is kept up to date any more.
func (m *migration) clearKubeProxy(source engine.Objects, e *engine.Engine) error {
	p := m.left
	if err := m.step(p.RemoveRules, "remove kube-proxy's rules in one transaction: %d chains of iptables, %d tables of nftables", len(p.Chains)-len(p.Kept), len(p.Tables)); err != nil {
		return err
	}
	for _, chain := range p.Kept {
		m.note("the chain %s stays, since rules of others lead there", chain)
	}
	if p.Legacy {
		m.note("the legacy variant of iptables has tables too; look for chains of KUBE- by iptables-legacy-save: they are not removed here")
	}
	if err := m.step(p.RemoveSets, "destroy %d sets of ipset", len(p.Sets)); err != nil {
		return err
	}
	stale, err := m.stale(source, e)
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
	if err := m.step(remove, "delete %d virtual servers of kube-proxy that are of no Service here", len(stale)); err != nil {
		return err
	}
	for _, k := range stale {
		m.note("%v", k)
	}
	return m.step(p.RemoveDevice, "delete the device kube-ipvs0 with %d addresses", len(p.Addrs))
}

// stale returns the virtual servers of kube-proxy that were not taken over.
func (m *migration) stale(source engine.Objects, e *engine.Engine) ([]kernel.Key, error) {
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
	left := leftover{device: m.left.Addrs, node: slices.Concat(addrs.Node, addrs.Virtual), ports: nodePorts(source)}
	var keys []kernel.Key
	for _, s := range servers {
		if !e.Owns(s.Key) && left.has(s.Key) {
			keys = append(keys, s.Key)
		}
	}
	slices.SortFunc(keys, kernel.Key.Compare)
	return keys, nil
}
