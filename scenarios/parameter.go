package scenarios

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Parameter is one `--set` key.
type Parameter struct {
	Key     string
	Default string
	Help    string
	check   func(value string) error
	needs   []Capability // of the site, where the key is given
	with    []Parameter  // keys that come with this one
}

// Params are the values of a run, complete with defaults.
type Params map[string]string

// Fill checks the given values against the scenario's parameters and adds the defaults. An unknown key is an error that
// lists the valid ones; a bad value is an error that says what is allowed.
func (s Scenario) Fill(given map[string]string) (Params, error) {
	params := Params{}
	var keys []string
	known := map[string]Parameter{}
	for _, p := range s.AllParameters() {
		params[p.Key] = p.Default
		known[p.Key] = p
		keys = append(keys, p.Key+"="+p.Default)
	}
	slices.Sort(keys)
	for key, value := range given {
		p, has := known[key]
		if !has {
			return nil, fmt.Errorf("scenario %s has no key %q; its keys and defaults are %s", s.Name, key, strings.Join(keys, " "))
		}
		if err := p.check(value); err != nil {
			return nil, fmt.Errorf("--set %s=%s: %w", key, value, err)
		}
		params[key] = value
	}
	if err := params.checkPlaces(); err != nil {
		return nil, err
	}
	if err := params.checkChurn(); err != nil {
		return nil, err
	}
	if params["loadBalancer"] == "haproxy" && params.Datagrams() {
		return nil, fmt.Errorf("--set %s=%s with loadBalancer=haproxy: HAProxy forwards TCP only; name no udp lane, or use passthrough",
			lanesParameter.Key, params[lanesParameter.Key])
	}
	if params["loadBalancer"] == "haproxy" && s.setup(params).Datagrams {
		return nil, errors.New("loadBalancer=haproxy with a lane of UDP in the timeline: HAProxy forwards TCP only; take the lane out, or use passthrough")
	}
	return params, nil
}

func (p Params) on(key string) bool { return p[key] == "on" }

// number and duration read values that Fill has checked.
func (p Params) number(key string) int {
	n, _ := strconv.Atoi(p[key])
	return n
}

func (p Params) duration(key string) time.Duration {
	d, _ := time.ParseDuration(p[key])
	return d
}

// anyOr allows the word any, and what check allows.
func anyOr(check func(string) error) func(string) error {
	return func(value string) error {
		if value == "any" {
			return nil
		}
		if err := check(value); err != nil {
			return fmt.Errorf("%w, or any", err)
		}
		return nil
	}
}

func oneOf(words ...string) func(string) error {
	return func(value string) error {
		if !slices.Contains(words, value) {
			return fmt.Errorf("give one of %s", strings.Join(words, ", "))
		}
		return nil
	}
}

// listOf checks a list of words with commas between them, each at most once.
func listOf(words ...string) func(string) error {
	return func(value string) error {
		seen := map[string]bool{}
		for word := range strings.SplitSeq(value, ",") {
			if !slices.Contains(words, word) || seen[word] {
				return fmt.Errorf("give some of %s, each once, with commas between them", strings.Join(words, ","))
			}
			seen[word] = true
		}
		return nil
	}
}

func numberIn(low, high int) func(string) error {
	return func(value string) error {
		if n, err := strconv.Atoi(value); err != nil || n < low || n > high {
			return fmt.Errorf("give a whole number from %d to %d", low, high)
		}
		return nil
	}
}

func durationIn(low, high time.Duration) func(string) error {
	return func(value string) error {
		if d, err := time.ParseDuration(value); err != nil || d < low || d > high {
			return fmt.Errorf("give a duration from %s to %s, such as %s", low, high, max(low, min(5*time.Second, high)))
		}
		return nil
	}
}

var onOff = oneOf("on", "off")

// The parameters that every scenario has.
var (
	workloadParameters = []Parameter{
		{"trafficPolicy", "Local", "externalTrafficPolicy of the Service: Local or Cluster", oneOf("Local", "Cluster"), nil, nil},
		{"replicas", "1", "pods of the Deployment", numberIn(1, 100), nil, nil},
		{"antiAffinity", "on", "pods keep to different nodes", onOff, nil, nil},
		{"shutdownDelay", "30s", "how long a backend goes on serving after SIGTERM", durationIn(0, time.Hour), nil, nil},
		{"gracePeriod", "60s", "terminationGracePeriodSeconds of the pods", durationIn(0, 24*time.Hour), nil, nil},
		{"preStop", "0s", "preStop sleep of the pods", durationIn(0, time.Hour), nil, nil},
		{"readinessPeriod", "1s", "time between two readiness probes of a pod", durationIn(time.Second, time.Hour), nil, nil},
		{"terminatingFallback", "on", "KEP-1669: use serving terminating endpoints when none is ready; off is kube-proxy up to 1.25", onOff, []Capability{RestartableProxies}, nil},
	}
	balancerParameters = []Parameter{
		{"loadBalancer", "passthrough", "kind of external load balancer: passthrough or haproxy", oneOf("passthrough", "haproxy"), []Capability{OwnLoadBalancer}, nil},
		{"checkTarget", "auto", "what the balancer's health check asks: auto, healthz, healthCheckNodePort or nodePort", oneOf("auto", "healthz", "healthCheckNodePort", "nodePort"), []Capability{OwnLoadBalancer}, nil},
		{"checkInterval", "5s", "time between two health checks of a node", durationIn(100*time.Millisecond, time.Hour), nil, nil},
		{"checkFall", "3", "failed checks until a node is taken out", numberIn(1, 100), nil, nil},
		{"checkRise", "1", "passed checks until a node is taken in", numberIn(1, 100), nil, nil},
		{"flows", "sticky", "whether a flow keeps its node: sticky, or rehash (plain ECMP)", oneOf("sticky", "rehash"), []Capability{OwnLoadBalancer}, nil},
	}
	windowParameters = []Parameter{
		{"baseline", "20s", "time of undisturbed traffic before the scenario", durationIn(10*time.Second, time.Hour), nil, nil},
		{"settle", "20s", "time of traffic after the scenario", durationIn(time.Second, time.Hour), nil, nil},
	}
)
