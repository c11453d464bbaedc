//go:build linux

package subject

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hitless/hitless/lab/procs"
	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/observers"
	"github.com/hitless/hitless/record"
)

// Config configures the proxies of a lab.
type Config struct {
	Programs   []Program // the first is the subject; Change selects another
	Net        *topology.Network
	Procs      *procs.Supervisor
	Kubeconfig string
	Env        []string // added to the subjects' environment
	// ClusterCIDR are the ranges of all pods; empty for that of topology. Flags replace flags of the same name, or are added; not for
	// an Exec.
	ClusterCIDR string
	Flags       []string
	Devices     []string // of each node that do not lead to its pods, the first to the other nodes; none for topology.FabricInterface
	Recorder    record.Recorder
	Now         func() time.Duration
}

// Fleet is one proxy on each node. It is safe for concurrent use: a run that is stopped looks at the proxies while the scenario goes on.
type Fleet struct {
	cfg Config

	mu   sync.Mutex
	runs map[string]Program // by node
	live map[string]*procs.Process
	// blocked are the nodes whose proxy was blocked since its last start, and unjudged the bytes of their logs that are of earlier blocks.
	blocked  map[string]bool
	unjudged map[string]int64
}

// NewFleet prepares the nodes without starting a proxy.
func NewFleet(cfg Config) (*Fleet, error) {
	f := &Fleet{cfg: cfg, runs: map[string]Program{}, live: map[string]*procs.Process{}, blocked: map[string]bool{}, unjudged: map[string]int64{}}
	for _, node := range cfg.Net.Nodes {
		if err := prepare(cfg.Programs, node); err != nil {
			return nil, fmt.Errorf("preparing %s for %s: %w", node.Name, cfg.Programs[0].Spec, err)
		}
		f.runs[node.Name] = cfg.Programs[0]
	}
	return f, nil
}

// Prepare prepares a node that has restarted.
func (f *Fleet) Prepare(name string) error {
	node, err := f.cfg.Net.Node(name)
	if err != nil {
		return err
	}
	if err := prepare(f.cfg.Programs, node); err != nil {
		return fmt.Errorf("preparing %s for %s: %w", name, f.spec(name), err)
	}
	return nil
}

func (f *Fleet) program(node string) Program {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.runs[node]
}

func (f *Fleet) spec(node string) Spec { return f.program(node).Spec }

// last is the process of a node's proxy, which may have ended; nil if none was started.
func (f *Fleet) last(node string) *procs.Process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.live[node]
}

// StartAll starts the subject on every node and waits until each proxy is ready: it reports the requested mode, its healthz
// answers 200 and its log has no sync error; an Exec has its own check. A sync error is returned with the line of the log.
func (f *Fleet) StartAll(ctx context.Context) error {
	for _, node := range f.cfg.Net.Nodes {
		if err := f.launch(node); err != nil {
			return err
		}
	}
	return f.AwaitReady(ctx)
}

// AwaitReady waits until the proxy of each node is ready, as StartAll. Other programs may have started the proxies.
func (f *Fleet) AwaitReady(ctx context.Context) error {
	for _, node := range f.cfg.Net.Nodes {
		if err := f.awaitReady(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

// Start starts the subject on one node and waits until it is ready, as StartAll.
func (f *Fleet) Start(ctx context.Context, name string) error {
	node, err := f.cfg.Net.Node(name)
	if err != nil {
		return err
	}
	if p := f.last(name); p != nil && p.Running() {
		return fmt.Errorf("the proxy of %s already runs", name)
	}
	if err := f.launch(node); err != nil {
		return err
	}
	return f.awaitReady(ctx, node)
}

func logName(node string) string { return "proxy-" + node }

func (f *Fleet) launch(node *topology.Node) error {
	start, err := f.processSpec(node)
	if err != nil {
		return err
	}
	start.Env = slices.Concat(programsEnv(f.spec(node.Name)), start.Env) // the subject's ready and cleanup commands never fail by a block
	f.passBlock(node.Name)
	p, err := node.Start(f.cfg.Procs, topology.GroupProxy, start)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.live[node.Name] = p
	f.mu.Unlock()
	spec := f.spec(node.Name)
	f.record(node.Name, record.ProxyStarted, spec.String()+" started")
	go func() {
		<-p.Done()
		f.recordOf(spec, node.Name, record.ProxyExited, spec.String()+" exited: "+p.ExitText())
	}()
	return nil
}

// readyTimeout bounds the time from a proxy's start to its readiness, where a file gives no other.
const readyTimeout = 90 * time.Second

func (s Spec) readyWithin() time.Duration {
	if s.Exec == nil {
		return readyTimeout
	}
	return cmp.Or(s.Exec.Ready.Within, readyTimeout)
}

func (f *Fleet) awaitReady(ctx context.Context, node *topology.Node) error {
	within := f.spec(node.Name).readyWithin()
	end := f.cfg.Now() + within
	for {
		unready := f.checkReady(ctx, node)
		if err := f.SyncError(); err != nil {
			return err
		}
		if err := f.exited(node.Name); err != nil {
			return err
		}
		if unready == nil {
			break
		}
		if f.cfg.Now() > end {
			return fmt.Errorf("%s on %s did not become ready within %s: %w; its last lines:\n%s",
				f.spec(node.Name), node.Name, within, unready, f.cfg.Procs.Tail(logName(node.Name), 12))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond): // interval of the checks
		}
	}
	f.record(node.Name, record.ProxyReady, f.spec(node.Name).String()+" is ready")
	return nil
}

// Exited returns an error for the first proxy that was started and has ended, with its exit status and the last line of its log;
// nil when all run. Callers use it before the scenario, which may end proxies itself.
func (f *Fleet) Exited() error {
	for _, node := range f.cfg.Net.Nodes {
		if err := f.exited(node.Name); err != nil {
			return err
		}
	}
	return nil
}

func (f *Fleet) exited(node string) error {
	p := f.last(node)
	if p == nil || p.Running() {
		return nil
	}
	said := "its log is empty"
	if line := strings.TrimSpace(f.cfg.Procs.Tail(logName(node), 1)); line != "" {
		said = "its last log line is: " + line
	}
	return fmt.Errorf("%s on %s has exited by itself (%s): a proxy runs in the foreground until it is told to end; %s",
		f.spec(node), node, p.ExitText(), said)
}

// checkReady returns the reason why a proxy is not ready; nil when it is.
func (f *Fleet) checkReady(ctx context.Context, node *topology.Node) error {
	if f.spec(node.Name).Exec != nil {
		return f.checkExecReady(ctx, node)
	}
	mode, err := get(ctx, node, "http://127.0.0.1:10249/proxyMode")
	if err != nil {
		return fmt.Errorf("reading its mode: %w", err)
	}
	if want := f.spec(node.Name).Mode; strings.TrimSpace(mode) != want {
		return fmt.Errorf("its mode is %q instead of %q", mode, want)
	}
	if _, err := get(ctx, node, "http://127.0.0.1:10256/healthz"); err != nil {
		return fmt.Errorf("checking its health: %w", err)
	}
	return nil
}

func get(ctx context.Context, ns *topology.Node, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return ns.DialContext(ctx, network, addr)
		}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, strings.TrimSpace(string(body)))
	}
	return string(body), err
}

// syncFailure matches what kube-proxy logs when a sync fails halfway (proxier.go of 1.11 to 1.37).
var syncFailure = regexp.MustCompile(`(?i)failed to execute iptables-restore|failed to ensure (that )?chain|failed to ensure ip ?set|` +
	`failed to add entry: .* to ip set|can't (use ip_?vs proxier|determine whether to use ipvs)|falling back to|sync failed`)

// cleanupFailure matches what kube-proxy logs when it fails to remove the state of another mode, which is no failed sync: on each
// switch from ipvs in 1.37 (cleanup.go), and on each restart in 1.12, where rules of its own mode refer to the chains
// (CleanupLeftovers of the iptables mode, with iptables 1.8.9).
var cleanupFailure = regexp.MustCompile(`^E\S+ \S+ +\d+ (cleanup\.go:|proxier\.go:\d+\] Failed to execute iptables-restore for (nat|filter):)`)

func isSyncError(line string) bool {
	return syncFailure.MatchString(line) && !cleanupFailure.MatchString(line)
}

// SyncError returns an error that quotes the first failed sync in the proxies' logs; nil when there is none. A scenario checks it
// after its Services are programmed: without Services a proxy has no sync that could fail, and a failure of the node's setup would
// look like a bug of the proxy.
func (f *Fleet) SyncError() error {
	for _, node := range f.cfg.Net.Nodes {
		if line := f.syncErrorLine(node.Name); line != "" {
			return fmt.Errorf("%s on %s cannot be tested: its sync failed: %s", f.spec(node.Name), node.Name, line)
		}
	}
	return nil
}

func (f *Fleet) syncErrorLine(node string) string {
	if f.spec(node).Exec != nil || f.wasBlocked(node) {
		return "" // its log messages are not known, or the run itself made its syncs fail
	}
	for line := range strings.SplitSeq(f.cfg.Procs.TailFrom(logName(node), f.judgedFrom(node), 200), "\n") {
		if isSyncError(line) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

func (f *Fleet) process(node string) (*procs.Process, error) {
	p := f.last(node)
	if p == nil || !p.Running() {
		return nil, fmt.Errorf("no proxy runs on %q", node)
	}
	return p, nil
}

// Stop stops the proxy of a node with SIGTERM or the signal of its file, and with SIGKILL after the timeout.
func (f *Fleet) Stop(ctx context.Context, node string) error {
	p, err := f.process(node)
	if err != nil {
		return err
	}
	sig, within := f.spec(node).stopSignal()
	return p.StopWith(ctx, sig, within)
}

// Kill kills the proxy of a node with SIGKILL.
func (f *Fleet) Kill(_ context.Context, node string) error {
	return f.signal(node, syscall.SIGKILL, record.ProxyKilled)
}

// Freeze suspends the proxy of a node with SIGSTOP.
func (f *Fleet) Freeze(node string) error {
	return f.signal(node, syscall.SIGSTOP, record.ProxyStopped)
}

// Thaw continues a frozen proxy with SIGCONT.
func (f *Fleet) Thaw(node string) error {
	return f.signal(node, syscall.SIGCONT, record.ProxyContinued)
}

// Frozen reports whether the proxy of a node is suspended: state T of proc_pid_stat(5).
func (f *Fleet) Frozen(node string) (bool, error) {
	p, err := f.process(node)
	if err != nil {
		return false, err
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))
	if err != nil {
		return false, fmt.Errorf("reading the state of the proxy of %s: %w", node, err)
	}
	_, rest, _ := strings.Cut(string(data), ") ") // the program name before it may contain spaces
	return strings.HasPrefix(rest, "T"), nil
}

func (f *Fleet) signal(node string, sig syscall.Signal, state record.ProxyState) error {
	p, err := f.process(node)
	if err != nil {
		return err
	}
	f.record(node, state, f.spec(node).String()+" "+string(state))
	if err := p.Signal(sig); err != nil {
		return fmt.Errorf("sending %v to the proxy of %s: %w", sig, node, err)
	}
	if sig == syscall.SIGKILL {
		<-p.Done()
	}
	return nil
}

// Quiet returns the time since the last write to the log of the node's proxy.
func (f *Fleet) Quiet(node string) (time.Duration, error) {
	log, err := os.Stat(f.cfg.Procs.LogFile(logName(node)))
	if err != nil {
		return 0, fmt.Errorf("reading the log of the proxy of %s: %w", node, err)
	}
	return time.Since(log.ModTime()), nil
}

// RecordLogs records events from the proxies' logs; see observers.ProxyLog. It is for one call at the end of a run.
func (f *Fleet) RecordLogs(nearFailure func(time.Duration) bool) error {
	wall, now := time.Now(), f.cfg.Now()
	for _, node := range f.cfg.Net.Nodes {
		log := observers.ProxyLog{Node: node.Name, File: f.cfg.Procs.LogFile(logName(node.Name)), NearFailure: nearFailure, WallClock: wall, Now: now}
		if err := log.Record(f.cfg.Recorder); err != nil {
			return err
		}
	}
	return nil
}

// Pid is the process id of the node's proxy.
func (f *Fleet) Pid(node string) (int, error) {
	p, err := f.process(node)
	if err != nil {
		return 0, err
	}
	return p.Pid(), nil
}

func (f *Fleet) record(node string, state record.ProxyState, text string) {
	f.recordOf(f.spec(node), node, state, text)
}

func (f *Fleet) recordOf(s Spec, node string, state record.ProxyState, text string) {
	f.cfg.Recorder.Event(record.Event{At: f.cfg.Now(), Node: node, Object: s.String(),
		Text: text, Body: record.Proxy{State: state}})
}
