package timeline_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/hitless/hitless/scenarios/timeline"
)

const whole = `hitless timeline 1
# an endpoint is removed while a proxy does not run
nodes 2
seed 7
set replicas=2
lane tcp-long connections=24 rate=12
given {"apiVersion":"v1","kind":"Service","metadata":{"name":"quiet"},"spec":{"ports":[{"port":80}]}}

+0s    endpoints create busy addresses=192.0.2.1,192.0.2.2
+1.5s  proxy stop node-1
+1.5s  endpoints set busy addresses=192.0.2.2
+1.5s  object patch Service/default/web { "spec": {"sessionAffinity": "ClientIP"} }
+3s    proxy start node-1
+3s    workload rollout web
+3s    expect rolled-out web within=2m
+1m    lane stop tcp-long
+2m    end
`

func TestParse(t *testing.T) {
	got, err := timeline.Parse("f", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	if got.Nodes != 2 || got.Rate != 100 || got.Seed != 7 || len(got.Given) != 1 || len(got.Lanes) != 1 || len(got.Steps) != 9 || got.Length() != 2*time.Minute {
		t.Errorf("read %+v", got)
	}
	want := timeline.Step{At: 1500 * time.Millisecond, Verb: "endpoints set", Object: "busy", Args: []timeline.Arg{{Key: "addresses", Value: "192.0.2.2"}}, Line: 11}
	if diff := cmp.Diff(want, got.Steps[2]); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if s := got.Steps[6]; s.Duration("within", 0) != 2*time.Minute || s.Number("within", 5) != 5 || got.Lanes[0].Number("connections", 0) != 24 || got.Steps[1].Node() != "node-1" {
		t.Errorf("%+v", s)
	}
	if text := got.String(); !strings.Contains(text, `+1.5s object patch Service/default/web {"spec":{"sessionAffinity":"ClientIP"}}`) || !strings.HasPrefix(text, got.Header()) {
		t.Errorf("printed as\n%s", text)
	}
}

func TestErrorsHaveTheLine(t *testing.T) {
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}`
	for name, test := range map[string]struct{ text, want string }{
		"empty":                      {"", "f:1: the timeline is empty"},
		"another file":               {"\n- at: 0s\n", "f:2: the file is not a timeline"},
		"a later version":            {"hitless timeline 2\n+0s end\n", "f:1: the file is not a timeline of this version"},
		"bytes":                      {"hitless timeline 1\n\xff\n", "f:2: the line is not UTF-8"},
		"unknown word":               {"hitless timeline 1\nrestart node-1\n", `f:2: unknown word "restart"`},
		"unknown verb":               {steps("+0s proxy reboot node-1"), `f:2: unknown verb "proxy reboot"`},
		"no verb":                    {steps("+0s"), "f:2: the verb is missing"},
		"no duration":                {steps("+5 proxy stop node-1"), "f:2: +5 is not a time"},
		"negative":                   {steps("+-5s proxy stop node-1"), "f:2: +-5s is not a time"},
		"no time":                    {steps("+5s proxy stop node-1", "proxy start node-1"), "f:3: a step begins with its time"},
		"backwards":                  {steps("+5s proxy stop node-1", "+4s proxy start node-1"), "f:3: +4s comes after +5s"},
		"cut off":                    {"hitless timeline 1\n+5s proxy stop node-1\n", "f:2: the timeline is cut off"},
		"cut off in a step":          {"hitless timeline 1\n+5s proxy stop node-1\n+6s proxy sta", `f:3: unknown verb "proxy sta"`},
		"after the end":              {steps("+5s end", "+6s proxy stop node-1"), "f:3: the line is after `end`"},
		"unknown node":               {steps("+0s proxy stop node-4"), `f:2: proxy stop node-4: there is no node "node-4"; the nodes are node-1 to node-3`},
		"no object":                  {steps("+0s proxy stop"), "f:2: proxy stop: its object is missing"},
		"unknown workload":           {steps("+0s workload rollout shop"), `f:2: workload rollout shop: there is no workload "shop" at this time; there is web`},
		"not there yet":              {steps("+0s workload rollout a", "+1s workload deploy a"), "f:2: workload rollout a: there is no workload"},
		"deployed twice":             {steps("+0s workload deploy a", "+1s workload deploy a"), "f:3: workload deploy a: a exists already"},
		"unknown Service":            {steps("+0s endpoints set busy addresses=-"), `f:2: endpoints set busy addresses=-: there is no Service "busy"`},
		"unknown pod":                {steps("+0s pod kill web-1"), `f:2: pod kill web-1: there is no pod "web-1"`},
		"pod number 0":               {steps("+0s pod kill web#0"), "f:2: pod kill web#0: the pod web#0"},
		"started twice":              {steps("+0s pod start web-a workload=web node=node-1", "+1s pod start web-a workload=web node=node-2"), "f:3: pod start web-a"},
		"pod with another prefix":    {steps("+0s pod start a workload=web node=node-1"), "f:2: pod start a workload=web node=node-1: the pod's name must begin with web-"},
		"proxy runs":                 {steps("+0s proxy start node-1"), "f:2: proxy start node-1: the proxy of node-1 runs at this time"},
		"proxy has ended":            {steps("+0s proxy kill node-1", "+1s proxy stop node-1"), "f:3: proxy stop node-1: the proxy of node-1 has ended"},
		"proxy is not frozen":        {steps("+0s proxy thaw node-1"), "f:2:"},
		"a node that has power":      {steps("+0s node on node-1"), "f:2: node on node-1: node-1 has power at this time"},
		"no power twice":             {steps("+0s node off node-1", "+1s node off node-1"), "f:3: node off node-1: node-1 has no power at this time"},
		"power twice":                {steps("+0s node off node-1", "+1s node on node-1", "+2s node on node-1"), "f:4: node on node-1: node-1 has power at this time"},
		"proxy without power":        {steps("+0s node off node-1", "+1s proxy stop node-1"), "f:3: proxy stop node-1: node-1 has no power at this time"},
		"start without power":        {steps("+0s proxy stop node-1", "+0s node off node-1", "+1s proxy start node-1"), "f:4: proxy start node-1: node-1 has no power at this time"},
		"thaw without power":         {steps("+0s proxy freeze node-1", "+0s node off node-1", "+1s proxy thaw node-1"), "f:4: proxy thaw node-1: node-1 has no power at this time"},
		"clean without power":        {steps("+0s proxy stop node-1", "+0s node off node-1", "+1s proxy cleanup node-1"), "f:4: proxy cleanup node-1: node-1 has no power"},
		"flush without power":        {steps("+0s node off node-1", "+1s proxy flush node-1"), "f:3: proxy flush node-1: node-1 has no power at this time"},
		"a boot starts the proxy":    {steps("+0s proxy stop node-1", "+0s node off node-1", "+1s node on node-1", "+2s proxy start node-1"), "f:5: proxy start node-1: the proxy of node-1 runs at this time"},
		"a boot thaws nothing":       {steps("+0s proxy freeze node-1", "+0s node off node-1", "+1s node on node-1", "+2s proxy thaw node-1"), "f:5: proxy thaw node-1: the proxy of node-1 runs at this time"},
		"a boot leaves no tables":    {steps("+0s proxy flush node-1", "+0s node off node-1", "+1s node on node-1", "+2s proxy restore node-1"), "f:5: proxy restore node-1:"},
		"block without power":        {steps("+0s node off node-1", "+1s proxy block node-1"), "f:3: proxy block node-1: node-1 has no power at this time"},
		"block without a proxy":      {steps("+0s proxy stop node-1", "+1s proxy block node-1"), "f:3: proxy block node-1: the proxy of node-1 has ended at this time"},
		"blocked twice":              {steps("+0s proxy block node-1", "+1s proxy block node-1"), "f:3: proxy block node-1: node-1 has a blocked proxy already"},
		"nothing to unblock":         {steps("+0s proxy block node-2", "+1s proxy unblock node-1"), "f:3: proxy unblock node-1: node-1 has no blocked proxy"},
		"start while blocked":        {steps("+0s proxy block node-1", "+0s proxy kill node-1", "+1s proxy start node-1"), "f:4: proxy start node-1: the proxy of node-1 is blocked at this time"},
		"a boot unblocks":            {steps("+0s proxy block node-1", "+0s node off node-1", "+1s node on node-1", "+2s proxy unblock node-1"), "f:5: proxy unblock node-1: node-1 has no blocked proxy"},
		"pod without power":          {steps("+0s node off node-2", "+1s pod start web-a workload=web node=node-2"), "f:3: pod start web-a workload=web node=node-2: node-2 has no power at this time"},
		"api cut without a proxy":    {steps("+0s proxy kill node-1", "+1s api cut node-1"), "f:3: api cut node-1: the proxy of node-1 has ended at this time: it has no watches"},
		"api lose without power":     {steps("+0s node off node-1", "+1s api lose node-1"), "f:3: api lose node-1: node-1 has no power at this time: it has no watches"},
		"api away without proxies":   {"hitless timeline 1\nnodes 1\n+0s proxy stop node-1\n+1s api away all\n+2s end\n", "f:4: api away all: the proxy of node-1 has ended at this time: it has no watches"},
		"expire while cut off":       {steps("+0s api away node-1", "+1s api expire node-1"), "f:3: api expire node-1: node-1 is cut off from the API server at this time: it has no watches"},
		"cordoned twice":             {steps("+0s node cordon node-1", "+1s node cordon node-1 taint=ToBeDeletedByClusterAutoscaler"), "f:3: node cordon node-1 taint=ToBeDeletedByClusterAutoscaler: node-1 is cordoned already at this time"},
		"cordon without power":       {steps("+0s node off node-1", "+1s node cordon node-1"), "f:3: node cordon node-1: node-1 has no power at this time"},
		"a boot uncordons nothing":   {steps("+0s node cordon node-1", "+0s node off node-1", "+1s node on node-1", "+2s node cordon node-1"), "f:5: node cordon node-1: node-1 is cordoned already"},
		"another node was changed":   {steps("+0s node cordon node-1", `+1s object patch Node/node-2 {"spec":{"unschedulable":false}}`, "+2s node cordon node-1"), "f:4: node cordon node-1: node-1 is cordoned already"},
		"cordon of no node":          {steps("+0s node cordon all"), `f:2: node cordon all: there is no node "all"`},
		"another taint":              {steps("+0s node cordon node-1 taint=gone"), `f:2: node cordon: taint: "gone" is not one of ToBeDeletedByClusterAutoscaler`},
		"evict without power":        {steps("+0s node off node-1", "+1s node evict node-1"), "f:3: node evict node-1: node-1 has no power at this time"},
		"a budget of no pods":        {steps("+0s node evict node-1 minAvailable=0"), `f:2: node evict: minAvailable: "0" is not`},
		"two budgets":                {steps("+0s node evict node-1 minAvailable=1", "+1s node evict node-2 minAvailable=1"), "f:3: node evict node-2 minAvailable=1: the PodDisruptionBudget exists already at this time"},
		"no address of IPv4":         {steps("+0s ask arp fd00::1"), `f:2: ask arp fd00::1: "fd00::1" is not an IPv4 address`},
		"no command":                 {steps("+0s node run node-1"), "f:2: node run: give its object and a command"},
		"run without power":          {steps("+0s node off node-1", "+1s node run node-1 nft flush ruleset"), "f:3: node run node-1 nft flush ruleset: node-1 has no power"},
		"neither added nor removed":  {steps("+0s node address node-1"), "f:2: node address node-1: give add= or remove="},
		"bad prefix":                 {steps("+0s node address node-1 add=192.0.2.1"), `f:2: node address: add: "192.0.2.1" is not an address with a length`},
		"no setting of the network":  {steps("+0s node sysctl node-1 name=vm.swappiness value=1"), `f:2: node sysctl: name: "vm.swappiness" is not a setting of the network`},
		"nothing to restore":         {steps("+0s proxy restore node-1"), "f:2:"},
		"two other subjects":         {steps("+0s proxy stop node-1", "+0s proxy change node-1 to=a", "+0s proxy change node-1 to=b"), "f:4: proxy change node-1 to=b: a timeline can name one other subject"},
		"change without the subject": {steps("+0s proxy stop node-1", "+0s proxy change node-1"), "f:3: proxy change: to= is missing"},
		"unknown key":                {steps("+0s workload scale web size=3"), `f:2: workload scale has no argument "size=3"; its arguments are replicas=`},
		"verb without arguments":     {steps("+0s proxy stop node-1 now"), `f:2: proxy stop has no argument "now"; it has no arguments`},
		"key twice":                  {steps("+0s workload scale web replicas=3 replicas=3"), "f:2: workload scale: replicas is given twice"},
		"key missing":                {steps("+0s workload scale web"), "f:2: workload scale: replicas= is missing"},
		"bad number":                 {steps("+0s workload scale web replicas=none"), `f:2: workload scale: replicas: "none" is not a whole number`},
		"bad duration":               {steps("+0s api delay node-1 by=5"), `f:2: api delay: by: "5" is not a duration`},
		"bad address":                {steps("+0s endpoints create a addresses=1.2.3"), `f:2: endpoints create: addresses: "1.2.3" is not an IP address`},
		"address twice":              {steps("+0s endpoints create a addresses=1.2.3.4,1.2.3.4"), "f:2: endpoints create: addresses: 1.2.3.4 is there twice"},
		"nothing known to lose":      {steps("+0s api lose node-2 resource=pods"), `f:2: api lose: resource: "pods" is not one of services, endpointslices, endpoints, nodes`},
		"lost by no node":            {steps("+0s api lose node-4"), `f:2: api lose node-4: there is no node "node-4"`},
		"API server is not away":     {steps("+0s api back node-2"), "f:2: api back node-2: node-2 is not cut off"},
		"away twice":                 {steps("+0s api away node-2", "+0s api away all"), "f:3: api away all: node-2 is cut off from the API server already"},
		"lane runs":                  {"hitless timeline 1\nlane tcp-new\n+0s end\n", "f:2: lane start tcp-new: tcp-new runs already"},
		"lane after the baseline":    {steps("+0s lane start tcp-long"), "f:2: a lane must run from the baseline on"},
		"lane does not run":          {steps("+0s lane stop udp-fresh"), "f:2: lane stop udp-fresh:"},
		"unknown lane":               {"hitless timeline 1\nlane udp\n+0s end\n", `f:2: lane start udp: "udp" is not one of tcp-long`},
		"nothing open":               {steps("+0s client close web"), "f:2: client close web:"},
		"no JSON":                    {steps("+0s object apply"), "f:2: object apply: an object as JSON"},
		"not JSON":                   {steps("+0s object apply {kind: Pod}"), "f:2: object apply: the object is not JSON"},
		"JSON where there is none":   {steps("+0s proxy stop node-1 {}"), "f:2: proxy stop takes no JSON"},
		"unknown kind":               {steps(`+0s object apply {"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}`), `f:2: object apply: the kind "Secret" is not one of`},
		"unknown field":              {steps(`+0s object apply {"apiVersion":"v1","kind":"Service","metadata":{"name":"a"},"spec":{"port":80}}`), "f:2: object apply: strict decoding error: unknown field"},
		"no name":                    {steps(`+0s object apply {"apiVersion":"v1","kind":"Service"}`), "f:2: object apply: the object has no metadata.name"},
		"bad reference":              {steps("+0s object delete Service/web"), `f:2: object delete Service/web: "Service/web" is not a reference`},
		"nodes twice":                {"hitless timeline 1\nnodes 2\nnodes 3\n+0s end\n", "f:3: nodes is given twice, first in line 2"},
		"set twice":                  {"hitless timeline 1\nset a=1\nset a=2\n+0s end\n", "f:3: set a is given twice, first in line 2"},
		"set without a value":        {"hitless timeline 1\nset replicas 2\n+0s end\n", "f:2: set replicas 2: give set KEY=VALUE"},
		"bad rate":                   {"hitless timeline 1\nrate NaN\n+0s end\n", `f:2: "NaN" is not a number of attempts`},
		"bad seed":                   {"hitless timeline 1\nseed one\n+0s end\n", `f:2: "one" is not a whole number`},
		"object twice":               {"hitless timeline 1\ngiven " + pod + "\ngiven " + pod + "\n+0s end\n", "f:3: Pod/default/a is given twice, first in line 2"},
		"head after steps":           {steps("+0s proxy stop node-1", "nodes 2"), "f:3: a step begins with its time, such as +5s; other lines must be before"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := timeline.Parse("f", []byte(test.text))
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %v\nwant %s", err, test.want)
			}
		})
	}
}

// Steps that are possible while a node has no power: on other nodes, `proxy change` on that node, and all steps after it boots.
func TestStepsWithoutPower(t *testing.T) {
	text := steps("+0s proxy freeze node-1", "+0s node off node-1", "+1s proxy change node-1 to=kube-proxy@v1.26.0/iptables", "+1s proxy stop node-2",
		"+1s api cut all", "+1s pod start web-a workload=web node=node-3", "+2s node on node-1", "+3s proxy stop node-1", "+4s proxy start node-1", "+4s api lose node-1",
		"+5s node off node-1", "+6s proxy start node-2")
	if _, err := timeline.Parse("f", []byte(text)); err != nil {
		t.Error(err)
	}
}

// A node is cordoned again after another step has changed its object, and pods are evicted from each node in turn.
func TestCordonsAndEvictions(t *testing.T) {
	text := steps("+0s node cordon node-1", "+1s node evict node-1 minAvailable=1", "+2s node cordon node-2", "+2s node evict node-2",
		`+3s object patch Node/node-1 {"spec":{"unschedulable":false}}`, "+4s node cordon node-1 taint=ToBeDeletedByClusterAutoscaler", "+5s node evict node-1", "+6s node off node-1")
	line, err := timeline.Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if cordon, evict := line.Steps[5], line.Steps[1]; cordon.Get("taint") != timeline.AutoscalerTaint || evict.Number("minAvailable", 0) != 1 || evict.Node() != "node-1" {
		t.Errorf("read %+v and %+v", cordon, evict)
	}
}

// The rest of a line is a command, also with braces.
func TestCommandsOnNodes(t *testing.T) {
	text := steps("+0s node run node-1  nft add chain ip lab drops { type filter hook input priority 0 ; }")
	line, err := timeline.Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if want := "nft add chain ip lab drops { type filter hook input priority 0 ; }"; line.Steps[0].Text != want {
		t.Errorf("the command is %q, want %q", line.Steps[0].Text, want)
	}
}

// steps returns a timeline with these steps from line 2 on.
func steps(lines ...string) string {
	return "hitless timeline 1\n" + strings.Join(lines, "\n") + "\n+1h end\n"
}

// anyTimeline draws random steps and keeps those that are possible.
func anyTimeline(t *rapid.T) *timeline.Timeline {
	line := timeline.New()
	line.Nodes, line.Rate, line.Seed = rapid.IntRange(1, 50).Draw(t, "nodes"), rapid.Float64Range(0.001, 5000).Draw(t, "rate"), rapid.Int64().Draw(t, "seed")
	for _, key := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"replicas", "trafficPolicy", "baseline"}), rapid.ID[string]).Draw(t, "keys") {
		line.Set = append(line.Set, timeline.Setting{Key: key, Value: rapid.StringMatching(`[^ \t\n\r\v\f\x{85}\x{a0}\pZ]*`).Draw(t, "value")})
	}
	values := map[string]*rapid.Generator[string]{
		"grace": rapid.SampledFrom([]string{"1s", "30s", "1m0s"}), "replicas": number(1, 100), "ports": number(1, 1000), "each": number(1, 1000),
		"connections": number(1, 10000), "policy": rapid.SampledFrom([]string{"Local", "Cluster"}), "gated": rapid.SampledFrom([]string{"on", "off"}),
		"addresses": rapid.SampledFrom([]string{"-", "192.0.2.1", "192.0.2.1,10.1.2.3"}), "workload": rapid.SampledFrom([]string{"web", "a"}),
		"node": rapid.SampledFrom([]string{"node-1", "node-2"}), "to": rapid.SampledFrom([]string{"subject", "kube-proxy@v1.26.0/iptables"}),
		"by": rapid.SampledFrom([]string{"0s", "250ms", "1m"}), "rate": rapid.SampledFrom([]string{"0.5", "100", "1e3"}), "within": rapid.SampledFrom([]string{"1s", "1h"}),
		"resource": rapid.SampledFrom([]string{"services", "endpointslices"}), "add": rapid.SampledFrom([]string{"192.0.2.1/32", "2001:db8::1/128"}),
		"taint": rapid.Just(timeline.AutoscalerTaint), "minAvailable": number(1, 100), "remove": rapid.Just("192.0.2.1/32"), "name": rapid.Just("net.ipv4.ip_forward"), "value": rapid.SampledFrom([]string{"0", "1"})}
	for _, protocol := range rapid.SliceOfDistinct(rapid.SampledFrom(timeline.Protocols()[:4]), rapid.ID[string]).Draw(t, "lanes") {
		line.Lanes = append(line.Lanes, timeline.Step{Verb: "lane start", Object: protocol, Args: []timeline.Arg{{Key: "connections", Value: values["connections"].Draw(t, "connections")}}})
	}
	var at time.Duration
	can := func(s timeline.Step) bool {
		all := append(slices.Clone(line.Steps), s, timeline.Step{At: s.At, Verb: timeline.End})
		_, err := timeline.Parse("", []byte(line.With(all).String()))
		return err == nil
	}
	add := func(verb string) {
		s := timeline.Step{At: at, Verb: verb}
		change := rapid.SampledFrom([]string{"add", "remove"}).Draw(t, "change")
		for _, k := range []string{"grace", "replicas", "policy", "gated", "ports", "addresses", "workload", "node", "to", "by", "resource", "each", "connections", "rate", "within",
			"name", "value", "taint", "minAvailable", change} {
			s.Args = append(s.Args, timeline.Arg{Key: k, Value: values[k].Draw(t, k)})
		}
		switch verb {
		case "object apply":
			s.JSON = fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"s","annotations":{"a":%q}}}`, rapid.StringMatching(`[a-z{} ]*`).Draw(t, "text"))
		case "object patch":
			s.JSON = `{"spec":null}`
		}
		family, _, _ := strings.Cut(verb, " ")
		objects := objectsOf[family]
		first := rapid.IntRange(0, len(objects)-1).Draw(t, "object")
		for i := range objects {
			if s.Object = objects[(first+i)%len(objects)]; verb == "object apply" {
				s.Object = ""
			}
			if s = withoutUnknownArgs(s); can(s) {
				line.Steps = append(line.Steps, dropArgs(t, s, can))
				return
			}
		}
	}
	for _, verb := range rapid.Permutation(timeline.Verbs()).Draw(t, "verbs")[:rapid.IntRange(0, 30).Draw(t, "steps")] {
		at += time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "later"))
		if before := needs[verb]; before != "" {
			add(before)
		}
		if verb != timeline.End {
			add(verb)
		}
	}
	line.Steps = append(line.Steps, timeline.Step{At: at, Verb: timeline.End})
	return line
}

// needs maps a verb to one that must be performed before it.
var needs = map[string]string{"proxy start": "proxy stop", "proxy change": "proxy kill", "proxy cleanup": "proxy kill", "proxy thaw": "proxy freeze",
	"proxy restore": "proxy flush", "proxy unblock": "proxy block", "node on": "node off", "api back": "api away", "client close": "client open", "endpoints set": "endpoints create",
	"pod start": "workload deploy"}

// objectsOf has possible objects by the first word of a verb. Not all of them exist.
var objectsOf = map[string][]string{
	"ask":   {"203.0.113.10"},
	"proxy": {"node-1", "node-2"}, "node": {"node-1", "node-2"}, "api": {"all", "node-1", "node-2"}, "workload": {"web", "a", "b"}, "endpoints": {"a", "b"},
	"pod": {"web#1", "a#2", "web-p", "a-p"}, "client": {"web", "a"}, "lane": timeline.Protocols(), "object": {"Service/default/web", "Node/node-1"},
	"expect": {"web", "a", "web#1", "web-p", "all"}, "await": {"web", "a", "web#1", "web-p", "all"},
}

// dropArgs removes some of the optional arguments.
func dropArgs(t *rapid.T, s timeline.Step, can func(timeline.Step) bool) timeline.Step {
	for _, a := range slices.Clone(s.Args) {
		less := s
		less.Args = slices.DeleteFunc(slices.Clone(s.Args), func(other timeline.Arg) bool { return other == a })
		if rapid.Bool().Draw(t, "without "+a.Key) && can(less) {
			s = less
		}
	}
	return s
}

// withoutUnknownArgs removes the arguments that the parser's errors name as unknown.
func withoutUnknownArgs(s timeline.Step) timeline.Step {
	for {
		_, err := timeline.Parse("", []byte(steps(s.String())))
		if err == nil {
			return s
		}
		i := slices.IndexFunc(s.Args, func(a timeline.Arg) bool {
			return strings.Contains(err.Error(), fmt.Sprintf("has no argument %q", a.Key+"="+a.Value))
		})
		if i < 0 {
			return s
		}
		s.Args = slices.Delete(s.Args, i, i+1)
	}
}

func number(low, high int) *rapid.Generator[string] {
	return rapid.Map(rapid.IntRange(low, high), strconv.Itoa)
}

func TestPrintAndParse(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		want := anyTimeline(t)
		got, err := timeline.Parse("f", []byte(want.String()))
		if err != nil {
			t.Fatalf("%v\n%s", err, want)
		}
		for _, s := range slices.Concat(got.Lanes, got.Steps) {
			seen[s.Verb]++
		}
		if diff := cmp.Diff(withoutLines(want), withoutLines(got)); diff != "" {
			t.Fatalf("(-printed +parsed)\n%s\n%s", diff, want)
		}
	})
	for _, verb := range timeline.Verbs() {
		if seen[verb] == 0 {
			t.Errorf("no timeline had the verb %q, so it is not tested", verb)
		}
	}
	t.Logf("steps by verb: %v", seen)
}

// withoutLines clears the line numbers.
func withoutLines(t *timeline.Timeline) *timeline.Timeline {
	c := *t
	c.Set, c.Lanes, c.Given, c.Steps = slices.Clone(c.Set), slices.Clone(c.Lanes), slices.Clone(c.Given), slices.Clone(c.Steps)
	for i := range c.Set {
		c.Set[i].Line = 0
	}
	for _, steps := range [][]timeline.Step{c.Lanes, c.Given, c.Steps} {
		for i := range steps {
			steps[i].Line = 0
		}
	}
	return &c
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(steps("+0s proxy stop node-1", "+1ns proxy change node-1 to=x", "+1s api delay all by=1s")))
	f.Add([]byte("hitless timeline 1\nset a=\x0b\nrate 0x1p3\n+0s end"))
	f.Fuzz(func(t *testing.T, text []byte) {
		first, err := timeline.Parse("f", text)
		if err != nil {
			checkError(t, string(text), err)
			return
		}
		again, err := timeline.Parse("f", []byte(first.String()))
		if err != nil {
			t.Fatalf("%v\n%s", err, first)
		}
		if diff := cmp.Diff(withoutLines(first), withoutLines(again)); diff != "" {
			t.Errorf("(-first +second)\n%s", diff)
		}
	})
}
