package proxier

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/hitless/hitless/internal/flags"
	"github.com/hitless/hitless/internal/input"
	"github.com/hitless/hitless/proxier/desired"
	"github.com/hitless/hitless/proxier/drain"
	"github.com/hitless/hitless/proxier/engine"
	"github.com/hitless/hitless/proxier/health"
	"github.com/hitless/hitless/proxier/linux"
	"github.com/hitless/hitless/proxier/metrics"
	"github.com/hitless/hitless/proxier/watch"
)

// settings are the flags. Flags that kube-proxy has too have the same meaning.
type settings struct {
	config                        string
	kubeconfig, master, hostname  string
	healthz, metrics              string
	scheduler                     string
	clusterCIDR, detectLocal      string
	podBridge, podInterfacePrefix string
	nodeCIDRs                     []netip.Prefix // pod CIDRs of the Node, for --detect-local-mode=NodeCIDR
	nodePorts                     []string
	masqueradeAll, strictARP      bool
	fallback                      bool
	initOnly, cleanup, profiling  bool
	mode                          string
	minSync, sync, reconcile      time.Duration
	drainInterval, drainListed    time.Duration
	drainGone                     time.Duration
	timeouts                      linux.Timeouts
	logFormat                     string
	verbosity                     int
	customize                     func(*Config) error
}

// Command returns the command `proxier`. It ends without an error on SIGTERM, SIGINT or the end of the command's
// context, and leaves the kernel state in place.
func Command() *cobra.Command { return CommandWith(func(*Config) error { return nil }) }

// CommandWith is Command with a function that may change the Config before the start. The self-check uses it to build
// proxiers with known faults.
func CommandWith(change func(*Config) error) *cobra.Command {
	s := settings{customize: change}
	c := &cobra.Command{
		Use:   "proxier",
		Short: "Run the bundled IPVS proxier on this node",
		Long: "Run the bundled IPVS proxier on this node. It programs the virtual servers, addresses and masquerading of all\n" +
			"Services, and leaves them in place when it ends. It needs IPVS, nf_tables and dummy devices in the kernel,\n" +
			"and CAP_NET_ADMIN in the node's network namespace. Its first start, or --init-only, also writes sysctls as root.",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM, os.Interrupt)
			defer stop()
			if err := readConfig(s.config, c.Flags().Lookup); err != nil {
				return err
			}
			return s.run(ctx)
		},
	}
	s.flags(c)
	c.AddCommand(migrateCommand())
	return c
}

func (s *settings) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&s.config, "config", "", "YAML file with values of these flags by name; the command line takes precedence")
	f.StringVar(&s.kubeconfig, "kubeconfig", "", "kubeconfig of the API server; empty for the in-cluster configuration")
	f.StringVar(&s.master, "master", "", "address of the API server; overrides the one in --kubeconfig")
	f.StringVar(&s.hostname, "hostname-override", "", "name of this Node object; empty for the host name")
	f.StringVar(&s.mode, "proxy-mode", "ipvs", "proxy mode; only ipvs is supported (for compatibility with kube-proxy)")
	f.BoolVar(&s.initOnly, "init-only", false, "write the sysctls, which needs full root privileges, and exit; later starts need CAP_NET_ADMIN only")
	f.BoolVar(&s.cleanup, "cleanup", false, "remove all kernel state of the proxier, and exit; state of other programs stays")
	f.BoolVar(&s.profiling, "profiling", false, "serve /debug/pprof/ at --metrics-bind-address")
	f.StringVar(&s.healthz, "healthz-bind-address", "0.0.0.0:10256", "address of /healthz, /livez and /readyz; empty to disable")
	f.StringVar(&s.metrics, "metrics-bind-address", defaultMetrics, "address of /metrics and /proxyMode; empty to disable")
	f.StringVar(&s.scheduler, "ipvs-scheduler", "rr", "IPVS scheduler of Services without the annotation "+desired.SchedulerAnnotation+": one of "+strings.Join(desired.Schedulers(), ", "))
	f.BoolVar(&s.strictARP, "ipvs-strict-arp", false, "answer ARP only for addresses of the receiving interface")
	f.StringVar(&s.clusterCIDR, "cluster-cidr", "", "pod CIDRs, comma-separated; traffic to cluster IPs from other sources is masqueraded")
	f.StringVar(&s.detectLocal, "detect-local-mode", "ClusterCIDR", "how to recognise pod traffic: "+strings.Join(localModes, ", "))
	f.StringVar(&s.podBridge, "pod-bridge-interface", "", "with BridgeInterface: bridge that pod packets arrive on")
	f.StringVar(&s.podInterfacePrefix, "pod-interface-name-prefix", "", "with InterfaceNamePrefix: prefix of the names of interfaces that pod packets arrive on")
	f.StringSliceVar(&s.nodePorts, "nodeport-addresses", []string{"primary"}, "CIDRs of node addresses that serve NodePorts, comma-separated; primary for the first InternalIP of the Node")
	f.BoolVar(&s.masqueradeAll, "masquerade-all", false, "masquerade all traffic to cluster IPs")
	f.BoolVar(&s.fallback, "terminating-fallback", true, "if no endpoint is ready, use serving terminating endpoints (KEP-1669); kube-proxy before 1.26 did not")
	f.DurationVar(&s.minSync, "ipvs-min-sync-period", 0, "minimum time between two passes over changes; 0 for none")
	f.DurationVar(&s.sync, "ipvs-sync-period", 30*time.Second, "maximum time until a retry after a failure, and time between two looks for a virtual server that another program has deleted; a change that is pending for twice as long makes /healthz fail")
	f.DurationVar(&s.reconcile, "reconcile-period", 15*time.Minute, "time between full passes, which read the kernel state and repair it; 0 for none after the first, unless a virtual server is missing")
	f.DurationVar(&s.drainInterval, "drain-interval", 5*time.Second, "time until the first check of a draining endpoint; each check that finds connections makes the next interval a quarter longer, up to twelve times the first; at least a second passes between checks")
	f.DurationVar(&s.drainListed, "drain-period", 15*time.Minute, "maximum time that a listed endpoint keeps its connections once it terminates and no longer serves")
	f.DurationVar(&s.drainGone, "drain-gone-period", 5*time.Minute, "maximum time that an endpoint keeps its connections once it is no longer listed")
	f.DurationVar(&s.timeouts.TCP, "ipvs-tcp-timeout", 0, "IPVS timeout of idle TCP connections; 0 keeps the kernel's")
	f.DurationVar(&s.timeouts.TCPFin, "ipvs-tcpfin-timeout", 0, "IPVS timeout of TCP connections that one side has closed; 0 keeps the kernel's")
	f.DurationVar(&s.timeouts.UDP, "ipvs-udp-timeout", 0, "IPVS timeout of idle UDP flows; 0 keeps the kernel's")
	f.StringVar(&s.logFormat, "log-format", "text", "log format on standard error: text or json")
	f.IntVarP(&s.verbosity, "v", "v", 0, "log verbosity; 4 and above for debugging")
	for _, name := range []string{"healthz-bind-address", "metrics-bind-address"} {
		flags.Allow(f, name, flags.Empty)
	}
	for _, name := range []string{"v", "ipvs-min-sync-period", "reconcile-period", "drain-interval", "drain-period", "drain-gone-period",
		"ipvs-tcp-timeout", "ipvs-tcpfin-timeout", "ipvs-udp-timeout"} {
		flags.Allow(f, name, flags.Zero)
	}
	flags.Words(f, "proxy-mode", "ipvs")
	flags.Words(f, "ipvs-scheduler", desired.Schedulers()...)
	flags.Words(f, "detect-local-mode", localModes...)
	flags.Words(f, "log-format", "text", "json")
}

// run checks the flags, and runs the proxier.
func (s *settings) run(ctx context.Context) error {
	log, err := s.logger()
	if err != nil {
		return err
	}
	klog.SetSlogLogger(log)
	if err := s.checkChoices(); err != nil {
		return err
	}
	if s.initOnly || s.cleanup {
		return s.initOrCleanup(log)
	}
	node, err := s.nodeName()
	if err != nil {
		return err
	}
	config, err := s.client()
	if err != nil {
		return err
	}
	options, err := s.engineOptions(node)
	if err != nil {
		return err
	}
	if err := s.awaitCIDRs(ctx, config, node, log); err != nil {
		return ignoreCanceled(ctx, err)
	}
	return s.forward(ctx, node, config, options, log)
}

// checkChoices refuses impossible values of the flags for mode, durations and scheduler.
func (s *settings) checkChoices() error {
	if s.mode != "ipvs" {
		return fmt.Errorf("--proxy-mode is %q; only ipvs is supported", s.mode)
	}
	if err := s.checkDurations(); err != nil {
		return err
	}
	if !desired.KnownScheduler(s.scheduler) {
		return fmt.Errorf("--ipvs-scheduler is %q; it must be one of %s", s.scheduler, strings.Join(desired.Schedulers(), ", "))
	}
	return nil
}

// forward creates the parts of the proxier and runs it until ctx ends.
func (s *settings) forward(ctx context.Context, node string, config *rest.Config, options engine.Options, log *slog.Logger) error {
	counters := metrics.New()
	kernelOptions, err := s.linuxOptions(counters, log)
	if err != nil {
		return err
	}
	kernel, err := linux.Open(kernelOptions)
	if err != nil {
		return err
	}
	defer kernel.Close()
	options.Desired.IPv6 = kernel.IPv6() == nil
	if !options.Desired.IPv6 {
		log.Info("IPv6 is disabled", "reason", kernel.IPv6())
	}
	state := health.NewNode(s.sync, time.Now, counters.HealthResponse)
	source, err := watch.New(config, node, listener(state, counters), log)
	if err != nil {
		return err
	}
	stop, err := s.serve(state, counters)
	if err != nil {
		return err
	}
	defer stop()
	log.Info("started", "node", node, "scheduler", s.scheduler, "terminatingFallback", s.fallback)
	parts := Config{Source: source, Kernel: kernel, Engine: options, Node: state,
		HealthChecks: health.NewServices(state.Healthy), Metrics: counters, Log: log,
		Periods: Periods{MinSync: s.minSync, Retry: s.sync, Reconcile: s.reconcile, Look: max(s.sync, time.Second), Flows: time.Second}}
	if err := s.customize(&parts); err != nil {
		return err
	}
	parts.OnStarted = relaxGC()
	if err = New(parts).Run(ctx); err == nil {
		log.Info("stopped; the kernel continues to forward")
	}
	return err
}

// initOrCleanup opens the kernel, which writes sysctls and checks features, and optionally removes the proxier's
// state. Existing rules stay unchanged, since the flags that determined them are not known.
func (s *settings) initOrCleanup(log *slog.Logger) error {
	options, err := s.linuxOptions(metrics.New(), log)
	if err != nil {
		return err
	}
	kernel, err := linux.Open(options)
	if err != nil {
		return err
	}
	defer kernel.Close()
	if !s.cleanup {
		log.Info("initialised; later starts need CAP_NET_ADMIN only")
		return nil
	}
	n, err := kernel.Cleanup(nil)
	if err != nil {
		return fmt.Errorf("cleaning up: %w; run --cleanup again", err)
	}
	log.Info("cleaned up", "virtualServers", n)
	return nil
}

func (s *settings) logger() (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: slog.LevelInfo}
	if s.verbosity >= 4 {
		options.Level = slog.LevelDebug
	}
	switch s.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(os.Stderr, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(os.Stderr, options)), nil
	}
	return nil, fmt.Errorf("--log-format is %q; it must be text or json", s.logFormat)
}

func (s *settings) nodeName() (string, error) {
	name := s.hostname
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			return "", fmt.Errorf("reading the host name: %w; set --hostname-override", err)
		}
	}
	return strings.ToLower(strings.TrimSpace(name)), nil
}

func (s *settings) client() (*rest.Config, error) {
	if s.kubeconfig != "" {
		if err := input.Check(s.kubeconfig, input.TextBytes); err != nil {
			return nil, fmt.Errorf("reading --kubeconfig: %w", err)
		}
	}
	config, err := clientcmd.BuildConfigFromFlags(s.master, s.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("configuring the API client: %w; set --kubeconfig or --master", err)
	}
	return config, nil
}

func (s *settings) linuxOptions(counters *metrics.Metrics, log *slog.Logger) (linux.Options, error) {
	recreated := func(what string) {
		counters.Repaired(1)
		log.Warn("repaired", "operation", "recreated "+what)
	}
	monitorFailed := func(err error) { log.Error("deleted rules may go undetected", "error", err) }
	options := linux.Options{Scheduler: s.scheduler, MasqueradeAll: s.masqueradeAll, StrictARP: s.strictARP, HealthPort: s.healthPort(),
		Timeouts: s.timeouts, NoReply: counters.SocketReplaced, Recreated: recreated, MonitorFailed: monitorFailed, KeepRules: s.initOnly || s.cleanup}
	return options, s.detectLocalOptions(&options)
}

// healthPort returns the port of /healthz if it is served at all addresses, where load balancers may check it at
// their own address; else 0. Like a listener it takes an empty host for all addresses, and names of ports.
func (s *settings) healthPort() uint16 {
	host, name, err := net.SplitHostPort(strings.TrimSpace(s.healthz))
	if err != nil {
		return 0
	}
	if at, err := netip.ParseAddr(host); host != "" && (err != nil || !at.IsUnspecified()) {
		return 0
	}
	port, err := net.LookupPort("tcp", name)
	if err != nil {
		return 0
	}
	return uint16(port)
}

func (s *settings) engineOptions(node string) (engine.Options, error) {
	nodePorts, err := desired.ParseNodePortAddresses(s.nodePorts)
	if err != nil {
		return engine.Options{}, fmt.Errorf("reading --nodeport-addresses: %w", err)
	}
	return engine.Options{
		Desired:   desired.Options{Node: node, Scheduler: s.scheduler, TerminatingFallback: s.fallback},
		NodePorts: nodePorts,
		Drain:     drain.Limits{Terminated: s.drainListed, Unlisted: s.drainGone, FirstCheck: s.drainInterval},
		Now:       time.Now,
	}, nil
}

func listener(state *health.Node, counters *metrics.Metrics) watch.Listener {
	return watch.Listener{
		Service:   func() { state.Queued(); counters.ServiceChanged(time.Now()) },
		Endpoints: func(since time.Time) { state.Queued(); counters.EndpointsChanged(time.Now(), since) },
		Taken:     func() { state.Taken(); counters.ChangesTaken() },
		Eligible:  state.SetEligible,
	}
}

// serve starts the health and metrics servers and returns a function that stops them.
func (s *settings) serve(state *health.Node, counters *metrics.Metrics) (func(), error) {
	stopHealth, err := health.Serve(s.healthz, state.Handler())
	if err != nil {
		return nil, fmt.Errorf("serving health (--healthz-bind-address): %w", err)
	}
	stopMetrics, err := health.Serve(s.metrics, counters.Handler(s.profiling))
	if err != nil {
		stopHealth()
		return nil, fmt.Errorf("serving metrics (--metrics-bind-address): %w", err)
	}
	return func() { stopMetrics(); stopHealth() }, nil
}

// checkDurations validates the duration flags.
func (s *settings) checkDurations() error {
	for _, d := range []struct {
		flag  string
		value time.Duration
		least time.Duration
	}{
		{"--ipvs-min-sync-period", s.minSync, 0},
		{"--ipvs-sync-period", s.sync, time.Nanosecond},
		{"--reconcile-period", s.reconcile, 0},
		{"--drain-interval", s.drainInterval, 0},
		{"--drain-period", s.drainListed, 0},
		{"--drain-gone-period", s.drainGone, 0},
		{"--ipvs-tcp-timeout", s.timeouts.TCP, 0},
		{"--ipvs-tcpfin-timeout", s.timeouts.TCPFin, 0},
		{"--ipvs-udp-timeout", s.timeouts.UDP, 0},
	} {
		switch {
		case d.value >= d.least:
		case d.least == 0:
			return fmt.Errorf("%s is %v; it must be 0 or more", d.flag, d.value)
		default:
			return fmt.Errorf("%s is %v; it must be more than 0", d.flag, d.value)
		}
	}
	return nil
}
