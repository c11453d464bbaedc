package timeline

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/values"
)

// Measured is the workload that every run has: the Deployment behind the measured Service.
const Measured = "web"

// canary is the Service with the injected outages.
const canary = "canary"

// Subject is the value of `to` that stands for the subject of the run.
const Subject = "subject"

// Check returns an error for the first step that is impossible at its time: its object does not exist, its proxy has another state, or
// its time is before that of the previous step. The line is that of the step in the file, 0 for a step that was not read from a file.
func (t *Timeline) Check() (line int, err error) {
	c := newChecker(t)
	for _, s := range slices.Concat(t.Given, t.Lanes, t.Steps) {
		if err := c.check(s); err != nil {
			return s.Line, fmt.Errorf("%s: %w", s.short(), err)
		}
	}
	if n := len(t.Steps); n == 0 || t.Steps[n-1].Verb != End {
		return 0, fmt.Errorf("the last step must be `end`")
	}
	return 0, nil
}

// short returns the step without its time, and without arguments if it is long.
func (s Step) short() string {
	const most = 60
	if text := s.Action(); len(text) <= most {
		return text
	}
	return strings.TrimSpace(s.Verb + " " + s.Object)
}

// Other returns the other subject that `proxy change` names, empty for none.
func (t *Timeline) Other() string {
	for _, s := range t.Steps {
		if to := s.Get("to"); to != "" && to != Subject {
			return to
		}
	}
	return ""
}

// The states of a node's proxy.
const (
	runs   = "runs"
	ended  = "has ended"
	frozen = "is frozen"
)

// checker is the state of the cluster at the time of a step, derived from the previous steps.
type checker struct {
	nodes     []string
	last      Step
	proxies   map[string]string // state of each node's proxy
	off       map[string]bool   // nodes without power; their proxies have ended
	flushed   map[string]bool   // nodes with flushed tables
	blocked   map[string]bool   // nodes whose proxies cannot write rules
	away      map[string]bool   // nodes whose proxies are cut off from the API server
	cordoned  map[string]bool   // nodes, until another step changes their object
	budget    bool              // the PodDisruptionBudget of `node evict` exists
	lanes     map[string]bool
	workloads map[string]bool
	services  map[string]bool
	pods      map[string]bool
	open      map[string]bool // workloads with open connections
	other     string          // other subject
}

func newChecker(t *Timeline) *checker {
	c := &checker{proxies: map[string]string{}, off: map[string]bool{}, flushed: map[string]bool{}, blocked: map[string]bool{}, away: map[string]bool{}, cordoned: map[string]bool{},
		lanes: map[string]bool{}, workloads: map[string]bool{Measured: true}, services: map[string]bool{}, pods: map[string]bool{}, open: map[string]bool{}}
	for i := range t.Nodes {
		node := "node-" + strconv.Itoa(i+1)
		c.nodes = append(c.nodes, node)
		c.proxies[node] = runs
	}
	lanes := record.ProtocolNew
	for _, s := range t.Set {
		if s.Key == "lanes" {
			lanes = s.Value
		}
	}
	for lane := range strings.SplitSeq(lanes, ",") {
		c.lanes[lane] = true
	}
	return c
}

func (c *checker) check(s Step) error {
	if s.At < c.last.At {
		return fmt.Errorf("+%s comes after +%s", s.At, c.last.At)
	}
	if c.last.Verb == End {
		return fmt.Errorf("it is after `end`")
	}
	c.last = s
	v := verbs[s.Verb]
	if v.object.check != nil {
		if err := v.object.check(c, s); err != nil {
			return err
		}
	}
	if v.transition != nil {
		return v.transition(c, s)
	}
	return nil
}

// object describes the object of a verb.
type object struct {
	absent bool // the verb has no object
	node   bool // the object can be a node
	check  func(c *checker, s Step) error
}

// The kinds of objects.
var (
	nothing     = object{absent: true}
	oneNode     = object{node: true, check: func(c *checker, s Step) error { return c.node(s.Object) }} // node-1
	nodeOrAll   = object{node: true, check: (*checker).nodeOrAll}                                       // node-1, or all
	allNodes    = object{check: func(_ *checker, s Step) error { return values.Word(All).Check(s.Object) }}
	oneAddress  = object{check: func(_ *checker, s Step) error { return values.Type[string](values.AddressV4).Check(s.Object) }}
	oneLane     = object{check: func(_ *checker, s Step) error { return values.Word(Protocols()...).Check(s.Object) }}
	oneWorkload = object{check: func(c *checker, s Step) error { return c.workload(s.Object) }} // web, or one of `workload deploy`
	newWorkload = object{check: func(c *checker, s Step) error { return c.create(c.workloads, s.Object) }}
	oneService  = object{check: func(c *checker, s Step) error { // one of `endpoints create`
		return checkExists("Service", c.services, s.Object, "`endpoints create` creates one")
	}}
	newService   = object{check: func(c *checker, s Step) error { return c.create(c.services, s.Object) }}
	onePod       = object{check: (*checker).pod} // WORKLOAD#N, or one of `pod start`
	newPod       = object{check: (*checker).createPod}
	oneReference = object{check: func(_ *checker, s Step) error { return checkReference(s.Object) }} // KIND/NAMESPACE/NAME
)

func checkExists(what string, existing map[string]bool, name, help string) error {
	if existing[name] {
		return nil
	}
	all := "none"
	if len(existing) > 0 {
		all = strings.Join(slices.Sorted(maps.Keys(existing)), ", ")
	}
	return fmt.Errorf("there is no %s %q at this time; there is %s; %s", what, name, all, help)
}

// change sets or clears the state of a name. It returns an error if the name has that value already.
func change(states map[string]bool, name string, value bool, is, isNot string) error {
	switch {
	case states[name] != value:
		states[name] = value
		return nil
	case value:
		return fmt.Errorf("%s %s already at this time", name, is)
	}
	return fmt.Errorf("%s %s at this time", name, isNot)
}

func (c *checker) node(name string) error {
	if !slices.Contains(c.nodes, name) {
		return fmt.Errorf("there is no node %q; the nodes are %s to %s (`nodes N` before the steps sets their number)", name, c.nodes[0], c.nodes[len(c.nodes)-1])
	}
	return nil
}

func (c *checker) nodeOrAll(s Step) error {
	if s.Object == All {
		return nil
	}
	return c.node(s.Object)
}

// nodesOf returns the nodes of a step.
func (c *checker) nodesOf(s Step) []string {
	if s.Object == All {
		return c.nodes
	}
	return []string{s.Object}
}

// powered checks that a node exists and has power.
func (c *checker) powered(name string) error {
	if err := c.node(name); err != nil {
		return err
	}
	if c.off[name] {
		return fmt.Errorf("%s has no power at this time", name)
	}
	return nil
}

func (c *checker) workload(name string) error {
	return checkExists("workload", c.workloads, name, "`workload deploy` creates one")
}

// create adds a new workload or Service.
func (c *checker) create(into map[string]bool, name string) error {
	if c.workloads[name] || c.services[name] || name == canary {
		return fmt.Errorf("%s exists already at this time", name)
	}
	into[name] = true
	return values.Type[string](values.Name).Check(name)
}

func (c *checker) createPod(s Step) error {
	if c.pods[s.Object] {
		return fmt.Errorf("the pod %s exists already at this time", s.Object)
	}
	c.pods[s.Object] = true
	if err := values.Type[string](values.Name).Check(s.Object); err != nil {
		return err
	}
	if err := c.powered(s.Get("node")); err != nil {
		return err
	}
	if prefix := s.Get("workload") + "-"; !strings.HasPrefix(s.Object, prefix) {
		return fmt.Errorf("the pod's name must begin with %s, so that its answers show its workload", prefix)
	}
	return c.workload(s.Get("workload"))
}

// pod checks a pod: the Nth of a workload, or one of `pod start`. A terminated pod exists until it is killed.
func (c *checker) pod(s Step) error {
	workload, nth, numbered := strings.Cut(s.Object, "#")
	if !numbered {
		return checkExists("pod", c.pods, s.Object, "`pod start` creates one, and WORKLOAD#N is the Nth of a workload")
	}
	if err := values.Number(1, 1000).Check(nth); err != nil {
		return fmt.Errorf("the pod %s: %w", s.Object, err)
	}
	return c.workload(workload)
}

func (c *checker) killPod(s Step) error {
	delete(c.pods, s.Object)
	return nil
}

func checkReference(text string) error {
	parts := strings.Split(text, "/")
	if err := values.Word(Kinds()...).Check(parts[0]); err != nil {
		return fmt.Errorf("the kind %w", err)
	}
	if parts[0] == "Node" && len(parts) != 2 || parts[0] != "Node" && len(parts) != 3 {
		return fmt.Errorf("%q is not a reference to an object; give KIND/NAMESPACE/NAME, or Node/NAME", text)
	}
	for _, part := range parts[1:] {
		if err := values.Type[string](values.Name).Check(part); err != nil {
			return err
		}
	}
	return nil
}

// needsPower checks that the node of a step has power.
func (c *checker) needsPower(s Step) error { return c.powered(s.Object) }

// changeAddress checks that a step adds an address or removes one.
func (c *checker) changeAddress(s Step) error {
	if (s.Get("add") == "") == (s.Get("remove") == "") {
		return fmt.Errorf("give add= or remove=, such as add=192.0.2.1/32")
	}
	return c.powered(s.Object)
}

// powerOff ends the node's proxy. The node loses its tables, and its proxy is not blocked any more.
func (c *checker) powerOff(s Step) error {
	err := c.powered(s.Object)
	c.off[s.Object], c.proxies[s.Object], c.flushed[s.Object], c.blocked[s.Object] = true, ended, false, false
	return err
}

// powerOn starts the node's proxy.
func (c *checker) powerOn(s Step) error {
	if !c.off[s.Object] {
		return fmt.Errorf("%s has power at this time", s.Object)
	}
	c.off[s.Object], c.proxies[s.Object] = false, runs
	return nil
}

// cordon checks that the node takes pods until then, as far as the steps tell.
func (c *checker) cordon(s Step) error {
	if err := c.powered(s.Object); err != nil {
		return err
	}
	return change(c.cordoned, s.Object, true, "is cordoned", "is not cordoned")
}

// evict checks that the node has power: pods end only there.
func (c *checker) evict(s Step) error {
	if err := c.powered(s.Object); err != nil || s.Get("minAvailable") == "" {
		return err
	}
	if c.budget {
		return fmt.Errorf("the PodDisruptionBudget exists already at this time; give minAvailable= to the first `node evict` alone")
	}
	c.budget = true
	return nil
}

// changeNode notes that a step changes the object of a node, so that it may take pods again.
func (c *checker) changeNode(s Step) error {
	if len(c.cordoned) == 0 {
		return nil
	}
	ref, err := s.Reference()
	if node, is := strings.CutPrefix(ref, "Node/"); is {
		delete(c.cordoned, node)
	}
	return err
}

// proxyFrom changes the state of a node's proxy from one state to another.
func proxyFrom(from, to string) func(c *checker, s Step) error {
	return func(c *checker, s Step) error {
		if err := c.powered(s.Object); err != nil {
			return err
		}
		err := c.proxyIs(s.Object, from)
		c.proxies[s.Object] = to
		return err
	}
}

func (c *checker) proxyIs(node, state string) error {
	if now := c.proxies[node]; now != state {
		return fmt.Errorf("the proxy of %s %s at this time", node, now)
	}
	return nil
}

// changeProxy changes the subject that starts next, also on a node without power.
func (c *checker) changeProxy(s Step) error {
	if to := s.Get("to"); to != Subject {
		if c.other != "" && c.other != to {
			return fmt.Errorf("a timeline can name one other subject, and it is %s", c.other)
		}
		c.other = to
	}
	return c.proxyIs(s.Object, ended)
}

func tablesFlushed(want bool) func(c *checker, s Step) error {
	return func(c *checker, s Step) error {
		if err := c.powered(s.Object); err != nil {
			return err
		}
		return change(c.flushed, s.Object, want, "has flushed tables", "has no flushed tables")
	}
}

// blockProxy checks that the node has a proxy, which may be frozen.
func (c *checker) blockProxy(s Step) error {
	if err := c.powered(s.Object); err != nil {
		return err
	}
	if c.proxies[s.Object] == ended {
		return c.proxyIs(s.Object, runs)
	}
	return c.setBlocked(s.Object, true)
}

func (c *checker) unblockProxy(s Step) error {
	if err := c.powered(s.Object); err != nil {
		return err
	}
	return c.setBlocked(s.Object, false)
}

func (c *checker) setBlocked(node string, want bool) error {
	return change(c.blocked, node, want, "has a blocked proxy", "has no blocked proxy")
}

// startProxy checks that the node's proxy has ended, and can become ready.
func (c *checker) startProxy(s Step) error {
	if err := proxyFrom(ended, runs)(c, s); err != nil {
		return err
	}
	if c.blocked[s.Object] {
		return fmt.Errorf("the proxy of %s is blocked at this time, and cannot become ready without its programs; unblock it first", s.Object)
	}
	return nil
}

func clientOpen(want bool) func(c *checker, s Step) error {
	return func(c *checker, s Step) error {
		return change(c.open, s.Object, want, "has open connections", "has no open connections")
	}
}

func laneRuns(want bool) func(c *checker, s Step) error {
	return func(c *checker, s Step) error { return change(c.lanes, s.Object, want, "runs", "does not run") }
}

func (c *checker) apiAway(s Step) error {
	if err := c.anyWatches(s, true); err != nil {
		return err
	}
	return c.cutOffAPI(s, true)
}

func (c *checker) apiBack(s Step) error { return c.cutOffAPI(s, false) }

func (c *checker) cutOffAPI(s Step, want bool) error {
	for _, node := range c.nodesOf(s) {
		if err := change(c.away, node, want, "is cut off from the API server", "is not cut off from the API server"); err != nil {
			return err
		}
	}
	return nil
}

// needsWatches checks that a proxy of the step has watches.
func (c *checker) needsWatches(s Step) error { return c.anyWatches(s, false) }

// anyWatches checks that a proxy of the step has watches; orAway accepts a proxy that is cut off from the API server.
func (c *checker) anyWatches(s Step, orAway bool) (err error) {
	for _, node := range c.nodesOf(s) {
		if err = c.watches(node, orAway); err == nil {
			return nil
		}
	}
	return err
}

func (c *checker) watches(node string, orAway bool) error {
	err := c.powered(node)
	switch {
	case err != nil:
	case c.proxies[node] == ended:
		err = c.proxyIs(node, runs)
	case c.away[node] && !orAway:
		err = fmt.Errorf("%s is cut off from the API server at this time", node)
	default:
		return nil
	}
	return fmt.Errorf("%w: it has no watches", err)
}

// checkJSON decodes the object of `object apply` strictly as its type. It accepts any JSON object as a patch.
func (s Step) checkJSON() error {
	if s.Verb == "object patch" {
		return nil // only the API server knows the fields of the patched object
	}
	ref, err := s.Reference()
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
