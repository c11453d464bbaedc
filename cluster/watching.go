package cluster

import (
	"context"
	"time"
)

// NeedsWatch are the verbs without which the Services of a namespace (empty for all) cannot be followed; with nodePorts at the addresses
// of the nodes.
func NeedsWatch(namespace string, nodePorts bool) []Verb {
	all := []Verb{{"list", "", "services", "", namespace}, {"watch", "", "services", "", namespace}}
	if nodePorts {
		all = append(all, Verb{"list", "", "nodes", "", ""}, Verb{"watch", "", "nodes", "", ""})
	}
	return all
}

// NeedsCauses are the verbs with which a watch of a namespace (empty for all) explains losses. Without one, it explains fewer of them.
// proxy is the namespace of the proxy's DaemonSet.
func NeedsCauses(namespace, proxy string) []Verb {
	return []Verb{{"list", "discovery.k8s.io", "endpointslices", "", namespace}, {"watch", "discovery.k8s.io", "endpointslices", "", namespace},
		{"list", "", "pods", "", namespace}, {"watch", "", "pods", "", namespace},
		{"list", "", "events", "", namespace}, {"watch", "", "events", "", namespace},
		{"list", "", "nodes", "", ""}, {"watch", "", "nodes", "", ""},
		{"get", "apps", "daemonsets", "", proxy}, {"list", "", "pods", "", proxy}, {"watch", "", "pods", "", proxy},
		{"get", "", "pods", "log", proxy}, {"get", "", "pods", "proxy", proxy}, {"get", "", "configmaps", "", "kube-system"}}
}

// Silence returns since when the API server has not answered, zero while it answers, and when it answered last.
func (c *Cluster) Silence() (since, answered time.Time) {
	c.retrier.mu.Lock()
	defer c.retrier.mu.Unlock()
	return c.retrier.silentSince, c.retrier.lastAnswer
}

// Ask asks the API server for its version in each interval until ctx ends, so that its silences are noticed also while nothing changes.
func (c *Cluster) Ask(ctx context.Context, interval time.Duration) {
	for ctx.Err() == nil {
		_ = c.Client.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error() // the retrier notes it
		if c.clock().Sleep(ctx, interval) != nil {
			return
		}
	}
}
