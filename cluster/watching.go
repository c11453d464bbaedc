package cluster

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// Watched is what a watch follows: the Services of a namespace (empty for all) by a label selector, and with NodePorts the nodes.
type Watched struct {
	Namespace, Selector string
	NodePorts           bool
}

// Ask lists one object of each watched kind in each interval until ctx ends, and passes the result to answered. So silences of the API
// server, and rights that the user no longer has, are noticed also while nothing changes.
func (c *Cluster) Ask(ctx context.Context, interval time.Duration, w Watched, answered func(error)) {
	for ctx.Err() == nil {
		answered(c.list(ctx, w))
		if c.clock().Sleep(ctx, interval) != nil {
			return
		}
	}
}

func (c *Cluster) list(ctx context.Context, w Watched) error {
	_, err := c.Client.CoreV1().Services(w.Namespace).List(ctx, metav1.ListOptions{LabelSelector: w.Selector, Limit: 1})
	if err == nil && w.NodePorts {
		_, err = c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
	}
	return err
}

// Refused reports whether the API server refused a request: the credentials are not accepted, or the user lacks a right.
func Refused(err error) bool { return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) }
