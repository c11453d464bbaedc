// Package health serves what load balancers and kubelets ask a proxy: /healthz and /livez of the node (KEP-3836), /readyz, and
// the healthCheckNodePort of Services whose external traffic stays on the node.
//
// It decides nothing about endpoints; the engine does. It is not for metrics.
package health

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// Node is the health of the proxier as a whole. It is safe for concurrent use.
type Node struct {
	period time.Duration
	now    func() time.Time
	count  func(path string, code int)

	mu       sync.Mutex
	updated  time.Time // end of the last pass that left nothing undone; zero before the first
	queued   time.Time // oldest change that no pass has taken up; zero when there is none
	taken    time.Time // oldest change that a pass took up and has not brought to its end; zero when there is none
	eligible bool
}

// NewNode returns the health of a proxier that has not synchronised yet: unhealthy. It turns unhealthy again when a
// change is pending for more than twice the period, as kube-proxy does. Count is told of each answer; it may be nil.
func NewNode(period time.Duration, now func() time.Time, count func(path string, code int)) *Node {
	if count == nil {
		count = func(string, int) {}
	}
	return &Node{period: period, now: now, count: count, eligible: true}
}

// Queued notes that something changed which is not in the kernel yet.
func (n *Node) Queued() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.queued.IsZero() {
		n.queued = n.now()
	}
}

// Taken notes that a pass took up everything that was queued.
func (n *Node) Taken() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.taken.IsZero() {
		n.taken = n.queued
	}
	n.queued = time.Time{}
}

// Updated notes that the kernel holds everything that was taken up.
func (n *Node) Updated() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.updated, n.taken = n.now(), time.Time{}
}

// pending returns the oldest change that is not in the kernel; zero when there is none.
func (n *Node) pending() time.Time {
	if n.taken.IsZero() {
		return n.queued
	}
	return n.taken
}

// SetEligible says whether the node should get traffic for policy Cluster: not when it is being deleted, or is marked
// for removal by the autoscaler (KEP-3836).
func (n *Node) SetEligible(eligible bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.eligible = eligible
}

// Healthy reports whether the proxier keeps up, whatever becomes of its node.
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

// Handler answers /healthz, which a load balancer asks, /livez, which a liveness probe asks, and /readyz, which a rollout
// waits for. A node that goes away fails the first only, or its proxy would be restarted for nothing; a proxy that falls
// behind stays ready once it was, since a rollout that stops there would not help it.
func (n *Node) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { n.answer(w, "/healthz") })
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) { n.answer(w, "/livez") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { n.answer(w, "/readyz") })
	return mux
}

type nodeAnswer struct {
	LastUpdated  time.Time `json:"lastUpdated"`
	CurrentTime  time.Time `json:"currentTime"`
	NodeEligible *bool     `json:"nodeEligible,omitempty"`
}

func (n *Node) answer(w http.ResponseWriter, path string) {
	n.mu.Lock()
	now := n.now()
	ok, answer := n.healthy(now), nodeAnswer{LastUpdated: n.updated, CurrentTime: now}
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
	n.count(path, write(w, ok, answer))
}

// write sends a JSON body with 200 or 503, and returns the code. A client that went away is no error of ours.
func write(w http.ResponseWriter, ok bool, body any) int {
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
