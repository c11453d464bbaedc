package analysis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// RecoveryReport is the result of the recovery check: whether each running proxy followed one more change after the
// disturbance.
type RecoveryReport struct {
	Text   string         `json:"text"`   // the result in one line
	Checks int            `json:"checks"` // a soak has one at each checkpoint too; 0 when the check was turned off
	Nodes  []NodeRecovery `json:"nodes"`  // sorted by name
}

// The states of NodeRecovery.
const (
	RecoveryFollowed  = "followed"
	RecoveryFailed    = "failed"
	RecoveryUnchecked = "unchecked"
	// RecoveryMisreported is a proxy that gave health checks the wrong answer, whether it followed the check or not.
	RecoveryMisreported = "misreported"
)

// NodeRecovery is the result of one node: of several checks the worst one.
type NodeRecovery struct {
	Node   string   `json:"node"`
	State  string   `json:"state"`           // followed, failed, misreported or unchecked
	TookMs float64  `json:"tookMs"`          // from a change until traffic over the node showed it, at most; 0 unless followed
	Since  *float64 `json:"since,omitempty"` // seconds: the proxy has followed no change, or given the wrong answer, since then; only of failed and misreported
	Text   string   `json:"text"`            // the reason; empty for followed
}

// nodeChecks are the checks of a node.
type nodeChecks struct {
	NodeRecovery
	all, made int
	missed    string // why the newest check that was not made was not; empty if all were made
}

// isCheck reports whether an event is the first result of a check of a node, made or not.
func isCheck(body record.Recovery) bool {
	return body.State != record.RecoveryRemoved && body.Change != record.RecoveryRemoved && body.State != record.RecoveryMisreported
}

// recoveryReport is the result of the recovery checks, nil for a record without any, such as one of an older version.
func (a *Analysis) recoveryReport() *RecoveryReport {
	r := &RecoveryReport{Nodes: []NodeRecovery{}}
	results := map[string]*nodeChecks{}
	found := false
	for _, e := range a.Events {
		body, is := e.Body.(record.Recovery)
		if !is {
			continue
		}
		found = true
		if e.Node == "" { // it was turned off
			r.Text = e.Text
			continue
		}
		if results[e.Node] == nil {
			results[e.Node] = &nodeChecks{NodeRecovery: NodeRecovery{Node: e.Node, State: RecoveryUnchecked, Text: e.Text}}
		}
		n := results[e.Node]
		if isCheck(body) {
			n.count(e, body)
		}
		r.Checks = max(r.Checks, n.all)
		a.addRecovery(&n.NodeRecovery, e, body)
	}
	if !found {
		return nil
	}
	for _, n := range results {
		r.Nodes = append(r.Nodes, n.NodeRecovery)
	}
	slices.SortFunc(r.Nodes, func(x, y NodeRecovery) int { return cmp.Compare(x.Node, y.Node) })
	if r.Text == "" {
		r.Text = r.line(results)
	}
	return r
}

// count counts a check of the node.
func (n *nodeChecks) count(e record.Event, body record.Recovery) {
	n.all++
	if body.State == record.RecoveryUnchecked {
		n.missed = e.Text
	} else {
		n.made++
	}
}

// addRecovery adds one result of a check to those of its node. The first failure stays.
func (a *Analysis) addRecovery(n *NodeRecovery, e record.Event, body record.Recovery) {
	if n.red() {
		return
	}
	switch body.State {
	case record.RecoveryAdded, record.RecoveryRemoved:
		*n = NodeRecovery{Node: n.Node, State: RecoveryFollowed, TookMs: max(n.TookMs, units.Millis(body.Took))}
	case record.RecoveryMisreported:
		since := units.Seconds(e.At - body.Took)
		*n = NodeRecovery{Node: n.Node, State: RecoveryMisreported, Since: &since,
			Text: fmt.Sprintf("%s, since %s (waited %s)", e.Text, units.At(since), units.MsText(units.Millis(body.Took)))}
	case record.RecoveryFailed, record.RecoveryExited:
		since, how := a.lastFollowed(e.Node, e.At-body.Took)
		seconds := units.Seconds(since)
		text := fmt.Sprintf("%s's proxy has not followed changes since %s: %s", e.Node, units.At(seconds), how)
		if body.State == record.RecoveryFailed {
			text += fmt.Sprintf("; it did not follow when an endpoint was %s at %s (waited %s)", body.Change, units.At(units.Seconds(e.At-body.Took)),
				units.MsText(units.Millis(body.Took)))
		}
		*n = NodeRecovery{Node: n.Node, State: RecoveryFailed, Since: &seconds, Text: text}
	}
}

// red reports whether the node fails the run.
func (n NodeRecovery) red() bool { return n.State == RecoveryFailed || n.State == RecoveryMisreported }

// lastFollowed is the last time before an instant at which the record shows that a node's proxy followed a change, and how:
// in its kernel table, in its log, or in traffic. A proxy that was started later has followed nothing since its start.
func (a *Analysis) lastFollowed(node string, before time.Duration) (since time.Duration, how string) {
	how = "the record shows no change that it followed"
	running := 0 // during a rolling update of a DaemonSet there can be two
	for _, e := range a.Events {
		if e.At >= before {
			break
		}
		if e.Node != node {
			continue
		}
		switch body := e.Body.(type) {
		case record.KernelTable:
			if body.From != nil { // else it is the first look
				since, how = e.At, "its kernel table changed then for the last time"
			}
		case record.KernelChange:
			since, how = e.At, "its kernel table changed then for the last time"
		case record.Recovery:
			if body.State == record.RecoveryAdded || body.State == record.RecoveryRemoved {
				since, how = e.At, "it followed a change of the recovery check then"
			}
		case record.Proxy:
			switch body.State {
			case record.ProxySynced:
				since, how = e.At, "it wrote its rules then for the last time"
			case record.ProxyStarted:
				running++
				since, how = e.At, "it was started then, and nothing shows that it has followed a change"
			case record.ProxyExited:
				if running = max(0, running-1); running == 0 {
					since, how = e.At, "it exited then, and nothing started it again"
				}
			}
		}
	}
	if at, pod := a.lastNewBackend(node, since, before); pod != "" && running > 0 {
		return at, "a connection over it reached " + pod + " then for the first time"
	}
	return since, how
}

// lastNewBackend is the last time between two instants at which measured traffic over a node was answered for the first time by a
// pod: its proxy must have added the pod.
func (a *Analysis) lastNewBackend(node string, from, to time.Duration) (at time.Duration, pod string) {
	number := slices.Index(a.Nodes, node)
	if number < 0 {
		return 0, ""
	}
	first := map[uint32]time.Duration{}
	for _, l := range a.Measured() {
		for i := range l.Records {
			if s := &l.Records[i]; int(s.Node) == number && s.Backend != 0 {
				if was, seen := first[s.Backend]; !seen || s.Intended < was {
					first[s.Backend] = s.Intended
				}
			}
		}
	}
	for backend, when := range first {
		if when > from && when < to && (when > at || when == at && a.Backends[backend].Name < pod) {
			at, pod = when, a.Backends[backend].Name
		}
	}
	return at, pod
}

// badRecovery tells of a last check that checked no proxy.
func (a *Analysis) badRecovery(r *RecoveryReport) []string {
	if r == nil || r.Checks == 0 || len(r.Failed()) > 0 {
		return nil
	}
	made := map[string]bool{} // by node: its newest check
	for _, e := range a.Events {
		if body, is := e.Body.(record.Recovery); is && e.Node != "" && isCheck(body) {
			made[e.Node] = body.State != record.RecoveryUnchecked
		}
	}
	for _, was := range made {
		if was {
			return nil
		}
	}
	return []string{"the recovery check checked no proxy: " + r.Text}
}

// mostUnchecked bounds the nodes whose reasons the line has.
const mostUnchecked = 3

// line is the result in one line.
func (r *RecoveryReport) line(checks map[string]*nodeChecks) string {
	followed, checked, slowest, each := 0, 0, 0.0, true
	var unchecked, misreported []string
	for _, n := range r.Nodes {
		switch n.State {
		case RecoveryFollowed:
			followed, slowest = followed+1, max(slowest, n.TookMs)
			checked++
			if c := checks[n.Node]; c.missed != "" {
				each = false
				unchecked = append(unchecked, fmt.Sprintf("%s (in %d of %d checks)", c.missed, c.all-c.made, c.all))
			}
		case RecoveryFailed:
			checked++
		case RecoveryMisreported:
			misreported = append(misreported, n.Text)
		default:
			unchecked = append(unchecked, n.Text)
		}
	}
	text := fmt.Sprintf("the proxies of %d of %s applied a test change", followed, units.Plural(checked, "node"))
	if followed > 0 {
		text += " within " + units.MsText(slowest)
	}
	switch {
	case followed == 0 || r.Checks == 1:
	case each:
		text += fmt.Sprintf(", in each of %d checks", r.Checks)
	default:
		text += fmt.Sprintf(", in each check of them; there were %d checks", r.Checks)
	}
	if more := len(unchecked) - mostUnchecked; more > 0 {
		unchecked = append(unchecked[:mostUnchecked], fmt.Sprintf("%s more were not checked, or not in each check", units.Plural(more, "node")))
	}
	return strings.Join(slices.Concat([]string{text}, misreported, unchecked), "; ")
}

// Failed are the nodes whose proxies do not follow changes, or misreport to health checks; none of a nil report.
func (r *RecoveryReport) Failed() (nodes []NodeRecovery) {
	if r == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(r.Nodes), func(n NodeRecovery) bool { return !n.red() })
}

// clause tells the sentence of the run which proxies do not follow changes; empty when all do.
func (r *RecoveryReport) clause() string {
	failed := r.Failed()
	switch len(failed) {
	case 0:
		return ""
	case 1:
		does := "does not follow changes"
		if failed[0].State == RecoveryMisreported {
			does = "gives health checks the wrong answer"
		}
		return fmt.Sprintf("; the proxy of %s %s since %s", failed[0].Node, does, units.At(*failed[0].Since))
	}
	var names []string
	for _, n := range failed {
		names = append(names, n.Node)
	}
	if more := len(names) - mostUnchecked; more > 0 {
		names = append(names[:mostUnchecked], units.Plural(more, "more node"))
	}
	do := " do not follow changes"
	if slices.ContainsFunc(failed, func(n NodeRecovery) bool { return n.State == RecoveryMisreported }) {
		do += " or give health checks the wrong answer"
	}
	return "; the proxies of " + strings.Join(names, ", ") + do
}
