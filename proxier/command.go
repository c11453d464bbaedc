package proxier

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/hitless/hitless/proxier/desired"
	"github.com/hitless/hitless/proxier/drain"
	"github.com/hitless/hitless/proxier/engine"
	"github.com/hitless/hitless/proxier/health"
	"github.com/hitless/hitless/proxier/linux"
	"github.com/hitless/hitless/proxier/metrics"
	"github.com/hitless/hitless/proxier/watch"
)

// settings are the flags. Those that kube-proxy has mean the same here.
type settings struct {
	config                       string
	kubeconfig, master, hostname string
	healthz, metrics             string
	scheduler                    string
	clusterCIDR, detectLocal     string
	podBridge, podPrefix         string
	nodeCIDRs                    []netip.Prefix // of the Node, where they are asked for
	nodePorts                    []string
	masqueradeAll, strictARP     bool
	fallback                     bool
	initOnly, cleanup, profiling bool
	mode                         string
	minSync, sync, reconcile     time.Duration
	drainInterval, drainListed   time.Duration
	drainGone                    time.Duration
	timeouts                     linux.Timeouts
	logFormat                    string
	verbosity                    int
	change                       func(*Config) error
}

// Command returns the command `proxier`: the bundled proxier as a program. It ends without an error on SIGTERM, SIGINT
// or the end of the command's context, and leaves the kernel as it is.
func Command() *cobra.Command { return CommandWith(func(*Config) error { return nil }) }

// CommandWith is Command with a say in what the proxier is made of: change gets the Config just before the start. It is
// for those who need a proxier with a known fault, such as hitless' check of itself.
func CommandWith(change func(*Config) error) *cobra.Command {
	s := settings{change: change}
	c := &cobra.Command{
		Use:   "proxier",
		Short: "Run the bundled IPVS proxier on this node",
		Long: "Run the bundled IPVS proxier on this node: it programs the virtual servers, addresses and masquerading of all\n" +
			"Services, and leaves them in place when it ends. It needs IPVS, nf_tables and dummy devices in the kernel,\n" +
			"and CAP_NET_ADMIN in the node's network namespace; --init-only, or its first start, needs to write sysctls too.",
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
	f.StringVar(&s.config, "config", "", "file of YAML with values of these flags, by their names; those on the command line win")
	f.StringVar(&s.kubeconfig, "kubeconfig", "", "file that says how to reach the API server; empty for the one of the cluster that this runs in")
	f.StringVar(&s.master, "master", "", "address of the API server; overrides the one in --kubeconfig")
	f.StringVar(&s.hostname, "hostname-override", "", "name of this Node; empty for the host name")
	f.StringVar(&s.mode, "proxy-mode", "ipvs", "ipvs, which is all there is; for command lines of kube-proxy")
	f.BoolVar(&s.initOnly, "init-only", false, "do what needs full root privileges, and exit; run again with CAP_NET_ADMIN alone after that")
	f.BoolVar(&s.cleanup, "cleanup", false, "take everything of the proxier out of the kernel, and exit; what others made there stays")
	f.BoolVar(&s.profiling, "profiling", false, "answer /debug/pprof/ at --metrics-bind-address too")
	f.StringVar(&s.healthz, "healthz-bind-address", "0.0.0.0:10256", "where /healthz, /livez and /readyz answer; empty for nowhere")
	f.StringVar(&s.metrics, "metrics-bind-address", "127.0.0.1:10249", "where /metrics and /proxyMode answer; empty for nowhere")
	f.StringVar(&s.scheduler, "ipvs-scheduler", "rr", "IPVS scheduler of Services without the annotation "+desired.SchedulerAnnotation+": "+strings.Join(desired.Schedulers(), ", "))
	f.BoolVar(&s.strictARP, "ipvs-strict-arp", false, "answer ARP only for addresses of the asked interface")
	f.StringVar(&s.clusterCIDR, "cluster-cidr", "", "addresses of pods, comma-separated; what comes from elsewhere to a cluster IP is masqueraded")
	f.StringVar(&s.detectLocal, "detect-local-mode", "ClusterCIDR", "how to tell a pod's packet: "+strings.Join(localModes, ", "))
	f.StringVar(&s.podBridge, "pod-bridge-interface", "", "with BridgeInterface: the bridge that pods' packets come from")
	f.StringVar(&s.podPrefix, "pod-interface-name-prefix", "", "with InterfaceNamePrefix: how the names of interfaces begin that pods' packets come from")
	f.StringSliceVar(&s.nodePorts, "nodeport-addresses", []string{"primary"}, "prefixes of the node's addresses that serve NodePorts, comma-separated; primary for the first InternalIP of the Node")
	f.BoolVar(&s.masqueradeAll, "masquerade-all", false, "masquerade all traffic to cluster IPs")
	f.BoolVar(&s.fallback, "terminating-fallback", true, "where no endpoint is ready, use those that terminate and still serve (KEP-1669); false is what kube-proxy did before 1.26")
	f.DurationVar(&s.minSync, "ipvs-min-sync-period", 0, "least time between two passes over changes; 0 for at once")
	f.DurationVar(&s.sync, "ipvs-sync-period", 30*time.Second, "most time until something that failed is tried again; a change that is pending for twice as long makes /healthz fail")
	f.DurationVar(&s.reconcile, "reconcile-period", 15*time.Minute, "time between passes that read the whole kernel and repair it; 0 for never")
	f.DurationVar(&s.drainInterval, "drain-interval", 5*time.Second, "time until the first look at endpoints that drain; each look that finds all as it was makes the next a quarter later, at most twelve times as long; none is sooner than a second after the last")
	f.DurationVar(&s.drainListed, "drain-period", 15*time.Minute, "most time that an endpoint which terminates and does not serve any more, but is still listed, keeps its connections")
	f.DurationVar(&s.drainGone, "drain-gone-period", 5*time.Minute, "most time that an endpoint which is not listed any more keeps its connections")
	f.DurationVar(&s.timeouts.TCP, "ipvs-tcp-timeout", 0, "how long IPVS remembers an idle TCP connection; 0 leaves what the kernel has")
	f.DurationVar(&s.timeouts.TCPFin, "ipvs-tcpfin-timeout", 0, "how long IPVS remembers a TCP connection that one side closed; 0 leaves what the kernel has")
	f.DurationVar(&s.timeouts.UDP, "ipvs-udp-timeout", 0, "how long IPVS remembers an idle UDP flow; 0 leaves what the kernel has")
	f.StringVar(&s.logFormat, "log-format", "text", "format of the log on standard error: text or json")
	f.IntVarP(&s.verbosity, "v", "v", 0, "4 and above for debugging")
}

// run makes the parts and joins them.
func (s *settings) run(ctx context.Context) error {
	log, err := s.logger()
	if err != nil {
		return err
	}
	klog.SetSlogLogger(log)
	if s.mode != "ipvs" {
		return fmt.Errorf("--proxy-mode is %q; this proxier does ipvs only", s.mode)
	}
	if err := s.durations(); err != nil {
		return err
	}
	if !desired.KnownScheduler(s.scheduler) {
		return fmt.Errorf("--ipvs-scheduler is %q; it can be %s", s.scheduler, strings.Join(desired.Schedulers(), ", "))
	}
	if s.initOnly || s.cleanup {
		return s.once(log)
	}
	node, err := s.nodeName()
	if err != nil {
		return err
	}
	config, err := s.client()
	if err != nil {
		return err
	}
	options, err := s.engine(node)
	if err != nil {
		return err
	}
	if err := s.awaitCIDRs(ctx, config, node, log); err != nil {
		return ended(ctx, err)
	}
	counters := metrics.New()
	kernelOptions, err := s.kernel(counters, log)
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
		log.Info("IPv6 is left out", "reason", kernel.IPv6())
	}
	state := health.NewNode(s.sync, time.Now, counters.Answered)
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
		Checks: health.NewServices(state.Healthy), Metrics: counters, Log: log,
		Periods: Periods{MinSync: s.minSync, Retry: s.sync, Reconcile: s.reconcile, Flows: time.Second}}
	if err := s.change(&parts); err != nil {
		return err
	}
	parts.Started = collectSeldom()
	if err = New(parts).Run(ctx); err == nil {
		log.Info("stopped; the kernel goes on forwarding")
	}
	return err
}

// startCollection is how much the heap may grow between two collections while the program starts, in percent. A start makes most of
// what it will ever hold: with the usual 100 its collections were a quarter of the CPU of one with 10,000 Services.
const startCollection = 400

// collectSeldom has garbage collected less often until end is called. Who has turned collection off has a reason.
func collectSeldom() (end func()) {
	before := debug.SetGCPercent(startCollection)
	if before < 0 {
		debug.SetGCPercent(before)
	}
	return func() { debug.SetGCPercent(before) }
}

// once opens the kernel, which sets what only root may set and tries what is needed, and perhaps cleans it up. What the next
// start finds to be right already, it leaves alone. The rules stay as they are: a proxier that ended may have made them, by other
// flags than these.
func (s *settings) once(log *slog.Logger) error {
	options, err := s.kernel(metrics.New(), log)
	if err != nil {
		return err
	}
	kernel, err := linux.Open(options)
	if err != nil {
		return err
	}
	defer kernel.Close()
	if !s.cleanup {
		log.Info("initialised; the next start needs CAP_NET_ADMIN only")
		return nil
	}
	n, err := kernel.Cleanup(nil)
	if err != nil {
		return fmt.Errorf("cleaning up: %w; say --cleanup again", err)
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
	return nil, fmt.Errorf("--log-format is %q; it can be text or json", s.logFormat)
}

func (s *settings) nodeName() (string, error) {
	name := s.hostname
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			return "", fmt.Errorf("asking for the host name: %w; say --hostname-override", err)
		}
	}
	return strings.ToLower(strings.TrimSpace(name)), nil
}

func (s *settings) client() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags(s.master, s.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("finding the API server: %w; say --kubeconfig or --master", err)
	}
	return config, nil
}

func (s *settings) kernel(counters *metrics.Metrics, log *slog.Logger) (linux.Options, error) {
	remade := func(what string) {
		counters.Repaired(1)
		log.Warn("repaired", "operation", "made "+what+" again")
	}
	deaf := func(err error) { log.Error("damage may go unnoticed", "error", err) }
	options := linux.Options{Scheduler: s.scheduler, MasqueradeAll: s.masqueradeAll, StrictARP: s.strictARP, HealthPort: s.healthPort(),
		Timeouts: s.timeouts, NoReply: counters.Reopened, Recreated: remade, MonitorFailed: deaf, KeepRules: s.initOnly || s.cleanup}
	return options, s.local(&options)
}

// healthPort is the port of /healthz where it answers at all addresses, and so to a balancer that asks at its own; else 0.
func (s *settings) healthPort() uint16 {
	at, err := netip.ParseAddrPort(s.healthz)
	if err != nil || !at.Addr().IsUnspecified() {
		return 0
	}
	return at.Port()
}

func (s *settings) engine(node string) (engine.Options, error) {
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
		Taken:     func() { state.Taken(); counters.Taken() },
		Eligible:  state.SetEligible,
	}
}

// serve opens the two servers of the node, and returns what stops them.
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
