//go:build linux

package guest

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/e2e-framework/klient/k8s/resources"

	"github.com/hitless/hitless/internal/bench"
	"github.com/hitless/hitless/lab"
	"github.com/hitless/hitless/lab/balancer"
	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/scenarios"
)

const stateDir = "/tmp/lab"

// runners has the standalone programs by the scenario of their plans. Tests of the lab add theirs (build tag lab).
var runners = map[string]func(ctx context.Context, plan Plan, r *recorder, now func() time.Duration) error{
	TryScenario: tryKernel, LabScenario: holdLab, bench.Scenario: measure, routingScenario: checkRouting, costScenario: measureCost,
}

// execute runs the plan. At first it knows the base of the plan; settle returns the whole.
func execute(ctx context.Context, base Plan, settle func() (Plan, error), r *recorder, now func() time.Duration) error {
	if base.lab() {
		return inLab(ctx, base, settle, r, now)
	}
	plan, err := settle()
	if err != nil {
		return err
	}
	return runners[plan.Scenario](ctx, plan, r, now)
}

// inLab runs a scenario in a lab.
func inLab(ctx context.Context, base Plan, settle func() (Plan, error), r *recorder, now func() time.Duration) error {
	if base.Kernel != KernelHost { // the limits of the host stay
		if err := raiseLimits(); err != nil {
			return fmt.Errorf("raising the limits of the lab's kernel: %w", err)
		}
		if err := stopHousekeeping(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var plan Plan
	var scenario scenarios.Scenario
	cfg := labConfig(base, r, now)
	cfg.Choose = func() (choice lab.Choice, err error) {
		if plan, err = settle(); err != nil {
			return choice, err
		}
		if scenario, err = plan.ScenarioEntry(); err != nil {
			return choice, err
		}
		return plan.choice()
	}
	l, err := lab.Up(ctx, cfg)
	if err != nil {
		r.saveLogs(filepath.Join(stateDir, "logs"))
		return err
	}
	go func() {
		if err, more := <-l.Failed(); more {
			cancel(err)
		}
	}()
	running, ended := context.WithCancel(ctx) // the lab's own context ends after Down
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		select {
		case <-r.stopped:
		case <-running.Done():
		}
		if r.hasStopped() { // also with the last event
			stopAndDump(ctx, l, r, now)
			cancel(errors.New(Stopped))
		}
	}()
	err = runScenario(ctx, scenario, plan, l, cancel, r, now)
	ended()
	<-looked
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	if r.hasStopped() {
		err = errors.New(Stopped) // the scenario's own error is a result of the stopped proxies
	}
	l.Down()
	r.saveLogs(filepath.Join(stateDir, "logs"))
	return err
}

// measure runs a benchmark, which saves files and has no history.
func measure(ctx context.Context, plan Plan, r *recorder, now func() time.Duration) error {
	what, err := bench.ParsePlan(plan.Parameters)
	if err != nil {
		return err
	}
	if err := raiseLimits(); err != nil {
		return fmt.Errorf("raising the limits of the lab's kernel: %w", err)
	}
	err = bench.Run(ctx, what, bench.Config{Dir: stateDir, Program: Program, Binaries: Binaries, Now: now, Progress: newConsole(now).stage,
		Save: r.file})
	r.saveLogs(filepath.Join(stateDir, "logs"))
	return err
}

// bootConfig is what the nodes of a plan need to boot.
func bootConfig(p Plan) topology.Config {
	return topology.Config{OwnKernel: p.Kernel != KernelHost, Files: NodeFiles}
}

// labConfig is the configuration of the lab of a plan's base.
func labConfig(base Plan, r *recorder, now func() time.Duration) lab.Config {
	network := bootConfig(base)
	network.Nodes, network.Family = base.Nodes, base.family()
	if network.OwnKernel {
		network.Pacer = vm.NewPacer() // time costs nothing while nothing happens
	}
	return lab.Config{Network: network, ControlPlane: base.ControlPlane, Dir: stateDir, Program: Program, Binaries: Binaries,
		Objects: base.manifests(), Images: base.Images, Recorder: r, Now: now, Progress: newConsole(now).stage}
}

// choice is what the plan adds to a lab whose control plane is up.
func (p Plan) choice() (lab.Choice, error) {
	programs, err := p.programs()
	if err != nil {
		return lab.Choice{}, err
	}
	set := scenarios.Params(p.Parameters)
	var env []string
	if !set.CollectsWhenIdle() {
		env = []string{"GOGC=off", "GOMEMLIMIT=192MiB"}
	}
	return lab.Choice{Subjects: programs, SubjectEnv: env, DaemonSet: p.DaemonSet != nil, IPVSAfterFailure: p.Scenario == "soak",
		Balancer: balancer.Config{Kind: scenarios.BalancerKind.Of(set), Seed: balancerSeed(p.Seed), CheckTarget: scenarios.CheckTarget.Of(set),
			Interval: scenarios.CheckInterval.Of(set), Fall: scenarios.CheckFall.Of(set), Rise: scenarios.CheckRise.Of(set), Flows: scenarios.Flows.Of(set), AsCloud: scenarios.AsCloud.Of(set)},
	}, nil
}

// balancerSeed returns the seed of the balancer's hash, which the kernel takes as 32 bits. Seeds below 2^32 are used as they are;
// of others all 64 bits decide.
func balancerSeed(seed int64) uint32 {
	if high := uint64(seed) >> 32; high == 0 {
		return uint32(seed)
	}
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(seed)))
	return binary.BigEndian.Uint32(sum[:])
}

// runScenario runs a scenario on a lab. died is called when the probe worker ends by itself.
func runScenario(ctx context.Context, s scenarios.Scenario, plan Plan, l *lab.Lab, died func(error), r *recorder, now func() time.Duration) error {
	config, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the lab's kubeconfig: %w", err)
	}
	config.QPS = -1 // the lab's own requests are few; throttling would only add to the virtual time
	cluster, err := resources.New(config)
	if err != nil {
		return fmt.Errorf("reaching the lab's control plane: %w", err)
	}
	from, err := clientOf(l, plan.Parameters)
	if err != nil {
		return err
	}
	failed := newFailures()
	lanes, err := newProber(l, from, plan, failed, died, r, now)
	if err != nil {
		return err
	}
	asked, saveLoop := withLoop(lanes, l, plan, r, now)
	w := &scenarios.World{
		Cluster: cluster, Nodes: l.Net.NodeNames(), Site: newSite(plan.Offers(), l, from, lanes, r, now), Prober: asked,
		Recorder: announcer{r, newConsole(now)}, Clock: runClock{now}, Params: plan.Parameters, Rate: plan.Rate,
		Seed: plan.Seed, Random: rand.New(rand.NewPCG(uint64(plan.Seed), scenarioStream)),
	}
	saveCapture, err := startCapture(l, plan, r, now)
	if err != nil {
		return errors.Join(err, lanes.Close())
	}
	before, begin := countWakeups(), now()
	err = scenarios.Run(ctx, s, w)
	rate, table := countWakeups().since(before, now()-begin)
	newConsole(now).message(fmt.Sprintf("%.1f wake-ups in a second of the run", rate))
	_ = r.frames.WriteFile("logs/wakeups.txt", []byte(table)) // not part of the measurement
	if err := errors.Join(err, lanes.Close(), saveLoop(), saveCapture(), l.Proxies.RecordLogs(failed.near)); err != nil {
		return err
	}
	return l.Proxies.Retire(ctx)
}

// scenarioStream separates the scenario's random numbers from others of the same seed.
const scenarioStream = 1

// saveLogs sends the logs of the lab's programs to the run's folder.
func (r *recorder) saveLogs(dir string) {
	files, _ := filepath.Glob(filepath.Join(dir, "*.log"))
	for _, file := range files {
		const most = 4 << 20
		data, err := os.ReadFile(file)
		if err == nil {
			_ = r.frames.WriteFile("logs/"+filepath.Base(file), data[max(0, len(data)-most):]) // logs are not part of the measurement
		}
	}
}
