package timeline

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"
)

// Measured is the workload that every run has: the Deployment behind the measured Service.
const Measured = "web"

// Check sees whether each step can be done at its time: that what it is done to is there by then, that a proxy which is
// started had ended, that time does not go backwards. It returns the line of the first step that cannot. A step that does
// not come from a text has line 0.
func (t *Timeline) Check() (line int, err error) {
	c := newChecker(t)
	for _, s := range slices.Concat(t.Given, t.Lanes, t.Steps) {
		if err := c.check(s); err != nil {
			return s.Line, fmt.Errorf("%s: %w", s.short(), err)
		}
	}
	if n := len(t.Steps); n == 0 || t.Steps[n-1].Verb != End {
		return 0, fmt.Errorf("the last step must be an end")
	}
	return 0, nil
}

// short is what the step does, cut to what fits a line.
func (s Step) short() string {
	const most = 60
	if text := s.Does(); len(text) <= most {
		return text
	}
	return strings.TrimSpace(s.Verb + " " + s.Object)
}

// The states of a node's proxy.
const (
	runs   = "runs"
	ended  = "has ended"
	frozen = "is frozen"
)

type checker struct {
	nodes     []string
	last      Step
	proxies   map[string]string
	off       map[string]bool // nodes without power; their proxies have ended
	flushed   map[string]bool
	away      map[string]bool
	lanes     map[string]bool
	workloads map[string]bool
	services  map[string]bool
	pods      map[string]bool
	open      map[string]bool
	change    string // the one other subject
}

func newChecker(t *Timeline) *checker {
	c := &checker{proxies: map[string]string{}, off: map[string]bool{}, flushed: map[string]bool{}, away: map[string]bool{}, lanes: map[string]bool{},
		workloads: map[string]bool{Measured: true}, services: map[string]bool{}, pods: map[string]bool{}, open: map[string]bool{}}
	for i := range t.Nodes {
		node := "node-" + strconv.Itoa(i+1)
		c.nodes = append(c.nodes, node)
		c.proxies[node] = runs
	}
	named := "tcp-new"
	for _, s := range t.Set {
		if s.Key == "lanes" {
			named = s.Value
		}
	}
	for lane := range strings.SplitSeq(named, ",") {
		c.lanes[lane] = true
	}
	return c
}

func (c *checker) check(s Step) error {
	if s.At < c.last.At {
		return fmt.Errorf("+%s comes after +%s", s.At, c.last.At)
	}
	if c.last.Verb == End {
		return fmt.Errorf("it comes after the end")
	}
	c.last = s
	if err := c.object(s); err != nil {
		return err
	}
	switch family, what, _ := strings.Cut(s.Verb, " "); family {
	case "node":
		return c.power(s.Object, what == "on")
	case "proxy":
		return c.proxy(what, s)
	case "api":
		return c.api(what, s)
	case "lane":
		return toggle(c.lanes, s.Object, what == "start", "runs")
	case "client":
		return toggle(c.open, s.Object, what == "open", "has connections of this kind open")
	}
	return nil
}

// toggle makes a thing be there or not, which it must not have been before.
func toggle(there map[string]bool, name string, want bool, does string) error {
	if there[name] == want {
		return fmt.Errorf("%s %s already", name, map[bool]string{true: does, false: "does not (any more): nothing " + does}[want])
	}
	there[name] = want
	return nil
}

// object checks that what a step is done to is there, or that what it makes is not.
func (c *checker) object(s Step) error {
	switch verbs[s.Verb].object {
	case aNode:
		return c.node(s.Object)
	case nodeOrAll:
		if s.Object != All {
			return c.node(s.Object)
		}
	case all:
		return oneOf(All)(s.Object)
	case aLane:
		return oneOf(Protocols()...)(s.Object)
	case aWorkload:
		return has("workload", c.workloads, s.Object, "`workload deploy` makes one")
	case someService:
		return has("Service", c.services, s.Object, "`endpoints create` makes one")
	case newWorkload, newService:
		into := map[objectKind]map[string]bool{newWorkload: c.workloads, newService: c.services}[verbs[s.Verb].object]
		if c.workloads[s.Object] || c.services[s.Object] || s.Object == "canary" {
			return fmt.Errorf("%s is there already", s.Object)
		}
		into[s.Object] = true
		return name(s.Object)
	case newPod:
		if c.pods[s.Object] {
			return fmt.Errorf("the pod %s is there already", s.Object)
		}
		c.pods[s.Object] = true
		if err := name(s.Object); err != nil {
			return err
		}
		if err := c.powered(s.Get("node")); err != nil {
			return err
		}
		if prefix := s.Get("workload") + "-"; !strings.HasPrefix(s.Object, prefix) {
			return fmt.Errorf("the pod's name must begin with %s, by which the probes know it", prefix)
		}
		return has("workload", c.workloads, s.Get("workload"), "`workload deploy` makes one")
	case aPod:
		return c.pod(s)
	case reference:
		return checkReference(s.Object)
	}
	return nil
}

func (c *checker) node(name string) error {
	if !slices.Contains(c.nodes, name) {
		return fmt.Errorf("there is no node %q; the nodes are %s to %s (`nodes N` before the steps says how many)", name, c.nodes[0], c.nodes[len(c.nodes)-1])
	}
	return nil
}

// powered checks that a node is there and has power.
func (c *checker) powered(name string) error {
	if err := c.node(name); err != nil {
		return err
	}
	if c.off[name] {
		return fmt.Errorf("%s has no power at this time", name)
	}
	return nil
}

// power follows what becomes of a node. Nothing is left in the kernel of one that boots, and its proxy starts.
func (c *checker) power(node string, on bool) error {
	if !on {
		err := c.powered(node)
		c.off[node], c.proxies[node], c.flushed[node] = true, ended, false
		return err
	}
	if !c.off[node] {
		return fmt.Errorf("%s has power at this time", node)
	}
	c.off[node], c.proxies[node] = false, runs
	return nil
}

func has(what string, there map[string]bool, name, help string) error {
	if !there[name] {
		return fmt.Errorf("there is no %s %q at this time; there is %s; %s", what, name, listed(there), help)
	}
	return nil
}

func listed(there map[string]bool) string {
	if len(there) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(there)), ", ")
}

// pod checks a pod: the Nth of a workload's, or one that a step started.
func (c *checker) pod(s Step) error {
	workload, nth, numbered := strings.Cut(s.Object, "#")
	if !numbered {
		if err := has("pod", c.pods, s.Object, "`pod start` makes one, and WORKLOAD#N is the Nth of a workload"); err != nil {
			return err
		}
		if s.Verb == "pod kill" || s.Verb == "pod terminate" {
			// It may be asked for until it is gone, and a new one of its name can then be started.
			c.pods[s.Object] = s.Verb == "pod terminate"
		}
		return nil
	}
	if err := number(1, 1000)(nth); err != nil {
		return fmt.Errorf("the pod %s: %w", s.Object, err)
	}
	return has("workload", c.workloads, workload, "`workload deploy` makes one")
}

func checkReference(text string) error {
	parts := strings.Split(text, "/")
	if err := oneOf(Kinds()...)(parts[0]); err != nil {
		return fmt.Errorf("the kind %w", err)
	}
	if parts[0] == "Node" && len(parts) != 2 || parts[0] != "Node" && len(parts) != 3 {
		return fmt.Errorf("%q names no object; give KIND/NAMESPACE/NAME, or Node/NAME", text)
	}
	for _, part := range parts[1:] {
		if err := name(part); err != nil {
			return err
		}
	}
	return nil
}

// proxy follows what the node's proxy does.
func (c *checker) proxy(what string, s Step) error {
	node := s.Object
	if what != "change" { // which is of what starts next, when there is power again
		if err := c.powered(node); err != nil {
			return err
		}
	}
	need := func(states ...string) error {
		if !slices.Contains(states, c.proxies[node]) {
			return fmt.Errorf("the proxy of %s %s at this time", node, c.proxies[node])
		}
		return nil
	}
	switch what {
	case "stop", "kill":
		err := need(runs)
		c.proxies[node] = ended
		return err
	case "start":
		err := need(ended)
		c.proxies[node] = runs
		return err
	case "freeze":
		err := need(runs)
		c.proxies[node] = frozen
		return err
	case "thaw":
		err := need(frozen)
		c.proxies[node] = runs
		return err
	case "flush":
		return toggle(c.flushed, node, true, "has had its tables emptied")
	case "restore":
		return toggle(c.flushed, node, false, "has had its tables emptied")
	case "cleanup":
		return need(ended)
	}
	to := s.Get("to") // change
	if to != Subject && c.change != "" && c.change != to {
		return fmt.Errorf("a run has one other subject, and it is %s", c.change)
	}
	if to != Subject {
		c.change = to
	}
	return need(ended)
}

// Subject is the word for the subject under test, as what a proxy changes to.
const Subject = "subject"

// Other is the one other subject that proxies change to, empty for none.
func (t *Timeline) Other() string {
	for _, s := range t.Steps {
		if to := s.Get("to"); s.Verb == "proxy change" && to != Subject {
			return to
		}
	}
	return ""
}

// NeedsReplay returns the first step that only the replay control plane can do, and false when there is none.
func (t *Timeline) NeedsReplay() (Step, bool) {
	for _, s := range t.Steps {
		if strings.HasPrefix(s.Verb, "api ") || strings.HasSuffix(s.Verb, " watching") {
			return s, true
		}
	}
	return Step{}, false
}

// api follows from whom the API server is away. Nothing can be done to watches where no proxy of the nodes has any.
func (c *checker) api(what string, s Step) error {
	nodes := []string{s.Object}
	if s.Object == All {
		nodes = c.nodes
	}
	if what != "back" {
		if err := c.anyWatches(nodes, what == "away"); err != nil {
			return err
		}
	}
	if what != "away" && what != "back" {
		return nil
	}
	for _, node := range nodes {
		if err := toggle(c.away, node, what == "away", "is kept from the API server"); err != nil {
			return err
		}
	}
	return nil
}

// anyWatches checks that one of the nodes' proxies watches something.
func (c *checker) anyWatches(nodes []string, orAway bool) (err error) {
	for _, node := range nodes {
		if err = c.watches(node, orAway); err == nil {
			return nil
		}
	}
	return err
}

// watches checks that a node's proxy watches something, as far as that follows from the steps before; orAway says that one which is kept
// from the API server passes.
func (c *checker) watches(node string, orAway bool) error {
	err := c.powered(node)
	switch {
	case err != nil:
	case c.proxies[node] == ended:
		err = fmt.Errorf("the proxy of %s %s at this time", node, ended)
	case c.away[node] && !orAway:
		err = fmt.Errorf("%s is kept from the API server", node)
	default:
		return nil
	}
	return fmt.Errorf("%w: it watches nothing", err)
}

// checkJSON reads the object of an `object apply` strictly as its own type, and a patch as any JSON object.
func (s Step) checkJSON() error {
	if s.Verb == "object patch" {
		return nil // what it is a part of is known to the API server only
	}
	ref, err := s.Refers()
	if err != nil {
		return err
	}
	if err := checkReference(ref); err != nil {
		return err
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{Strict: true})
	_, _, err = decoder.Decode([]byte(s.JSON), nil, nil)
	return err
}
