package clusterwatch

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hitless/hitless/cluster"
	"github.com/hitless/hitless/record"
)

// open makes clients for the cluster and checks the user's permissions.
func (w *watcher) open(ctx context.Context) (err error) {
	w.o.Rate = cmp.Or(w.o.Rate, DefaultRate)
	w.o.Proxy, w.o.Within = cmp.Or(w.o.Proxy, DefaultProxy), cmp.Or(w.o.Within, startLimit)
	if err := w.o.check(); err != nil {
		return err
	}
	if w.cluster, err = cluster.Open(w.o.Kubeconfig, w.o.Context); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, w.o.Within)
	defer cancel()
	needs := cluster.NeedsWatch(w.o.Namespace, w.o.NodePorts)
	denied, err := w.cluster.Denied(ctx, needs)
	if err != nil {
		return w.unreachable(ctx, err)
	}
	if len(denied) > 0 {
		return fmt.Errorf("the kubeconfig's user lacks what a watch needs%s: %s; docs/watching-an-upgrade.md has a ClusterRole and a Role with all verbs",
			in(w.o.Namespace), words(denied))
	}
	namespace, _, _ := strings.Cut(w.o.Proxy, "/")
	if w.denied, err = w.cluster.Denied(ctx, cluster.NeedsCauses(w.o.Namespace, namespace)); err != nil {
		return w.unreachable(ctx, err)
	}
	if len(w.denied) > 0 {
		w.note("the kubeconfig's user lacks " + words(w.denied) + ": the watch measures all the same, and explains fewer losses")
	}
	w.readFacts(ctx)
	return nil
}

// readFacts reads what the header of the record has. It may be unknown: somebody is changing the cluster.
func (w *watcher) readFacts(ctx context.Context) {
	var err error
	if w.facts, err = w.cluster.Facts(ctx); err != nil {
		w.note("the header of the record does not describe the cluster: " + err.Error())
	} else if w.facts.Unknown != "" {
		w.note("the mode of the proxy is unknown: " + w.facts.Unknown)
	}
}

// note prints a remark, and records it when the record begins.
func (w *watcher) note(text string) {
	w.o.Progress(text)
	w.notes = append(w.notes, text)
}

// unreachable explains an error of the API server before the start.
func (w *watcher) unreachable(ctx context.Context, err error) error {
	if ctx.Err() == context.DeadlineExceeded {
		return fmt.Errorf("the API server %s did not answer within %v: %w; check the kubeconfig, and whether this machine reaches it", w.cluster.Server, w.o.Within, err)
	}
	return cluster.Explain(err)
}

func in(namespace string) string {
	if namespace == "" {
		return " in all namespaces (--namespace NAME asks for less)"
	}
	return " in the namespace " + namespace
}

// words lists permissions once each.
func words(verbs []cluster.Verb) string {
	var all []string
	for _, v := range verbs {
		if word := v.String(); !slices.Contains(all, word) {
			all = append(all, word)
		}
	}
	return strings.Join(all, ", ")
}

// can reports whether the user has the optional permission.
func (w *watcher) can(verb, resource, subresource string) bool {
	return !slices.ContainsFunc(w.denied, func(v cluster.Verb) bool {
		return v.Verb == verb && v.Resource == resource && v.Subresource == subresource
	})
}

// canFollow reports whether the user may list and watch a resource.
func (w *watcher) canFollow(resource string) bool {
	return w.can("list", resource, "") && w.can("watch", resource, "")
}

// header is the header of the record. The subject is the cluster's proxy.
func (w *watcher) header(ctx context.Context) (record.Run, error) {
	parameters := w.o.parameters()
	inputs := maps.Clone(parameters)
	inputs["server"] = w.cluster.Server
	run, err := w.o.Header(ctx, inputs, "namespace", "selector", "target", "protocol", "policy", "close", "path", "rate", "duration", "server")
	if err != nil {
		return run, err
	}
	var node cluster.Node // any: they have the same versions, unless somebody is changing them
	if len(w.facts.Nodes) > 0 {
		node = w.facts.Nodes[0]
	}
	for _, n := range w.facts.Nodes {
		run.Nodes = append(run.Nodes, n.Name)
	}
	run.Scenario, run.Parameters, run.ControlPlane = Scenario, parameters, w.facts.Version
	run.Kernel = record.Kernel{Kind: "cluster", Release: cmp.Or(node.Kernel, run.Kernel.Release)}
	run.Subject = record.Subject{Name: cmp.Or(w.facts.Proxy, "cluster"), Version: node.Kubelet, Mode: w.facts.Mode}
	return run, nil
}

func (o Options) parameters() map[string]string {
	duration, target := "until it was ended", "external"
	if o.Duration > 0 {
		duration = o.Duration.Round(time.Millisecond).String()
	}
	if o.NodePorts {
		target = "nodePort"
	}
	return map[string]string{"namespace": o.Namespace, "selector": o.Selector, "target": target, "proxy": o.Proxy, "protocol": o.Protocol, "policy": o.Policy,
		"close": o.Close, "path": o.Path, "rate": strconv.FormatFloat(o.Rate, 'g', -1, 64), "duration": duration}
}
