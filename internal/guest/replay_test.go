//go:build linux

package guest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
	"github.com/hitless/hitless/scenarios/timeline"
)

// journal keeps the timeline of a run.
type journal struct{ strings.Builder }

func (j *journal) Journal(text string) { j.WriteString(text) }

// recorded runs a scenario on a stage and returns the stage and the timeline that the run wrote.
func recorded(t *testing.T, s *stage, scenario scenarios.Scenario) *timeline.Timeline {
	t.Helper()
	var text journal
	s.world.Site.OfferJournal(&text)
	s.world.Seed = 4
	if err := scenarios.Run(context.Background(), scenario, &s.world); err != nil {
		t.Fatalf("%v\n%s", err, text.String())
	}
	parsed, err := timeline.Parse("f", []byte(text.String()))
	if err != nil {
		t.Fatalf("%v\n%s", err, text.String())
	}
	declared := scenario.Steps(s.world.Params)
	for _, step := range parsed.Steps {
		if step.Verb != timeline.End && !slices.Contains(declared, step.Verb) {
			t.Errorf("%s performs %q, which is none of its steps: its needs do not include that", scenario.Name, step.Verb)
		}
	}
	return parsed
}

// replayed makes a stage for a timeline.
func replayed(t *testing.T, line *timeline.Timeline) (*stage, scenarios.Scenario) {
	t.Helper()
	scenario := scenarios.Replay(line)
	set := map[string]string{}
	for _, s := range line.Set {
		set[s.Key] = s.Value
	}
	return stageOf(t, scenario, set), scenario
}

func did(steps []timeline.Step) (all []string) {
	for _, s := range steps {
		all = append(all, s.Action())
	}
	return all
}

// What a scenario did to the cluster is done again from its timeline, in the same order and no earlier.
func TestAScenarioIsReplayedFromItsTimeline(t *testing.T) {
	for name, c := range map[string]struct {
		set  map[string]string
		want []string // steps among those that must be there
	}{
		"flap":     {map[string]string{"flaps": "2"}, []string{"pod unready web#1", "expect unready web#1 within=30s", "pod ready web#2", "lane stop tcp-long"}},
		"policy":   {map[string]string{"changes": "externalTrafficPolicy,ports", "replicas": "2"}, []string{`object patch Service/default/web {"spec":{"externalTrafficPolicy":"Local"}}`}},
		"churn":    {map[string]string{"for": "2m", "ports": "4", "rolloutEvery": "1"}, []string{"workload deploy drained replicas=1 policy=Cluster gated=on ports=4", "client open drained each=3", "endpoints set busy addresses=192.0.2.2,192.0.2.3,192.0.2.4,192.0.2.5", "workload rollout web"}},
		"recreate": {map[string]string{"replicas": "2"}, []string{"object delete Service/default/web", "expect balanced web within=1m25s"}},
		"rollout":  {nil, []string{"workload rollout web", "expect rolled-out web within=2m0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				scenario := find(t, name)
				stage := func(s *stage) *stage {
					proxies, open := &restarts{}, &openings{}
					s.world.Site.OfferProxies(proxies)
					s.hold = open.hold
					return s
				}
				first := recorded(t, stage(stageOf(t, scenario, c.set)), scenario)
				for _, want := range c.want {
					if !slices.Contains(did(first.Steps), want) {
						t.Errorf("the timeline has no %q:\n%s", want, first)
					}
				}
				s, again := replayed(t, first)
				second := recorded(t, stage(s), again)
				if first.Header() != second.Header() || !slices.Equal(did(first.Steps), did(second.Steps)) {
					t.Fatalf("replayed, the timeline is\n%s\nwant\n%s", second, first)
				}
				for i, step := range second.Steps {
					if step.At < first.Steps[i].At {
						t.Errorf("%s came before its time, which is +%s", step, first.Steps[i].At)
					}
				}
			})
		})
	}
}

// stageFor makes the nodes of a stage known to the API, and gives it power and nft.
func stageFor(t *testing.T, s *stage, nodes scenarios.Commands, p *powered) *stage {
	t.Helper()
	s.addNodes(t)
	s.world.Site.OfferProxies(p).OfferPower(p).OfferCommands(nodes)
	return s
}

// A removed node is removed again from the timeline of the run, in the same order, with the same causes and the same excuses.
func TestDrainIsReplayedFromItsTimeline(t *testing.T) {
	for name, c := range map[string]struct {
		set  map[string]string
		want []string // all steps but the end
	}{
		"drain":            {map[string]string{"replicas": "2"}, []string{"node cordon node-1", "node evict node-1 minAvailable=1", "expect rolled-out web within=2m0s"}},
		"without a budget": {map[string]string{"replicas": "2", "minAvailable": "0"}, []string{"node cordon node-1", "node evict node-1", "expect rolled-out web within=2m0s"}},
		"scaledown":        {map[string]string{"replicas": "1", "what": "scaledown"}, []string{"node cordon node-2 taint=ToBeDeletedByClusterAutoscaler", "node evict node-2", "node off node-2"}},
		"soon":             {map[string]string{"replicas": "1", "what": "scaledown", "leave": "5s"}, []string{"node cordon node-2 taint=ToBeDeletedByClusterAutoscaler", "node evict node-2", "node off node-2"}},
		"reboot":           {map[string]string{"replicas": "2", "what": "reboot", "off": "40s"}, []string{"node off node-1", "node on node-1", "expect rolled-out web within=2m0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c.set["antiAffinity"] = "off"
				scenario := find(t, "drain")
				p := &powered{off: map[string]bool{}}
				one := stageFor(t, stageOf(t, scenario, c.set), p, p)
				first := recorded(t, one, scenario)
				if got := did(first.Steps[:len(first.Steps)-1]); !slices.Equal(got, c.want) {
					t.Fatalf("the timeline has %q, want %q", got, c.want)
				}
				s, again := replayed(t, first)
				q := &powered{off: map[string]bool{}}
				two := stageFor(t, s, q, q)
				second := recorded(t, two, again)
				if first.Header() != second.Header() || !slices.Equal(did(first.Steps), did(second.Steps)) || !slices.Equal(p.done, q.done) {
					t.Errorf("replayed, the timeline is\n%s\nwant\n%s\nand the power did %q, want %q", second, first, q.done, p.done)
				}
				if got, want := two.nodesOfPods(t), one.nodesOfPods(t); !slices.Equal(got, want) {
					t.Errorf("replayed, the pods are on %q, want %q", got, want)
				}
				one.sameExcuses(t, two)
			})
		})
	}
}

// sameExcuses compares the excuses of a run with those of its replay, which begins at another time.
func (s *stage) sameExcuses(t *testing.T, replay *stage) {
	t.Helper()
	want, got := s.excuses(t), replay.excuses(t)
	if len(want) != len(got) {
		t.Fatalf("replayed, %+v is excused, want %+v", got, want)
	}
	for i := range want {
		a, b := want[i].Body.(record.Excuse), got[i].Body.(record.Excuse)
		off := (window(want[i]) - window(got[i])).Abs()
		if a.Path != b.Path || a.Share != b.Share || a.Open != b.Open || want[i].Node != got[i].Node || want[i].Text != got[i].Text || off > time.Second {
			t.Errorf("replayed, the excuse is %q %+v, want %q %+v", got[i].Text, b, want[i].Text, a)
		}
	}
}

// A timeline's eviction waits for its budget: one that needs every pod makes the run invalid, and keeps the pods.
func TestEvictionOfATimelineHonoursItsBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for least, kept := range map[string]bool{"": false, " minAvailable=1": false, " minAvailable=2": true} {
			line, err := timeline.Parse("f", []byte("hitless timeline 1\nnodes 2\nset antiAffinity=off\nset gracePeriod=1s\nset replicas=2\nset trafficPolicy=Cluster\n"+
				"+0s node cordon node-1\n+1s node evict node-1"+least+"\n+5s end\n"))
			if err != nil {
				t.Fatal(err)
			}
			s, scenario := replayed(t, line)
			s.addNodes(t)
			err = scenarios.Run(t.Context(), scenario, &s.world)
			if kept != (err != nil) || err != nil && !strings.Contains(err.Error(), "line 8: node evict node-1 minAvailable=2: ") {
				t.Errorf("node evict node-1%s: %v", least, err)
			}
			if on := slices.Contains(s.nodesOfPods(t), "node-1"); on != kept {
				t.Errorf("node evict node-1%s: a pod is on node-1: %t", least, on)
			}
		}
	})
}

// The commands that change the rules are steps, and listings are none. The replay runs the same commands.
func TestInterferenceIsReplayedFromItsTimeline(t *testing.T) {
	const add, undo = "node run node-1 nft add table inet stale-policy; add chain inet stale-policy pods ", "node run node-1 nft add table inet stale-policy; delete table inet stale-policy"
	for what, want := range map[string][]string{
		"flush":       {"node run node-1 nft flush ruleset"},
		"reload":      {"node run node-1 nft add table inet host-firewall; ", "node run node-1 nft flush ruleset; add table inet host-firewall; ", "node run node-1 nft delete table inet host-firewall"},
		"stale-drop":  {add, undo},
		"stale-allow": {add, "node run node-1 nft delete rule inet stale-policy pods handle 2", undo},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				scenario := find(t, "interference")
				stage := func(s *stage) (*stage, *ruleset) {
					r := &ruleset{own: 3}
					r.off = map[string]bool{}
					s.world.Site.OfferCommands(r)
					return s, r
				}
				one, r := stage(stageOf(t, scenario, map[string]string{"what": what, "replicas": "2"}))
				first := recorded(t, one, scenario)
				got := did(first.Steps[:len(first.Steps)-1])
				if !slices.EqualFunc(got, want, strings.HasPrefix) {
					t.Fatalf("the timeline has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
				s, again := replayed(t, first)
				two, q := stage(s)
				second := recorded(t, two, again)
				if !slices.Equal(did(first.Steps), did(second.Steps)) || !slices.Equal(r.changes, q.changes) {
					t.Errorf("replayed, the timeline is\n%s\nwant\n%s\nand nft ran %q, want %q", second, first, q.changes, r.changes)
				}
			})
		})
	}
}

// A written timeline does to objects and pods what it says.
func TestATimelineChangesObjectsAndPods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		line, err := timeline.Parse("f", []byte(`hitless timeline 1
nodes 2
set gated=on
set antiAffinity=off
given {"apiVersion":"v1","kind":"Service","metadata":{"name":"quiet"},"spec":{"clusterIP":"10.96.9.9","ports":[{"port":80}]},"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.9"}]}}}
given {"apiVersion":"v1","kind":"Service","metadata":{"name":"goes"},"spec":{"ports":[{"port":80}]}}
+0s object apply {"apiVersion":"v1","kind":"Service","metadata":{"name":"quiet"},"spec":{"clusterIP":"10.96.9.9","ports":[{"port":81}]}}
+0s object delete Service/default/goes
+0s endpoints create busy addresses=192.0.2.1,192.0.2.2
+1s endpoints set busy addresses=192.0.2.2
+1s pod start web-own workload=web node=node-2
+1s pod ready web-own
+1s expect ready web-own
+2s pod unready web#1
+2s expect unready web#1
+3s workload scale web replicas=3
+3s pod ready web#1
+3s await rolled-out web within=1s
+4s pod terminate web-own grace=5s
+4s expect gone web-own
+5s end
`))
		if err != nil {
			t.Fatal(err)
		}
		s, scenario := replayed(t, line)
		recorded(t, s, scenario)
		ctx := t.Context()
		quiet, err := s.client.CoreV1().Services("default").Get(ctx, "quiet", metav1.GetOptions{})
		if err != nil || quiet.Spec.Ports[0].Port != 81 || len(quiet.Status.LoadBalancer.Ingress) != 1 {
			t.Errorf("the replaced Service is %+v, %v", quiet, err)
		}
		if _, err := s.client.CoreV1().Services("default").Get(ctx, "goes", metav1.GetOptions{}); err == nil {
			t.Error("the deleted Service is there")
		}
		var slice *discoveryv1.EndpointSlice
		if slice, err = s.client.DiscoveryV1().EndpointSlices("default").Get(ctx, "busy-1", metav1.GetOptions{}); err != nil || len(slice.Endpoints) != 1 || slice.Endpoints[0].Addresses[0] != "192.0.2.2" {
			t.Errorf("the endpoints of busy are %+v, %v", slice, err)
		}
		var pods *corev1.PodList
		if err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, 10*time.Second, true, func(ctx context.Context) (three bool, err error) {
			pods, err = s.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
			return err == nil && len(pods.Items) == 3, err
		}); err != nil {
			t.Fatalf("waiting for 3 replicas: %v", err)
		}
		if slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return p.Name == "web-own" }) {
			t.Error("web-own is there after it was ended")
		}
	})
}

// What was recorded stays as it was recorded beside the lab's own controllers, and is nothing that the measured Service takes
// for its own: recorded pods have no labels, recorded Services no selector.
func TestARecordingIsReplayedBesideTheLabsControllers(t *testing.T) {
	t.Parallel()
	const local = `{"apiVersion":"v1","kind":"Service","metadata":{"name":"svc-00001","namespace":"ns-00001"},"spec":{"clusterIP":"10.112.0.1","externalTrafficPolicy":"Local","healthCheckNodePort":31000,"loadBalancerClass":"hitless/recorded","ports":[{"nodePort":31001,"port":80,"protocol":"TCP","targetPort":8080}],"type":"LoadBalancer"},"status":{"loadBalancer":%s}}`
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"pod-00001","namespace":"ns-00001"},"spec":{"containers":[{"image":"recorded","name":"recorded","resources":{}}],"nodeName":"recorded-node-00001"},"status":{"conditions":[{"status":"True","type":"Ready"}],"phase":"Running","podIP":"10.128.0.1","podIPs":[{"ip":"10.128.0.1"}]}}`
	const slice = `{"addressType":"IPv4","apiVersion":"discovery.k8s.io/v1","endpoints":[%s],"kind":"EndpointSlice","metadata":{"labels":{"kubernetes.io/service-name":"svc-00001"},"name":"slice-00001","namespace":"ns-00001"},"ports":[{"name":"","port":8080,"protocol":"TCP"}]}`
	balanced, endpoint := `{"ingress":[{"ip":"172.16.0.1"}]}`, `{"addresses":["10.128.0.1"],"conditions":{"ready":true},"nodeName":"recorded-node-00001"}`
	text := []string{"hitless timeline 1", "nodes 2",
		`given {"apiVersion":"v1","kind":"Node","metadata":{"name":"recorded-node-00001"},"status":{"addresses":[{"type":"InternalIP","address":"10.128.0.2"}],"conditions":null}}`,
		"given " + fmt.Sprintf(local, balanced), "given " + fmt.Sprintf(slice, endpoint), "given " + pod,
		"+1s object apply " + fmt.Sprintf(slice, ""), "+1s object delete Pod/ns-00001/pod-00001 grace=30s", "+2s object apply " + fmt.Sprintf(local, "null"),
		"+3s object apply " + fmt.Sprintf(slice, endpoint), "+3s object delete Pod/ns-00001/pod-00001 grace=0s", "+4s object apply " + pod, "+5s end\n"}
	line, err := timeline.Parse("f", []byte(strings.Join(text, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	for name, requests := range map[string]bool{"made by requests": true, "put into the replay control plane": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, scenario := replayed(t, line)
				if !requests {
					s.world.Site.OfferControlPlane(apiServer{server: s.plane})
				}
				recorded(t, s, scenario)
				s.hasTheRecording(t)
			})
		})
	}
}

func (s *stage) hasTheRecording(t *testing.T) {
	ctx := t.Context()
	node, err := s.client.CoreV1().Nodes().Get(ctx, "recorded-node-00001", metav1.GetOptions{})
	if err != nil || len(node.Status.Addresses) != 1 {
		t.Errorf("the recorded node is %+v, %v", node, err)
	}
	got, err := s.client.CoreV1().Services("ns-00001").Get(ctx, "svc-00001", metav1.GetOptions{})
	if err != nil || got.Spec.ClusterIP != "10.112.0.1" || got.Spec.HealthCheckNodePort != 31000 || got.Spec.Ports[0].NodePort != 31001 || len(got.Status.LoadBalancer.Ingress) != 0 {
		t.Errorf("the recorded Service is %+v, %v", got, err)
	}
	slices, err := s.client.DiscoveryV1().EndpointSlices("").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	recorded := 0
	for _, slice := range slices.Items {
		for _, e := range slice.Endpoints {
			own := slice.Namespace == "ns-00001"
			if own != (e.Addresses[0] == "10.128.0.1") {
				t.Errorf("%s/%s has the endpoint %v", slice.Namespace, slice.Name, e.Addresses)
			}
			if own {
				recorded++
			}
		}
	}
	if recorded != 1 {
		t.Errorf("of the recorded endpoint there are %d", recorded)
	}
	if left, err := s.client.CoreV1().Pods("ns-00001").Get(ctx, "pod-00001", metav1.GetOptions{}); err != nil || left.DeletionTimestamp != nil || left.Status.PodIP != "10.128.0.1" {
		t.Errorf("the pod that came again is %+v, %v", left, err)
	}
}

func TestAPackedTimelineIsUnpacked(t *testing.T) {
	line, err := timeline.Parse("f", []byte("hitless timeline 1\nseed 5\nset replicas=2\n+1s proxy stop node-1\n+3s proxy start node-1\n+5s end\n"))
	if err != nil {
		t.Fatal(err)
	}
	packed, err := PackTimeline(line)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := unpackTimeline(packed); err != nil || got.String() != line.String() {
		t.Errorf("got %v\n%s", err, got)
	}
	if _, err := unpackTimeline(packed[:len(packed)-3]); err == nil || !strings.Contains(err.Error(), "unpacking") {
		t.Errorf("a damaged one gave %v", err)
	}
}

// What goes wrong in the guest is told with the line of the user's file, whatever stands between its steps.
func TestAPackedTimelineKeepsTheLinesOfItsFile(t *testing.T) {
	const file = "../../docs/examples/k8s-71515.timeline"
	example, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const own = "hitless timeline 1\n\n# Services first\ngiven {\"apiVersion\":\"v1\",\"kind\":\"Service\",\"metadata\":{\"name\":\"s\"}}\nlane tcp-long\n\nset replicas=2\nnodes 2\n" +
		"set gated=on\n\n+0s api lose node-2\n# nobody hears of it\n\n+1s pod ready web#1\n+2s end\n"
	for name, text := range map[string]string{"example": string(example), "own": own, "plain": "hitless timeline 1\n+0s end\n"} {
		want, err := timeline.Parse(file, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		packed, err := PackTimeline(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := unpackTimeline(packed)
		if err != nil {
			t.Fatal(err)
		}
		in := func(t *timeline.Timeline) (lines []string) {
			for _, s := range t.Set {
				lines = append(lines, fmt.Sprintf("line %d: set %s=%s", s.Line, s.Key, s.Value))
			}
			for _, s := range slices.Concat(t.Lanes, t.Given, t.Steps) {
				lines = append(lines, fmt.Sprintf("line %d: %s", s.Line, s))
			}
			return append(lines, t.Header())
		}
		if diff := cmp.Diff(in(want), in(got)); diff != "" {
			t.Errorf("%s (-in the file +in the guest)\n%s", name, diff)
		}
	}
}

// A lane of datagrams that a timeline starts has a port to go to, and the detector is proved with datagrams, as with `set lanes=udp-fresh`.
func TestATimelineStartsALaneOfDatagrams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		line, err := timeline.Parse("f", []byte("hitless timeline 1\nnodes 2\nlane udp-fresh rate=5\n+1s lane stop udp-fresh\n+2s end\n"))
		if err != nil {
			t.Fatal(err)
		}
		s, scenario := replayed(t, line)
		recorded(t, s, scenario)
		var lanes []string
		for _, l := range s.lanes {
			lanes = append(lanes, l.Name)
		}
		for _, want := range []string{"udp-fresh", "canary-udp"} {
			if !slices.Contains(lanes, want) {
				t.Errorf("there is no lane %s among %q", want, lanes)
			}
		}
		web, err := s.client.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(web.Spec.Ports, func(p corev1.ServicePort) bool { return p.Protocol == corev1.ProtocolUDP }) {
			t.Errorf("the measured Service has the ports %+v, none of UDP", web.Spec.Ports)
		}
	})
}

// A timeline changes a node past its proxy, in its order, and records each change with its time.
func TestATimelineChangesNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line, err := timeline.Parse("f", []byte("hitless timeline 1\nnodes 2\nset replicas=2\nset trafficPolicy=Cluster\n+0s node address node-1 add=192.0.2.9/32\n"+
			"+1s node sysctl node-1 name=net.ipv4.ip_forward value=0\n+2s node address node-1 remove=192.0.2.9/32\n+3s node run node-2 nft flush ruleset\n+4s end\n"))
		if err != nil {
			t.Fatal(err)
		}
		s, scenario := replayed(t, line)
		nodes := &ruleset{own: 3}
		nodes.off = map[string]bool{}
		s.world.Site.OfferCommands(nodes)
		if err := scenarios.Run(context.Background(), scenario, &s.world); err != nil {
			t.Fatal(err)
		}
		if want := []string{"add node-1 192.0.2.9/32", "set node-1 net.ipv4.ip_forward 0", "remove node-1 192.0.2.9/32"}; !slices.Equal(nodes.done, want) {
			t.Errorf("the node's changes are %q, want %q", nodes.done, want)
		}
		if nodes.own != 0 {
			t.Errorf("the command was not run: %d rules remain", nodes.own)
		}
		recorded := 0
		for _, e := range s.events {
			if e.Kind() == record.KindInterference {
				recorded++
			}
		}
		if recorded != 4 {
			t.Errorf("%d changes are recorded, want 4", recorded)
		}
	})
}
