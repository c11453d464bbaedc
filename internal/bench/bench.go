// Package bench measures what a proxy costs: the time from a write to the API until the kernel has it, CPU, memory and
// netlink messages, for each subject at each number of Services. It runs inside the lab's kernel, on the lab's replay
// control plane. It knows nothing of connections; those are for probes.
//
// Each subject gets a node of its own, the same objects and the same changes. A time begins with the write in the API
// server, which is part of this program, and ends when this program sees the change in the kernel: by IPVS's own interface
// or in the nftables tables, at least every 0.2 ms or 0.5 % of the time that has passed.
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

// Scenario is the scenario of a plan that is such a measurement; its parameters are those of Plan.
const Scenario = "bench-proxier"

// ResultFile is the file of a run's folder that has the rows.
const ResultFile = "bench/rows.json"

// Plan says what is measured.
type Plan struct {
	Subjects []Subject
	Services []int // how many, ascending
	Repeat   int   // how often a change is measured; its time is the median
}

// Subject is a proxy with perhaps another time between its passes than its default.
type Subject struct {
	subject.Spec
	MinSync string // a duration; empty for the subject's default
}

// minSync separates a subject's name from the time between its passes.
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
	if _, err := time.ParseDuration(period); has && err != nil {
		return Subject{}, fmt.Errorf("subject %q: %w; give a duration such as 0s after %s", text, err, minSync)
	}
	if spec.Exec != nil || spec.Mode == "iptables" {
		return Subject{}, fmt.Errorf("subject %q: its kernel state is not one that this measures; give bundled or a kube-proxy in mode ipvs or nftables", text)
	}
	return Subject{spec, period}, nil
}

// Parameters are the plan's form in a run's plan.
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

// ParsePlan reads what Parameters wrote.
func ParsePlan(parameters map[string]string) (Plan, error) {
	var p Plan
	for text := range strings.SplitSeq(parameters["subjects"], ",") {
		s, err := ParseSubject(text)
		if err != nil {
			return p, err
		}
		if v := p.KubeProxy(); v.Version != "" && s.Name == "kube-proxy" && s.Version != v.Version {
			return p, fmt.Errorf("%s beside %s: one version of kube-proxy can be measured at a time", s, v)
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
	if p.Repeat, err = strconv.Atoi(parameters["repeat"]); err != nil || p.Repeat < 1 || p.Repeat+counted > steps {
		return p, fmt.Errorf("%q times: give a number from 1 to %d", parameters["repeat"], steps-counted)
	}
	if n := len(p.Subjects) * len(p.Services); n > topology.MaxNodes {
		return p, fmt.Errorf("%d measurements: a lab has room for %d", n, topology.MaxNodes)
	}
	return p, nil
}

// KubeProxy is the kube-proxy that the plan needs, or the bundled proxier when it needs none.
func (p Plan) KubeProxy() subject.Spec {
	for _, s := range p.Subjects {
		if s.Name == "kube-proxy" {
			return s.Spec
		}
	}
	return subject.Bundled
}

// Config is what a measurement needs of the lab.
type Config struct {
	Dir      string // for state and logs
	Program  string // hitless
	Binaries string // folder of kube-proxy
	Now      func() time.Duration
	Progress func(string)
	Save     func(name string, data []byte) // a file for the run's folder
}

// bench is one measurement under way.
type bench struct {
	Config
	plan       Plan
	net        *topology.Network
	procs      *procs.Supervisor
	fleet      *fleet
	kubeconfig string
	counter    *counter
}

// Run measures, and saves the rows after each of them, so that an early end leaves those that are complete.
func Run(ctx context.Context, plan Plan, cfg Config) (err error) {
	// The observer sits in system calls, and must not keep the API server from running meanwhile.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	// What runs here otherwise has a limit of memory below what thousands of Services take: it would do nothing but collect, on the
	// CPU that it shares with the subject.
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
