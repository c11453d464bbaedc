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

// Bounds of the time between two checks of the budgets. Conntrack entries live for at least 10 s, so no peak is missed
// in that time. A check takes a few milliseconds of real time, which would slow down a day of virtual time with few
// attempts.
const (
	minCheckInterval = 10 * time.Second
	maxCheckInterval = 10 * time.Minute
)

// Namespace is a network namespace on the path of the probes.
type Namespace struct {
	Name           string
	CountConntrack func() (int, error) // returns the number of its conntrack entries; see CountConntrack
}

// CountConntrack returns the number of conntrack entries of the caller's network namespace; 0 without connection
// tracking.
func CountConntrack() (int, error) {
	var n int
	err := readNumbers("/proc/sys/net/netfilter/nf_conntrack_count", &n)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	return n, err
}

// Guards keep the probes from causing the failures that they measure. A lane that would exceed a budget does not start.
// A budget that is exceeded while lanes run is recorded as a guard event, which makes the run invalid. Attempts that
// the engine cannot make in time are not the guards' concern: they have class probe. Guards are safe for concurrent
// use.
type Guards struct {
	limits     Limits
	namespaces []Namespace
	record     func(record.Event)

	mu        sync.Mutex
	running   []Lane
	lastCheck time.Duration
	tripped   map[string]bool // by namespace
}

// NewGuards returns guards with the limits of the lanes' process and the namespaces on their path.
func NewGuards(limits Limits, namespaces []Namespace, recorder func(record.Event)) *Guards {
	return &Guards{limits: limits, namespaces: namespaces, record: recorder, tripped: map[string]bool{}}
}

// Start must be called before a lane starts. When the lane and the running lanes exceed a budget together, it records a
// guard event and returns an error, and the lane must not start.
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
	return fmt.Errorf("lane %d (%s) is not started, because the probes themselves would cause failures: %s", l.ID, l.Name, strings.Join(reasons, "; "))
}

// Watch counts a lane without a check, for a caller that has checked it with Preflight.
func (g *Guards) Watch(l Lane) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running = append(g.running, l)
}

// Stop releases the budget of a lane that has ended.
func (g *Guards) Stop(id uint16) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running = slices.DeleteFunc(g.running, func(l Lane) bool { return l.ID == id })
}

// checkInterval returns a tenth of the time in which the running lanes could fill half of a conntrack table. The caller
// holds mu.
func (g *Guards) checkInterval() time.Duration {
	var dials float64
	for _, l := range g.running {
		dials += l.WithDefaults().tupleRate()
	}
	seconds := float64(g.limits.ConntrackMax) / 2 / max(dials, 1e-3) / 10
	return time.Duration(min(max(seconds, minCheckInterval.Seconds()), maxCheckInterval.Seconds()) * float64(time.Second))
}

// Check reads the conntrack tables if the check interval has passed.
func (g *Guards) Check(at time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.limits.ConntrackMax == 0 || at-g.lastCheck < g.checkInterval() {
		return
	}
	g.lastCheck = at
	for _, ns := range g.namespaces {
		if g.tripped[ns.Name] {
			continue
		}
		text := ""
		n, err := ns.CountConntrack()
		switch {
		case err != nil:
			text = fmt.Sprintf("the conntrack entries of %s cannot be counted: %v", ns.Name, err)
		case n > g.limits.ConntrackMax/2:
			text = fmt.Sprintf("conntrack of %s has %d entries, more than half of nf_conntrack_max %d; the kernel will soon drop entries early, "+
				"and with them connections: raise it, lower the rate, or close with rst", ns.Name, n, g.limits.ConntrackMax)
		default:
			continue
		}
		g.tripped[ns.Name] = true
		g.record(record.Event{At: at, Node: ns.Name, Object: "conntrack", Text: text, Body: record.Guard{}})
	}
}
