package site

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/e2e-framework/support"

	"github.com/hitless/hitless/cluster"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

// The values of LiveOptions.Target.
const (
	TargetLoadBalancer = "loadBalancer"
	TargetNodePort     = "nodePort" // at a node's address
)

// LiveOptions are the options of runs on a live cluster.
type LiveOptions struct {
	Kubeconfig string
	Context    string // of the kubeconfig; empty for its current one
	InCluster  bool   // the cluster that this process is a pod of, instead of a kubeconfig
	Kind       string // Kubernetes version of a cluster that kind makes for the run
	Nodes      int    // that take pods in a cluster that kind makes; package run fills it in
	// Provider makes that cluster; nil for kind.
	Provider func(context.Context) (support.E2EClusterProvider, error)
	// Target is where the lanes go: TargetLoadBalancer (also if empty) or TargetNodePort.
	Target string
	// Patience is how long the Service may take to get its address; 0 for 3 minutes.
	Patience time.Duration
	DryRun   bool          // describe the run, and stop
	Fleet    *FleetOptions // probes in the cluster; nil for none
	// AllowDisruption permits changes of objects that are not the run's own: nodes, and the proxy's DaemonSet.
	AllowDisruption bool
	// Clock is the clock for waits for the cluster; nil for the real one. Lanes use the real clock in any case.
	Clock cluster.Clock
}

// Named reports whether a cluster is named.
func (l *LiveOptions) Named() bool { return l.Kubeconfig != "" || l.InCluster || l.Kind != "" }

// Open makes clients for the cluster. The error is a UsageError.
func (l *LiveOptions) Open() (*cluster.Cluster, error) {
	var c *cluster.Cluster
	var err error
	if l.InCluster {
		c, err = cluster.OpenInPod()
	} else {
		c, err = cluster.Open(l.Kubeconfig, l.Context)
	}
	if err != nil {
		return nil, UsageError{Reason: err}
	}
	if l.Clock != nil {
		c.SetClock(l.Clock)
	}
	return c, nil
}

// user describes the user whose rights a run has.
func (l *LiveOptions) user() string {
	if l.InCluster {
		return "this pod's service account"
	}
	return "the user of " + l.Kubeconfig
}

// option has the options that name the cluster, without paths of this machine.
func (l *LiveOptions) option() string {
	switch {
	case l.InCluster:
		return "--in-cluster"
	case l.Kind != "":
		return "--kind " + l.Kind
	}
	if l.Context != "" {
		return "--kubeconfig FILE --context " + record.Word(l.Context)
	}
	return "--kubeconfig FILE"
}

// Cluster is a live cluster. Its clock is the real one.
type Cluster struct {
	Call
	live      LiveOptions
	scenario  scenarios.Scenario
	params    scenarios.Params
	cluster   *cluster.Cluster
	facts     cluster.Facts
	namespace string
	notes     []string
	begin     time.Time
	program   string // digest of hitless
}

// NewCluster checks the call. It returns a Throwaway if a cluster is to be made for the run. Every error is a UsageError.
func NewCluster(call Call, live LiveOptions) (Site, error) {
	c, err := newCluster(call, live)
	if err != nil {
		return nil, err
	}
	if live.Kind != "" && live.Kubeconfig == "" {
		return &Throwaway{Cluster: c}, nil
	}
	return c, nil
}

func newCluster(call Call, live LiveOptions) (*Cluster, error) {
	s, params, err := scenarios.Select(call.Scenario, LiveOffers, call.Set)
	if err != nil {
		return nil, UsageError{Reason: err}
	}
	c := &Cluster{Call: call, live: live, scenario: s, params: params}
	fleet := FleetOptions{}
	if live.Fleet != nil {
		fleet = *live.Fleet
	}
	c.live.Fleet = &fleet
	if err := c.live.Fleet.check(); err != nil {
		return nil, err
	}
	if live.Patience == 0 {
		c.live.Patience = 3 * time.Minute
	}
	if live.Clock == nil {
		c.live.Clock = cluster.RealClock{}
	}
	switch live.Target {
	case "":
		c.live.Target = TargetLoadBalancer
	case TargetLoadBalancer:
	case TargetNodePort:
		if scenarios.TrafficPolicy.Of(c.params) != string(corev1.ServiceExternalTrafficPolicyCluster) {
			return nil, Usagef("--target nodePort measures over one node's address, which externalTrafficPolicy: Local serves only while a pod is on that node; give --set trafficPolicy=Cluster")
		}
	default:
		return nil, Usagef("--target %q: give loadBalancer or nodePort", live.Target)
	}
	return c, nil
}

// Prepare makes clients for the cluster and checks it.
func (r *Cluster) Prepare(ctx context.Context) (err error) {
	if r.cluster, err = r.live.Open(); err != nil {
		return err
	}
	r.cluster.AnnounceSilences(r.message)
	if err := r.preflight(ctx); err != nil {
		return err
	}
	if r.live.DryRun {
		r.message(ErrDryRun.Error())
		return ErrDryRun
	}
	if r.program, err = r.programSha256(ctx); err != nil {
		return err
	}
	return r.claim(r.command())
}

// World runs the scenario in a namespace of its own, which is deleted in any case, or named if it cannot be deleted.
func (r *Cluster) World(ctx context.Context) error {
	if err := r.clear(); err != nil {
		return err
	}
	r.begin = time.Now()
	return r.inNamespace(ctx)
}

// preflight reads the facts of the cluster, checks the rights of the user, and reports what the run will change.
func (r *Cluster) preflight(ctx context.Context) (err error) {
	needs := r.needs()
	if r.live.DryRun {
		r.message("it needs these verbs " + verbsByScope(needs))
	}
	if err := r.checkAccess(ctx, needs); err != nil {
		return err
	}
	if r.facts, err = r.cluster.Facts(ctx); err != nil {
		return UsageError{Reason: err}
	}
	proxy := r.facts.Proxy + " in mode " + r.facts.Mode
	if r.facts.Unknown != "" {
		proxy = "an unknown proxy: " + r.facts.Unknown
	}
	r.message(fmt.Sprintf("%s: Kubernetes %s, %d nodes that take pods, %s", r.cluster.Server, r.facts.Version, len(r.facts.Nodes), proxy))
	replicas := scenarios.Replicas.Of(r.params)
	if scenarios.AntiAffinity.Of(r.params) && len(r.facts.Nodes) < replicas {
		return UsageError{Reason: &FewNodesError{fmt.Sprintf("--set replicas=%d with antiAffinity=on needs a node for each and one for the rollout, and %d nodes take pods; "+
			"give fewer replicas, or --set antiAffinity=off", replicas, len(r.facts.Nodes))}}
	}
	if err := r.live.Fleet.fits(len(r.facts.Nodes)); err != nil {
		return err
	}
	r.message(fmt.Sprintf("it makes a namespace hitless-%s-…, two Deployments (%d pods and 1) of %s, and two Services of type %s in it, and deletes it all",
		r.Scenario, replicas, scenarios.Image, r.serviceType()))
	if r.live.Fleet.wanted() {
		r.message(r.live.Fleet.touches(len(r.facts.Nodes)))
	}
	return r.touches(ctx)
}

// CheckAccess checks the rights of the user for runs on one live cluster, before the first of them. The UsageError names all verbs that
// the user lacks.
func CheckAccess(ctx context.Context, all []Site) (err error) {
	var first *Cluster
	var needs []cluster.Verb
	for _, s := range all {
		c, is := s.(*Cluster)
		if !is {
			continue
		}
		if first == nil {
			first = c
		}
		for _, v := range c.needs() {
			if !slices.Contains(needs, v) {
				needs = append(needs, v)
			}
		}
	}
	if first == nil {
		return nil
	}
	if first.cluster, err = first.live.Open(); err != nil {
		return err
	}
	first.cluster.AnnounceSilences(first.message)
	return first.checkAccess(ctx, needs)
}

// checkAccess returns a UsageError that names the verbs that the user lacks.
func (r *Cluster) checkAccess(ctx context.Context, needs []cluster.Verb) error {
	denied, err := r.cluster.Denied(ctx, needs)
	switch {
	case err != nil:
		return UsageError{Reason: err}
	case len(denied) == 0:
		return nil
	}
	advice := ""
	if !slices.ContainsFunc(denied, func(v cluster.Verb) bool { return !slices.Contains(cluster.NeedsRecovery(), v) }) {
		advice = "; or give --set " + scenarios.RecoverWithin.Key + "=0s, and the run does not check whether the proxies recover"
	}
	return Usagef("%s lacks what this run needs: %s; docs/clusters.md has a ClusterRole with just that%s", r.live.user(), verbs(denied), advice)
}

// FewNodesError is a live cluster with too few nodes for a run.
type FewNodesError struct{ Reason string }

// Error is the reason, with advice.
func (e *FewNodesError) Error() string { return e.Reason }

// needs are the API verbs of the run.
func (r *Cluster) needs() []cluster.Verb {
	all := cluster.Needs()
	if scenarios.RecoverWithin.Of(r.params) > 0 {
		all = append(all, cluster.NeedsRecovery()...)
	}
	for _, n := range r.scenario.Access(r.params) {
		where := cluster.InRun
		switch n.Scope {
		case scenarios.InProxy:
			where, _, _ = r.params.ProxySet()
		case scenarios.Anywhere:
			where = ""
		}
		all = append(all, cluster.Verb{Verb: n.Verb, Group: n.Group, Resource: n.Resource, Subresource: n.Subresource, Namespace: where})
	}
	if r.live.Fleet.wanted() {
		all = append(all, cluster.NeedsFleet(r.live.Fleet.Everywhere)...)
	}
	return all
}

func verbs(all []cluster.Verb) string {
	var words []string
	for _, v := range all {
		if word := v.String(); !slices.Contains(words, word) { // a verb can be needed in several namespaces
			words = append(words, word)
		}
	}
	return strings.Join(words, ", ")
}

// verbsByScope lists verbs by namespace.
func verbsByScope(all []cluster.Verb) string {
	var order, words []string
	in := map[string][]cluster.Verb{}
	for _, v := range all {
		if in[v.Namespace] == nil {
			order = append(order, v.Namespace)
		}
		in[v.Namespace] = append(in[v.Namespace], v)
	}
	for _, namespace := range order {
		where := map[string]string{"": "in the whole cluster", cluster.InRun: "in the namespace that it makes"}[namespace]
		words = append(words, cmp.Or(where, "in "+namespace)+": "+verbs(in[namespace]))
	}
	return strings.Join(words, "; ")
}

func (r *Cluster) serviceType() corev1.ServiceType {
	if r.live.Target == TargetNodePort {
		return corev1.ServiceTypeNodePort
	}
	return corev1.ServiceTypeLoadBalancer
}

// inNamespace makes the run's namespace, runs the scenario in it, and deletes it.
func (r *Cluster) inNamespace(ctx context.Context) (err error) {
	if r.namespace, err = r.cluster.MakeNamespace(ctx, r.Scenario, r.live.Fleet.OnHost); err != nil {
		return err
	}
	r.message("made the namespace " + r.namespace)
	err = r.measure(ctx)
	r.lastPutBack(context.WithoutCancel(ctx))
	r.message("deleting the namespace " + r.namespace)
	grace := scenarios.GracePeriod.Of(r.params) + scenarios.PreStop.Of(r.params)
	// An interrupted run cleans up too.
	if left := r.cluster.RemoveNamespace(context.WithoutCancel(ctx), r.namespace, grace+2*time.Minute); left != nil {
		r.notes = append(r.notes, left.Error())
		r.message(left.Error())
	}
	return err
}

// Collect writes host.json, judges the history and seals it.
func (r *Cluster) Collect(runErr error) (*Result, error) { return r.settle(r.collect(runErr)) }

func (r *Cluster) collect(runErr error) (*Result, error) {
	if runErr != nil && r.namespace == "" {
		if errors.As(runErr, new(UsageError)) {
			return nil, runErr
		}
		return nil, UsageError{runErr}
	}
	facts := hostFacts{Command: os.Args, Out: r.Out, Started: r.begin.UTC().Format(time.RFC3339), WallSeconds: time.Since(r.begin).Seconds(),
		CPU: -1, Notes: append([]string{"the cluster at " + r.cluster.Server + "; such runs are not repeatable"}, r.notes...)}
	if err := writeJSON(filepath.Join(r.dir(), record.HostFile), facts); err != nil {
		return nil, err
	}
	result := &Result{Dir: r.dir(), InputsSha256: r.inputs(), Wall: time.Since(r.begin)}
	switch {
	case errors.Is(runErr, context.Canceled):
		return result.interrupted(runErr, r.Sign)
	case runErr != nil && !errors.As(runErr, new(*cluster.NoTargetError)):
		return result.early(&InvalidError{Reason: cluster.Explain(runErr).Error()}, r.Sign)
	}
	return result.judge(r.Sign)
}

// Close releases the folder. World deletes what it makes.
func (r *Cluster) Close(context.Context) { r.release() }

// header is the header of the record. The subject is the cluster's proxy.
func (r *Cluster) header() record.Run {
	own := r.scenario.Recorded(LiveOffers, r.params)
	own["target"] = r.live.Target
	if probes.Unseen != "" {
		own["probes"] = probes.Unseen
	}
	if words := r.live.Fleet.words(); len(words) > 0 {
		own["fleet"] = strings.Join(words, " ")
	}
	var names []string
	for _, n := range r.facts.Nodes {
		names = append(names, n.Name)
	}
	proxy := r.facts.Proxy
	if proxy == "" {
		proxy = "cluster"
	}
	return record.Run{SchemaVersion: record.HistoryVersion, Scenario: r.Scenario, Parameters: own, Seed: r.Seed, Clock: "real",
		Kernel:  record.Kernel{Kind: "cluster", Release: r.facts.Nodes[0].Kernel},
		Subject: record.Subject{Name: proxy, Version: r.facts.Nodes[0].Kubelet, Mode: r.facts.Mode}, ControlPlane: r.facts.Version,
		Nodes: names, InputsSha256: r.inputs(), ProgramSha256: r.program, Command: r.command(), Budget: r.Budget}
}

func (r *Cluster) inputs() string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(r.params)) {
		parts = append(parts, key+"="+r.params[key])
	}
	return inputsDigest(append(parts, r.Scenario, r.cluster.Server, r.facts.Version, r.live.Target, fmt.Sprint(r.Rate, r.Seed), strings.Join(r.live.Fleet.words(), " "))...)
}

// command is the command that repeats the run, without paths of this machine.
func (r *Cluster) command() string {
	words := append(r.verb(filepath.Base), r.live.option(), "--target", r.live.Target)
	words = append(words, r.live.Fleet.words()...)
	if r.live.Nodes > 0 {
		words = append(words, r.nodesOption(r.live.Nodes)...)
	}
	return strings.Join(append(words, r.options(filepath.Base)...), " ")
}
