package probes

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hitless/hitless/record"
)

// The least and the most between two looks at the budgets while lanes run. Conntrack entries live for 10 s and longer, so
// nothing rises and falls unseen in less; and a look costs a few milliseconds of wall time, which a day of virtual time
// with a few attempts a minute would feel.
const (
	minCheckInterval = 10 * time.Second
	maxCheckInterval = 10 * time.Minute
)

// Place is a network namespace on the way of the probes.
type Namespace struct {
	Name           string
	CountConntrack func() (int, error) // how many connections its conntrack has now; see TrackedHere
}

// TrackedHere counts the conntrack entries of the caller's network namespace; 0 without connection tracking.
func CountConntrack() (int, error) {
	var n int
	err := readNumbers("/proc/sys/net/netfilter/nf_conntrack_count", &n)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	return n, err
}

// Guards keep the probe from causing what it measures. A budget that would be exceeded keeps a lane from starting; one
// that is exceeded all the same, while lanes run, is recorded as an EventGuard, which makes the run invalid. What the
// engine itself cannot do in time is not theirs: such attempts are of class probe. Safe for concurrent use.
type Guards struct {
	limits     Limits
	namespaces []Namespace
	record     func(record.Event)

	mu        sync.Mutex
	running   []Lane
	lastCheck time.Duration
	tripped   map[string]bool // by place
}

// NewGuards makes guards with the limits of where the lanes run and the places on their way.
func NewGuards(limits Limits, places []Namespace, recorder func(record.Event)) *Guards {
	return &Guards{limits: limits, namespaces: places, record: recorder, tripped: map[string]bool{}}
}

// Start is asked before a lane starts. When it and the lanes that run do not fit the budgets together, that is recorded
// and returned as an error, and the lane must not start.
func (g *Guards) Start(l Lane, at time.Duration) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	reasons := Preflight(append(slices.Clone(g.running), l), g.limits)
	if len(reasons) == 0 {
		g.running = append(g.running, l)
		return nil
	}
	for _, reason := range reasons {
		object, _, _ := strings.Cut(reason, ":")
		g.record(record.Event{At: at, Object: object, Text: reason, Body: record.Guard{}})
	}
	return fmt.Errorf("lane %d (%s) is not started, because the probe itself would cause failures: %s", l.ID, l.Name, strings.Join(reasons, "; "))
}

// Stop says that a lane has ended.
func (g *Guards) Stop(id uint16) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running = slices.DeleteFunc(g.running, func(l Lane) bool { return l.ID == id })
}

// interval is a tenth of the time in which the lanes that run could fill what they may have of a table. The caller holds mu.
func (g *Guards) checkInterval() time.Duration {
	var dials float64
	for _, l := range g.running {
		dials += l.WithDefaults().tupleRate()
	}
	seconds := float64(g.limits.ConntrackMax) / 2 / max(dials, 1e-3) / 10
	return time.Duration(min(max(seconds, minCheckInterval.Seconds()), maxCheckInterval.Seconds()) * float64(time.Second))
}

// Look looks at the places, if it is time to. Call it as often as is convenient.
func (g *Guards) Check(at time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.limits.ConntrackMax == 0 || at-g.lastCheck < g.checkInterval() {
		return
	}
	g.lastCheck = at
	for _, p := range g.namespaces {
		if g.tripped[p.Name] {
			continue
		}
		text := ""
		n, err := p.CountConntrack()
		switch {
		case err != nil:
			text = fmt.Sprintf("the conntrack entries of %s cannot be counted: %v", p.Name, err)
		case n > g.limits.ConntrackMax/2:
			text = fmt.Sprintf("conntrack of %s has %d entries, more than half of nf_conntrack_max %d; the kernel soon drops entries early, "+
				"and with them connections: raise it, lower the rate, or close with rst", p.Name, n, g.limits.ConntrackMax)
		default:
			continue
		}
		g.tripped[p.Name] = true
		g.record(record.Event{At: at, Node: p.Name, Object: "conntrack", Text: text, Body: record.Guard{}})
	}
}
