package run

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
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/scenarios"
)

// Live says on which cluster to run instead of a lab's.
type Live struct {
	Kubeconfig string
	Context    string // of the kubeconfig; its current one when empty
	InCluster  bool   // the cluster that this process is a pod of, instead of a kubeconfig
	Kind       string // version of Kubernetes of a cluster that is made for the run; Options.Nodes are those that take pods
	// Provider makes that cluster; kind's when nil.
	Provider func(context.Context) (support.E2EClusterProvider, error)
	// Target is where the lanes go: loadbalancer (when empty) or nodeport.
	Target string
	// Patience is how long the Service may take to get its address; 3 minutes when 0.
	Patience time.Duration
	DryRun   bool       // say what would be done, and stop
	Fleet    *LiveFleet // probes in the cluster; nil for none
	// AllowDisruption says that what is not the run's own may be changed: nodes, and the proxy's DaemonSet.
	AllowDisruption bool
	// Clock is what the cluster is waited for by; the wall's when nil. Lanes run by the real clock in any case.
	Clock cluster.Clock
}

// Named says whether a cluster is named.
func (l *Live) Named() bool { return l.Kubeconfig != "" || l.InCluster || l.Kind != "" }

// open makes clients for the cluster. The error is a UsageError.
func (l *Live) open() (*cluster.Cluster, error) {
	var c *cluster.Cluster
	var err error
	if l.InCluster {
		c, err = cluster.OpenInPod()
	} else {
		c, err = cluster.Open(l.Kubeconfig, l.Context)
	}
	if err != nil {
		return nil, UsageError{err}
	}
	if l.Clock != nil {
		c.By(l.Clock)
	}
	return c, nil
}

// who is whose rights a run has.
func (l *Live) who() string {
	if l.InCluster {
		return "this pod's service account"
	}
	return "the user of " + l.Kubeconfig
}

// flags are those that name the cluster, less what is of this machine alone.
func (l *Live) flags() string {
	switch {
	case l.InCluster:
		return "--in-cluster"
	case l.Kind != "":
		return "--kind " + l.Kind
	}
	return "--kubeconfig FILE"
}

// liveRun is a run on a live cluster.
type liveRun struct {
	Options
	scenario  scenarios.Scenario
	params    scenarios.Params
	cluster   *cluster.Cluster
	facts     cluster.Facts
	namespace string
	notes     []string
	begin     time.Time
}

// runLive runs a scenario on a live cluster, from this machine, by the real clock. Whatever becomes of the run, its namespace is
// deleted, or named when that cannot be done.
func runLive(ctx context.Context, o Options) (*Result, error) {
	r, err := planLive(o)
	if err != nil {
		return nil, err
	}
	if r.Live.Kind != "" && r.Live.Kubeconfig == "" {
		return runOnKind(ctx, r.Options)
	}
	if r.cluster, err = r.Live.open(); err != nil {
		return nil, err
	}
	if err := r.preflight(ctx); err != nil {
		return nil, err
	}
	if r.Live.DryRun {
		r.message("nothing was done")
		return &Result{}, nil
	}
	if err := makeOut(&r.Options); err != nil {
		return nil, err
	}
	if err := clearOut(r.Out); err != nil {
		return nil, err
	}
	r.begin = time.Now()
	runErr := r.inNamespace(ctx)
	if runErr != nil && r.namespace == "" {
		return nil, UsageError{runErr}
	}
	return r.collect(runErr)
}

// planLive checks the call. Every error is a UsageError.
func planLive(o Options) (*liveRun, error) {
	if err := o.fillDefaults(); err != nil {
		return nil, err
	}
	if err := o.checkNumbers(); err != nil {
		return nil, err
	}
	s, params, err := scenarios.Select(o.Scenario, LiveOffers, o.Set)
	if err != nil {
		return nil, UsageError{err}
	}
	r := &liveRun{Options: o, scenario: s, params: params}
	live := *o.Live
	r.Live = &live
	fleet := LiveFleet{}
	if live.Fleet != nil {
		fleet = *live.Fleet
	}
	r.Live.Fleet = &fleet
	if err := r.Live.Fleet.check(); err != nil {
		return nil, err
	}
	if live.Patience == 0 {
		r.Live.Patience = 3 * time.Minute
	}
	if live.Clock == nil {
		r.Live.Clock = cluster.Wall{}
	}
	switch live.Target {
	case "":
		r.Live.Target = "loadbalancer"
	case "loadbalancer":
	case "nodeport":
		if scenarios.TrafficPolicy.Of(r.params) != string(corev1.ServiceExternalTrafficPolicyCluster) {
			return nil, usagef("--target nodeport measures over one node's address, which externalTrafficPolicy: Local serves only while a pod is on that node; give --set trafficPolicy=Cluster")
		}
	default:
		return nil, usagef("--target %q: give loadbalancer or nodeport", live.Target)
	}
	return r, nil
}

// preflight finds out what the cluster is and whether the run may do what it needs to, and says what it will touch.
func (r *liveRun) preflight(ctx context.Context) (err error) {
	needs := r.needs()
	denied, err := r.cluster.Denied(ctx, needs)
	if err != nil {
		return UsageError{err}
	}
	if r.Live.DryRun {
		r.message("it needs these verbs " + wheres(needs))
	}
	if len(denied) > 0 {
		return usagef("%s lacks what this run needs: %s; docs/clusters.md has a ClusterRole with just that", r.Live.who(), verbs(denied))
	}
	if r.facts, err = r.cluster.Look(ctx); err != nil {
		return UsageError{err}
	}
	proxy := r.facts.Proxy + " in mode " + r.facts.Mode
	if r.facts.Unknown != "" {
		proxy = "a proxy that is not known: " + r.facts.Unknown
	}
	r.message(fmt.Sprintf("%s: Kubernetes %s, %d nodes that take pods, %s", r.cluster.Server, r.facts.Version, len(r.facts.Nodes), proxy))
	replicas := scenarios.Replicas.Of(r.params)
	if scenarios.AntiAffinity.Of(r.params) && len(r.facts.Nodes) < replicas {
		return usagef("--set replicas=%d with antiAffinity=on needs a node for each and one for the rollout, and %d nodes take pods; "+
			"give fewer replicas, or --set antiAffinity=off", replicas, len(r.facts.Nodes))
	}
	if err := r.Live.Fleet.fits(len(r.facts.Nodes)); err != nil {
		return err
	}
	r.message(fmt.Sprintf("it makes a namespace hitless-%s-…, two Deployments (%d pods and 1) of %s, and two Services of type %s in it, and deletes it all",
		r.Scenario, replicas, scenarios.Image, r.serviceType()))
	if r.Live.Fleet.wanted() {
		r.message(r.Live.Fleet.touches(len(r.facts.Nodes)))
	}
	return r.touches(ctx)
}

// needs are the verbs of the run.
func (r *liveRun) needs() []cluster.Verb {
	all := cluster.Needs()
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
	if r.Live.Fleet.wanted() {
		all = append(all, cluster.NeedsFleet(r.Live.Fleet.Everywhere)...)
	}
	return all
}

func verbs(all []cluster.Verb) string {
	var words []string
	for _, v := range all {
		if word := v.String(); !slices.Contains(words, word) { // one may be needed in more than one place
			words = append(words, word)
		}
	}
	return strings.Join(words, ", ")
}

// wheres are the verbs by where they are needed.
func wheres(all []cluster.Verb) string {
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

func (r *liveRun) serviceType() corev1.ServiceType {
	if r.Live.Target == "nodeport" {
		return corev1.ServiceTypeNodePort
	}
	return corev1.ServiceTypeLoadBalancer
}

// inNamespace makes the run's namespace, runs the scenario in it, and takes it away.
func (r *liveRun) inNamespace(ctx context.Context) (err error) {
	if r.namespace, err = r.cluster.Make(ctx, r.Scenario, r.Live.Fleet.OnHost); err != nil {
		return err
	}
	r.message("made the namespace " + r.namespace)
	err = r.measure(ctx)
	r.lastPutBack(context.WithoutCancel(ctx))
	r.message("deleting the namespace " + r.namespace)
	grace := scenarios.GracePeriod.Of(r.params) + scenarios.PreStop.Of(r.params)
	// An interrupted run cleans up all the same.
	if left := r.cluster.Remove(context.WithoutCancel(ctx), r.namespace, grace+2*time.Minute); left != nil {
		r.notes = append(r.notes, left.Error())
		r.message(left.Error())
	}
	return err
}

// collect writes host.json, and judges the history.
func (r *liveRun) collect(runErr error) (*Result, error) {
	history := filepath.Join(r.Out, "history")
	facts := hostFacts{Command: os.Args, Out: r.Out, Started: r.begin.UTC().Format(time.RFC3339), WallSeconds: time.Since(r.begin).Seconds(),
		CPU: -1, Notes: append([]string{"the cluster at " + r.cluster.Server + "; nothing makes such runs repeat"}, r.notes...)}
	if err := writeJSON(filepath.Join(r.Out, "host.json"), facts); err != nil {
		return nil, err
	}
	result := &Result{Dir: r.Out, InputsSha256: r.inputs(), Wall: time.Since(r.begin)}
	var err error
	if result.HistorySha256, err = reports.HistorySha256(history); err != nil {
		return result, errors.Join(runErr, err)
	}
	switch {
	case errors.Is(runErr, context.Canceled):
		return result, runErr
	case runErr != nil && !errors.As(runErr, new(*cluster.NoTargetError)):
		return result, &InvalidError{Reason: cluster.Explain(runErr).Error()}
	}
	h, err := reports.OpenHistory(history)
	if err != nil {
		return result, err
	}
	result.Report, err = reports.WriteAll(r.Out, h)
	return result, err
}

// header is what is known of the run before its first event. The cluster's proxy is the subject.
func (r *liveRun) header() reports.Run {
	own := r.scenario.Recorded(LiveOffers, r.params)
	own["target"] = r.Live.Target
	if words := r.Live.Fleet.words(); len(words) > 0 {
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
	return reports.Run{SchemaVersion: reports.HistoryVersion, Scenario: r.Scenario, Parameters: own, Seed: r.Seed, Clock: "real",
		Kernel:  reports.Kernel{Kind: "cluster", Release: r.facts.Nodes[0].Kernel},
		Subject: reports.Subject{Name: proxy, Version: r.facts.Nodes[0].Kubelet, Mode: r.facts.Mode}, ControlPlane: r.facts.Version,
		Nodes: names, InputsSha256: r.inputs(), Command: r.command()}
}

func (r *liveRun) inputs() string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(r.params)) {
		parts = append(parts, key+"="+r.params[key])
	}
	return inputsDigest(append(parts, r.Scenario, r.cluster.Server, r.facts.Version, r.Live.Target, fmt.Sprint(r.Rate, r.Seed), strings.Join(r.Live.Fleet.words(), " "))...)
}

// command is the call, less what is of this machine alone.
func (r *liveRun) command() string {
	words := append([]string{"hitless run", r.Scenario, r.Live.flags(), "--target", r.Live.Target}, r.Live.Fleet.words()...)
	return strings.Join(append(words, r.commonWords()...), " ")
}
