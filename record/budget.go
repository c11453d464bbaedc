package record

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Budget is what the user accepts: the loss in connections, never a success ratio, and the latency.
type Budget struct {
	// Dropped and Delayed bound the lost attempts that no rule covers and no excuse explains.
	Dropped int `json:"dropped"`
	Delayed int `json:"delayed"`
	// SlowPercent and P99ExtraMs bound the latency of new connections against the run's own baseline: the share of slow ones, from 0
	// to 100, and the rise of the p99 of the time to connect. Nil for the default.
	SlowPercent *float64 `json:"slowPercent,omitempty"`
	P99ExtraMs  *float64 `json:"p99ExtraMs,omitempty"`
	// Rules have budgets of their own. A lost attempt is covered by the first rule that selects it.
	Rules []BudgetRule `json:"rules,omitempty"`
}

// BudgetRule is the budget of what its selector selects.
type BudgetRule struct {
	Selector
	Limits
}

// Selector selects lost attempts. An empty field selects all.
type Selector struct {
	Scenario string `json:"scenario,omitempty"`
	Lane     string `json:"lane,omitempty"`
	Class    string `json:"class,omitempty"` // the word of a class
	Role     string `json:"role,omitempty"`  // RoleDisturbed or RoleOther: of the node of the path
	Node     string `json:"node,omitempty"`  // of the path
	Cause    string `json:"cause,omitempty"` // kind and state of the event, such as "node off"
}

// The roles of the nodes of paths.
const (
	RoleDisturbed = "disturbed" // a step of the scenario acted on the node
	RoleOther     = "other"     // every other node, and no node
)

// Limits bound what a rule covers. Nil is no limit; but a rule with one of the two counts has 0 for the other.
type Limits struct {
	Dropped    *int    `json:"dropped,omitempty"`
	Delayed    *int    `json:"delayed,omitempty"`
	LongestGap *Length `json:"longestGap,omitempty"` // upper bound of the longest outage
	Outage     *Length `json:"outage,omitempty"`     // upper bound of the time in outages, where those of several paths count once
	P99        *Length `json:"p99,omitempty"`        // of the time to connect, from the begin of the scenario on
}

// BoundsLoss reports whether there is a limit of lost attempts. A rule without one covers none.
func (l Limits) BoundsLoss() bool {
	return l.Dropped != nil || l.Delayed != nil || l.LongestGap != nil || l.Outage != nil
}

// Counts are the limits of dropped and of delayed attempts; false for none.
func (l Limits) Counts() (dropped, delayed int, limited bool) {
	if l.Dropped != nil {
		dropped = *l.Dropped
	}
	if l.Delayed != nil {
		delayed = *l.Delayed
	}
	return dropped, delayed, l.Dropped != nil || l.Delayed != nil
}

// String lists the fields that are set, as in a budget file; empty when the selector selects everything.
func (s Selector) String() string {
	var words []string
	for _, f := range [...]struct{ key, value string }{{"scenario", s.Scenario}, {"lane", s.Lane}, {"class", s.Class}, {"role", s.Role},
		{"node", s.Node}, {"cause", s.Cause}} {
		if f.value != "" {
			words = append(words, f.key+": "+f.value)
		}
	}
	return strings.Join(words, ", ")
}

// Includes reports whether the selector selects everything that the other one selects.
func (s Selector) Includes(o Selector) bool {
	wider := func(a, b string) bool { return a == "" || a == b }
	return wider(s.Scenario, o.Scenario) && wider(s.Lane, o.Lane) && wider(s.Class, o.Class) && wider(s.Role, o.Role) &&
		wider(s.Node, o.Node) && wider(s.Cause, o.Cause)
}

// Length is a duration that JSON and YAML have as text, such as "1.5s".
type Length time.Duration

// MarshalJSON writes the text.
func (l Length) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(l).String()) }

// UnmarshalJSON reads the text. A negative duration is an error.
func (l *Length) UnmarshalJSON(data []byte) error {
	text, err := strconv.Unquote(string(data))
	if err != nil {
		return fmt.Errorf("%s is not a duration as text", data)
	}
	d, err := ParseLength(text)
	*l = d
	return err
}

// ParseLength reads a duration of 0 or more, such as 500ms or 1m30s. A number needs a unit.
func ParseLength(text string) (Length, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a duration of 0 or more, such as 500ms or 1m30s", text)
	}
	return Length(d), nil
}
