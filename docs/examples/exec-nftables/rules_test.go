package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// state is what the API says of one Service with the given endpoints, each as "address ready serving".
func state(t *testing.T, endpoints ...string) ([]service, []slice) {
	t.Helper()
	var list []string
	for _, e := range endpoints {
		f := strings.Fields(e)
		list = append(list, `{"addresses":["`+f[0]+`"],"conditions":{"ready":`+f[1]+`,"serving":`+f[2]+`}}`)
	}
	var services serviceList
	var slices sliceList
	for text, into := range map[string]any{
		`{"items":[{"metadata":{"namespace":"default","name":"web"},"spec":{"clusterIP":"10.96.0.9","ports":[{"name":"http","protocol":"TCP","port":80}]},
		  "status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.10"}]}}}]}`: &services,
		`{"items":[{"metadata":{"namespace":"default","name":"web-1","labels":{"kubernetes.io/service-name":"web"}},"addressType":"IPv4",
		  "ports":[{"name":"http","protocol":"TCP","port":8080}],"endpoints":[` + strings.Join(list, ",") + `]}]}`: &slices,
	} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	return services.Items, slices.Items
}

// sendsTo are the lines for the external address.
func sendsTo(t *testing.T, p *proxy, endpoints ...string) string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(p.ruleset(state(t, endpoints...))) {
		if _, rule, is := strings.Cut(line, "ip daddr 203.0.113.10 tcp dport 80 "); is {
			lines = append(lines, strings.TrimSpace(rule))
		}
	}
	return strings.Join(lines, "\n")
}

func TestRules(t *testing.T) {
	for name, c := range map[string]struct {
		endpoints []string
		want      string
	}{
		"two ready":       {[]string{"10.244.2.2 true true", "10.244.1.2 true true"}, "dnat ip to numgen random mod 2 map { 0 : 10.244.1.2 . 8080, 1 : 10.244.2.2 . 8080 }"},
		"one terminating": {[]string{"10.244.2.2 false true", "10.244.1.2 true true"}, "dnat ip to numgen random mod 1 map { 0 : 10.244.1.2 . 8080 }"},
		"all terminating": {[]string{"10.244.2.2 false true"}, "dnat ip to numgen random mod 1 map { 0 : 10.244.2.2 . 8080 }"},
		"none":            {nil, "reject"},
	} {
		if got := sendsTo(t, &proxy{kept: map[string][]string{}}, c.endpoints...); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// The red twin sends to an endpoint that is gone.
func TestKeep(t *testing.T) {
	for keep, want := range map[bool]bool{false: false, true: true} {
		p := &proxy{keep: keep, kept: map[string][]string{}}
		sendsTo(t, p, "10.244.1.2 true true")
		if got := strings.Contains(sendsTo(t, p, "10.244.3.2 true true"), "10.244.1.2"); got != want {
			t.Errorf("keep=%t: sends to the endpoint that is gone: %t", keep, got)
		}
	}
}
