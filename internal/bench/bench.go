// Package bench measures the cost of a proxy for each number of Services: the time from a write to the API until the kernel serves
// the change, CPU, memory and netlink messages. It runs in the lab's kernel on the replay control plane and makes no connections.
//
// Each subject has a node of its own and gets the same objects and changes. A time starts at the write in the API server, which is
// part of this program, and ends when this program reads the change from IPVS or nftables. It reads at least every 0.2 ms or 0.5 %
// of the elapsed time.
package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/hitless/hitless/lab/kube"
	"github.com/hitless/hitless/lab/procs"
	"github.com/hitless/hitless/lab/replay"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/topology"
)

// Scenario is the name of the benchmark as a scenario of a run's plan; its parameters are those of Plan.
const Scenario = "bench-proxier"

// ResultFile is the file with the rows in a run's directory.
const ResultFile = "bench/rows.json"

// Plan is one benchmark.
type Plan struct {
	Subjects []Subject
	Services []int // how many, ascending
	Repeat   int   // measurements of each change; the result is their median
}

// Subject is a proxy, optionally with a minimum sync period.
type Subject struct {
	subject.Spec
	MinSync string // a duration; empty for the subject's default
}

// minSync separates a subject's name from its minimum sync period.
const minSync = "?minSync="

// String is the form that ParseSubject reads.
func (s Subject) String() string {
	if s.MinSync == "" {
		return s.Spec.String()
	}
	return s.Spec.String() + minSync + s.MinSync
}

// ParseSubject reads SUBJECT or SUBJECT?minSync=DURATION.
func ParseSubject(text string) (Subject, error) {
	name, period, has := strings.Cut(text, minSync)
	spec, err := subject.Parse(name)
	if err != nil {
		return Subject{}, err
	}
	every, err := time.ParseDuration(period)
	if err == nil && every < 0 {
		err = fmt.Errorf("%s is negative", period)
	}
	if has && err != nil {
		return Subject{}, fmt.Errorf("subject %q: %w; give a duration such as 0s after %s", text, err, minSync)
	}
	if spec.Exec != nil || spec.Mode == "iptables" || spec.Mode == "userspace" {
		return Subject{}, fmt.Errorf("subject %q: its kernel state cannot be read by the benchmark; give bundled or a kube-proxy in mode ipvs or nftables", text)
	}
	return Subject{spec, period}, nil
}

// Parameters encodes the plan as parameters of a run.
func (p Plan) Parameters() map[string]string {
	var subjects, services []string
	for _, s := range p.Subjects {
		subjects = append(subjects, s.String())
	}
	for _, n := range p.Services {
		services = append(services, strconv.Itoa(n))
	}
	return map[string]string{"subjects": strings.Join(subjects, ","), "services": strings.Join(services, ","), "repeat": strconv.Itoa(p.Repeat)}
}

// ParsePlan decodes Parameters.
func ParsePlan(parameters map[string]string) (Plan, error) {
	var p Plan
	for text := range strings.SplitSeq(parameters["subjects"], ",") {
		s, err := ParseSubject(text)
		if err != nil {
			return p, err
		}
		if v := p.KubeProxy(); v.Version != "" && s.Name == "kube-proxy" && s.Version != v.Version {
			return p, fmt.Errorf("%s and %s: a benchmark can have one version of kube-proxy", s, v)
		}
		p.Subjects = append(p.Subjects, s)
	}
	for text := range strings.SplitSeq(parameters["services"], ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < steps || n > most || len(p.Services) > 0 && n <= p.Services[len(p.Services)-1] {
			return p, fmt.Errorf("%q Services: give ascending numbers from %d to %d", parameters["services"], steps, most)
		}
		p.Services = append(p.Services, n)
	}
	var err error
	if p.Repeat, err = strconv.Atoi(parameters["repeat"]); err != nil || p.Repeat < 1 || p.Repeat+messageCounts > steps {
		return p, fmt.Errorf("%q times: give a number from 1 to %d", parameters["repeat"], steps-messageCounts)
	}
	if n := len(p.Subjects) * len(p.Services); n > topology.MaxNodes {
		return p, fmt.Errorf("%d measurements: a lab has room for %d", n, topology.MaxNodes)
	}
	return p, nil
}

// KubeProxy returns the kube-proxy that the plan needs, or the bundled proxier when it needs none.
func (p Plan) KubeProxy() subject.Spec {
	for _, s := range p.Subjects {
		if s.Name == "kube-proxy" {
			return s.Spec
		}
	}
	return subject.Bundled
}

// Config is the environment of a benchmark.
type Config struct {
	Dir      string // for state and logs
	Program  string // hitless
	Binaries string // folder of kube-proxy
	Now      func() time.Duration
	Progress func(string)
	Save     func(name string, data []byte) // a file for the run's folder
}

// bench is a running benchmark.
type bench struct {
	Config
	plan       Plan
	net        *topology.Network
	procs      *procs.Supervisor
	fleet      *fleet
	kubeconfig string
	counter    *counter
}

// Run runs the benchmark. It saves the rows after each one, so that an early end keeps the complete ones.
func Run(ctx context.Context, plan Plan, cfg Config) (err error) {
	// The API server must run while the observer is in system calls.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	// Thousands of Services exceed the memory limit of other runs: the garbage collector would use up the CPU that the subject
	// shares.
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	b := &bench{Config: cfg, plan: plan, fleet: newFleet(replay.New())}
	if b.procs, err = procs.New(filepath.Join(cfg.Dir, "logs")); err != nil {
		return err
	}
	defer b.procs.StopAll(time.Second)
	if b.net, err = topology.New(len(plan.Subjects) * len(plan.Services)); err != nil {
		return err
	}
	defer b.net.Close()
	if b.counter, err = newCounter(); err != nil {
		cfg.Progress("netlink messages are not counted: " + err.Error())
	}
	ctx, cancel := context.WithCancel(ctx)
	served := make(chan error, 1)
	defer func() { cancel(); err = errors.Join(err, <-served) }()
	if err := b.serve(ctx, served); err != nil {
		served <- nil
		return err
	}
	return b.measure(ctx)
}

func (b *bench) serve(ctx context.Context, served chan<- error) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(topology.ControlAddr.String(), "8001"))
	if err != nil {
		return fmt.Errorf("starting the replay control plane: %w", err)
	}
	b.kubeconfig = filepath.Join(b.Dir, "replay.kubeconfig")
	config := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"lab",
"clusters":[{"name":"lab","cluster":{"server":"http://%s"}}],"users":[{"name":"lab","user":{}}],
"contexts":[{"name":"lab","context":{"cluster":"lab","user":"lab"}}]}`, listener.Addr())
	if err := os.WriteFile(b.kubeconfig, []byte(config), 0o600); err != nil {
		listener.Close()
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	go func() { served <- b.fleet.server.Serve(ctx, listener) }()
	client, err := kube.NewClient(b.kubeconfig, "")
	if err != nil {
		return err
	}
	for _, n := range b.net.Nodes {
		if err := kube.CreateNode(ctx, client, kube.NodeOf(n)); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) measure(ctx context.Context) error {
	var rows []Row
	nodes := b.net.Nodes
	for _, n := range b.plan.Services {
		b.Progress(fmt.Sprintf("writing %d Services of %d endpoints", n, endpoints))
		if err := b.fleet.grow(n); err != nil {
			return err
		}
		for _, s := range b.plan.Subjects {
			row, err := b.trial(ctx, s, nodes[0])
			if err != nil {
				return fmt.Errorf("measuring %s at %d Services: %w", s, n, err)
			}
			nodes = nodes[1:]
			rows = append(rows, row)
			b.Progress(row.String())
			data, err := json.MarshalIndent(rows, "", "  ")
			if err != nil {
				return err
			}
			b.Save(ResultFile, data)
		}
	}
	return nil
}

// median of an odd number of values; the larger of the middle ones of an even number.
func median[T cmp.Ordered](values []T) T {
	sorted := sortedCopy(values)
	return sorted[len(sorted)/2]
}
