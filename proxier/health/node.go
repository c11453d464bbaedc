// Package health serves the health checks of load balancers and kubelets: /healthz and /livez of the node (KEP-3836),
// /readyz, and the healthCheckNodePorts of Services with external traffic policy Local.
package health

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// Node is the health of the proxier. It is safe for concurrent use.
type Node struct {
	period time.Duration
	now    func() time.Time
	count  func(path string, code int)

	mu       sync.Mutex
	updated  time.Time // end of the last complete pass; zero before the first
	queued   time.Time // oldest change that no pass has taken; zero for none
	taken    time.Time // oldest taken change that is not programmed yet; zero for none
	eligible bool
}

// NewNode returns the health of a proxier that has not synchronised yet: unhealthy. It also becomes unhealthy when a
// change is pending for more than twice the period, as in kube-proxy. count is called for each response; it may be
// nil.
func NewNode(period time.Duration, now func() time.Time, count func(path string, code int)) *Node {
	if count == nil {
		count = func(string, int) {}
	}
	return &Node{period: period, now: now, count: count, eligible: true}
}

// Queued records a change that is not programmed yet.
func (n *Node) Queued() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.queued.IsZero() {
		n.queued = n.now()
	}
}

// Taken records that a pass took all queued changes.
func (n *Node) Taken() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.taken.IsZero() {
		n.taken = n.queued
	}
	n.queued = time.Time{}
}

// Updated records that all taken changes are programmed.
func (n *Node) Updated() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.updated, n.taken = n.now(), time.Time{}
}

// pending returns the oldest change that is not programmed; zero for none.
func (n *Node) pending() time.Time {
	if n.taken.IsZero() {
		return n.queued
	}
	return n.taken
}

// SetEligible sets whether the node should receive traffic under policy Cluster: not while it is being deleted, or is
// marked by the cluster autoscaler for removal (KEP-3836).
func (n *Node) SetEligible(eligible bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.eligible = eligible
}

// Healthy reports whether the proxier keeps up with changes, whether or not the node is eligible.
func (n *Node) Healthy() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.healthy(n.now())
}

func (n *Node) healthy(now time.Time) bool {
	if n.updated.IsZero() {
		return false
	}
	return n.pending().IsZero() || now.Sub(n.pending()) <= 2*n.period
}

// Handler serves /healthz for load balancers, /livez for liveness probes and /readyz for rollouts. An ineligible node
// fails only /healthz, so that its proxy is not restarted. /readyz stays successful after the first pass, since
// stopping a rollout would not help a proxy that falls behind.
func (n *Node) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { n.respond(w, "/healthz") })
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) { n.respond(w, "/livez") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { n.respond(w, "/readyz") })
	return mux
}

type nodeResponse struct {
	LastUpdated  time.Time `json:"lastUpdated"`
	CurrentTime  time.Time `json:"currentTime"`
	NodeEligible *bool     `json:"nodeEligible,omitempty"`
}

func (n *Node) respond(w http.ResponseWriter, path string) {
	n.mu.Lock()
	now := n.now()
	ok, answer := n.healthy(now), nodeResponse{LastUpdated: n.updated, CurrentTime: now}
	if ok && n.pending().IsZero() {
		answer.LastUpdated = now
	}
	switch path {
	case "/readyz":
		ok = !n.updated.IsZero()
	case "/healthz":
		eligible := n.eligible
		answer.NodeEligible = &eligible
		ok = ok && eligible
	}
	n.mu.Unlock()
	n.count(path, writeJSON(w, ok, answer))
}

// writeJSON sends a JSON body with status 200 or 503, and returns the status.
func writeJSON(w http.ResponseWriter, ok bool, body any) int {
	code := http.StatusOK
	if !ok {
		code = http.StatusServiceUnavailable
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
	return code
}
