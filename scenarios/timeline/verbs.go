package timeline

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// All stands for every node, where a step may be done to all of them.
const All = "all"

// objectKind is what a verb is done to.
type objectKind int

const (
	nothing     objectKind = iota
	aNode                  // node-1
	nodeOrAll              // node-1, or all
	aWorkload              // web, or one that `workload deploy` made
	newWorkload            // the name of one that is not there yet
	someService            // one that `endpoints create` made
	newService
	aPod // WORKLOAD#N, or one that `pod start` made
	newPod
	aLane     // a protocol
	reference // KIND/NAMESPACE/NAME
	all       // the word all
)

// verb is what a step can do.
type verb struct {
	object objectKind
	keys   []key
	json   bool
}

// key is one argument of a verb.
type key struct {
	name     string
	required bool
	check    func(value string) error
}

var (
	within   = key{"within", false, duration(time.Second, time.Hour)}
	nameWord = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)
)

// verbs are all verbs with their arguments. docs/timeline.md says what each does.
var verbs = makeVerbs()

func makeVerbs() map[string]verb {
	v := map[string]verb{
		"object apply":     {object: nothing, json: true},
		"object patch":     {object: reference, json: true},
		"object delete":    {object: reference, keys: []key{{"grace", false, duration(0, time.Hour)}}},
		"workload deploy":  {object: newWorkload, keys: []key{{"replicas", false, number(1, 100)}, {"policy", false, oneOf("Local", "Cluster")}, {"gated", false, oneOf("on", "off")}, {"ports", false, number(1, 1000)}}},
		"workload rollout": {object: aWorkload},
		"workload scale":   {object: aWorkload, keys: []key{{"replicas", true, number(0, 100)}}},
		"endpoints create": {object: newService, keys: []key{{"addresses", true, addresses}}},
		"endpoints set":    {object: someService, keys: []key{{"addresses", true, addresses}}},
		"pod start":        {object: newPod, keys: []key{{"workload", true, name}, {"node", true, name}}},
		"pod ready":        {object: aPod},
		"pod unready":      {object: aPod},
		"pod terminate":    {object: aPod, keys: []key{{"grace", false, duration(time.Second, time.Hour)}}},
		"pod kill":         {object: aPod},
		"proxy change":     {object: aNode, keys: []key{{"to", true, word}}},
		"api delay":        {object: nodeOrAll, keys: []key{{"by", true, duration(0, time.Hour)}}},
		"api lose":         {object: nodeOrAll, keys: []key{{"resource", false, oneOf("services", "endpointslices", "endpoints", "nodes")}}},
		"client open":      {object: aWorkload, keys: []key{{"each", false, number(1, 1000)}}},
		"client close":     {object: aWorkload},
		"lane start":       {object: aLane, keys: []key{{"connections", false, number(1, 10000)}, {"rate", false, rate}}},
		"lane stop":        {object: aLane},
		End:                {object: nothing},
	}
	for _, what := range []string{"stop", "kill", "start", "freeze", "thaw", "flush", "restore", "cleanup"} {
		v["proxy "+what] = verb{object: aNode}
	}
	for _, what := range []string{"off", "on"} {
		v["node "+what] = verb{object: aNode}
	}
	for _, what := range []string{"away", "back", "cut", "expire"} {
		v["api "+what] = verb{object: nodeOrAll}
	}
	for _, how := range []string{"expect", "await"} {
		v[how+" rolled-out"] = verb{object: aWorkload, keys: []key{within}}
		v[how+" balanced"] = verb{object: aWorkload, keys: []key{within}}
		v[how+" ready"] = verb{object: aPod, keys: []key{within}}
		v[how+" unready"] = verb{object: aPod, keys: []key{within}}
		v[how+" gone"] = verb{object: aPod, keys: []key{within}}
		v[how+" watching"] = verb{object: all, keys: []key{within}}
	}
	return v
}

// Verbs are the words that a step can begin with, sorted.
func Verbs() []string { return slices.Sorted(maps.Keys(verbs)) }

// Protocols are the names of lanes, as package scenarios has them.
func Protocols() []string {
	return []string{"tcp-long", "http-reuse", "udp-sticky", "udp-fresh", "tcp-new"}
}

// Kinds are the kinds of object that a step can change.
func Kinds() []string {
	return []string{"Deployment", "EndpointSlice", "Endpoints", "Node", "Pod", "Service"}
}

func name(value string) error {
	if !nameWord.MatchString(value) {
		return fmt.Errorf("%q is not a name: small letters, digits, - and . only", value)
	}
	return nil
}

func word(value string) error {
	if value == "" {
		return errors.New("give a word")
	}
	return nil
}

func duration(low, high time.Duration) func(string) error {
	return func(value string) error {
		if d, err := time.ParseDuration(value); err != nil || d < low || d > high {
			return fmt.Errorf("%q is not a duration from %s to %s, such as %s", value, low, high, max(low, min(5*time.Second, high)))
		}
		return nil
	}
}

func number(low, high int) func(string) error {
	return func(value string) error {
		if n, err := strconv.Atoi(value); err != nil || n < low || n > high {
			return fmt.Errorf("%q is not a whole number from %d to %d", value, low, high)
		}
		return nil
	}
}

func rate(value string) error {
	if r, err := strconv.ParseFloat(value, 64); err != nil || !(r > 0 && r <= 5000) {
		return fmt.Errorf("%q is not a number of attempts a second, above 0 and at most 5000", value)
	}
	return nil
}

func oneOf(words ...string) func(string) error {
	return func(value string) error {
		if !slices.Contains(words, value) {
			return fmt.Errorf("%q is not one of %s", value, strings.Join(words, ", "))
		}
		return nil
	}
}

// addresses are IPv4 addresses with commas between them, each once; a single - stands for none.
func addresses(value string) error {
	if value == "-" {
		return nil
	}
	seen := map[string]bool{}
	for text := range strings.SplitSeq(value, ",") {
		if a, err := netip.ParseAddr(text); err != nil || !a.Is4() {
			return fmt.Errorf("%q is not an IPv4 address; give addresses with commas between them, or - for none", text)
		}
		if seen[text] {
			return fmt.Errorf("%s is there twice", text)
		}
		seen[text] = true
	}
	return nil
}

// Addresses is the value of the key `addresses`.
func (s Step) Addresses() []string {
	if value := s.Get("addresses"); value != "" && value != "-" {
		return strings.Split(value, ",")
	}
	return nil
}
