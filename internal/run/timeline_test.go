package run

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/vm"
)

func timelineFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "some.timeline")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// A timeline that cannot be replayed is a UsageError with file and line, before anything is created.
func TestBadTimelines(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		options Options
		want    string
	}{
		"malformed":                         {"hitless timeline 1\n+1s proxy reboot node-1\n+2s end\n", Options{}, "some.timeline:2: unknown verb"},
		"cut off":                           {"hitless timeline 1\n+1s proxy stop node-1\n", Options{}, "some.timeline:2: the timeline is cut off"},
		"unknown parameter":                 {"hitless timeline 1\nset rolouts=2\n+2s end\n", Options{}, "some.timeline:2: "},
		"bad parameter":                     {"hitless timeline 1\nset replicas=none\n+2s end\n", Options{}, "some.timeline:2: --set replicas=none"},
		"settings that do not fit together": {"hitless timeline 1\nset client=pod\nset replicas=2\n+2s end\n", Options{}, "some.timeline:3: --set target=loadBalancer with client=pod"},
		"fewer nodes":                       {"hitless timeline 1\n+1s proxy stop node-3\n+2s end\n", Options{LabOptions: site.LabOptions{Nodes: 2}}, "some.timeline:2: proxy stop node-3: there is no node"},
		"a real API server":                 {"hitless timeline 1\n+1s api cut node-3\n+2s end\n", Options{}, "some.timeline:2: api cut node-3 needs --controlplane replay"},
		"other subject":                     {"hitless timeline 1\n+1s proxy stop node-1\n+1s proxy change node-1 to=cilium\n+2s end\n", Options{}, "some.timeline:3: to=cilium"},
		"same subject":                      {"hitless timeline 1\n+1s proxy stop node-1\n+1s proxy change node-1 to=bundled\n+2s end\n", Options{}, "that is the subject already"},
		"UDP over HAProxy":                  {"hitless timeline 1\nlane udp-fresh\nset loadBalancer=haproxy\n+3s end\n", Options{}, "some.timeline:3: loadBalancer=haproxy with a lane of UDP"},
		"room":                              {"hitless timeline 1\nrate 200\nset lanes=tcp-new,udp-fresh\n+3h end\n", Options{}, "name fewer lanes"},
	} {
		c.options.Out, c.options.Cache = filepath.Join(t.TempDir(), "out"), t.TempDir()
		var err error
		if c.options.Timeline, err = ReadTimeline(t.Context(), timelineFile(t, c.text)); err == nil {
			_, err = Run(t.Context(), c.options)
		}
		if !IsUsage(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want a usage error with %q", name, err, c.want)
		}
		if _, err := os.Stat(c.options.Out); err == nil {
			t.Errorf("%s: the folder for the results was made", name)
		}
	}
	if _, err := ReadTimeline(t.Context(), filepath.Join(t.TempDir(), "none")); !IsUsage(err) {
		t.Errorf("no file gave %v", err)
	}
	if _, err := Run(t.Context(), Options{Scenario: "timeline", LabOptions: site.LabOptions{Cache: t.TempDir()}}); !IsUsage(err) || !strings.Contains(err.Error(), "hitless replay FILE") {
		t.Errorf("the scenario without a file gave %v", err)
	}
}

// Settings that need each other can stand in any order.
func TestSettingsOfATimelineAreCheckedTogether(t *testing.T) {
	file := timelineFile(t, "hitless timeline 1\nset client=pod\nset target=loadBalancer\nset trafficPolicy=Cluster\n+2s end\n")
	if _, err := ReadTimeline(t.Context(), file); err != nil {
		t.Error(err)
	}
}

// The command line takes precedence over the file.
func TestTimelineGivesDefaults(t *testing.T) {
	line, err := ReadTimeline(t.Context(), timelineFile(t, "hitless timeline 1\nnodes 2\nrate 25\nseed 7\nset replicas=2\nset settle=5s\n+2s end\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		options Options
		nodes   int
		rate    float64
		seed    int64
		settle  string
		command string
	}{
		{Options{}, 2, 25, 7, "5s", "hitless replay some.timeline --subject bundled --seed 7"},
		{Options{Seed: 1 << 62}, 2, 25, 1 << 62, "5s", "hitless replay some.timeline --subject bundled --seed 4611686018427387904"},
		{Options{LabOptions: site.LabOptions{Nodes: 4}, Rate: 50, Seed: 8, Set: map[string]string{"settle": "9s"}}, 4, 50, 8, "9s",
			"hitless replay some.timeline --subject bundled --seed 8 --nodes 4 --rate 50 --set settle=9s"},
	} {
		o := c.options
		o.Timeline, o.Cache = line, t.TempDir()
		if err := o.fillDefaults(t.Context()); err != nil {
			t.Fatal(err)
		}
		p, _, err := o.plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if p.Nodes != c.nodes || p.Rate != c.rate || p.Seed != c.seed || p.Parameters["replicas"] != "2" || p.Parameters["settle"] != c.settle || len(p.Timeline) == 0 {
			t.Errorf("the plan is %+v", p)
		}
		if o.command() != c.command {
			t.Errorf("the command is %s, want %s", o.command(), c.command)
		}
	}
}

// recordingOf returns a recording of Services with four endpoints each and their pods, in the format of `hitless record --anonymous`.
func recordingOf(services int, pods bool, noise func() string) string {
	var text strings.Builder
	text.WriteString("hitless timeline 1\n")
	given := func(format string, args ...any) { fmt.Fprintf(&text, "given "+format+"\n", args...) }
	for i := range services {
		given(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"svc-%05d%s","namespace":"ns-%05d"},"spec":{"clusterIP":"10.112.%d.%d","internalTrafficPolicy":"Cluster","ports":[{"name":"port-00001","port":80,"protocol":"TCP","targetPort":8080}],"sessionAffinity":"None","type":"ClusterIP"}}`,
			i, noise(), i/20, i>>8, i&255)
	}
	addresses := func(i, j int) string { return fmt.Sprintf("10.%d.%d.%d", 128+i>>14, i>>6&255, i&63<<2|j) }
	for i := range services {
		var endpoints []string
		for j := range 4 {
			endpoints = append(endpoints, fmt.Sprintf(`{"addresses":["%s"],"conditions":{"ready":true,"serving":true,"terminating":false},"nodeName":"recorded-node-%05d"}`, addresses(i, j), (i*7+j*13)%97))
		}
		given(`{"addressType":"IPv4","apiVersion":"discovery.k8s.io/v1","endpoints":[%s],"kind":"EndpointSlice","metadata":{"labels":{"kubernetes.io/service-name":"svc-%05d"},"name":"slice-%05d","namespace":"ns-%05d"},"ports":[{"name":"port-00001","port":8080,"protocol":"TCP"}]}`,
			strings.Join(endpoints, ","), i, i, i/20)
	}
	for i := range services {
		for j := 0; pods && j < 4; j++ {
			given(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"pod-%05d","namespace":"ns-%05d"},"spec":{"containers":[{"image":"recorded","name":"recorded","resources":{}}],"nodeName":"recorded-node-%05d"},"status":{"conditions":[{"status":"True","type":"Ready"}],"phase":"Running","podIP":"%[4]s","podIPs":[{"ip":"%[4]s"}]}}`,
				i*4+j, i/20, (i*7+j*13)%97, addresses(i, j))
		}
	}
	text.WriteString("+10s end\n")
	return text.String()
}

// 10,000 Services with four endpoints each, and 40,000 pods, are read within limits of time and memory, and fit into a plan, which has
// the number of objects. A larger timeline is refused with the numbers.
func TestRecordingOfTenThousandServices(t *testing.T) {
	begin := time.Now()
	var before, after runtime.MemStats
	file := timelineFile(t, recordingOf(10_000, true, func() string { return "" }))
	runtime.GC()
	runtime.ReadMemStats(&before)
	line, err := ReadTimeline(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if held := int64(after.HeapAlloc) - int64(before.HeapAlloc); held > 256<<20 || time.Since(begin) > time.Minute {
		t.Errorf("60,000 objects were read in %s and take %d MB", time.Since(begin), held>>20)
	}
	o := Options{Timeline: line, LabOptions: site.LabOptions{ControlPlane: "replay", Cache: t.TempDir()}}
	if err := o.fillDefaults(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, _, err := o.plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	data, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := vm.PutPlan(make([]byte, vm.RegionSize), data); err != nil {
		t.Error(err)
	}
	if p.Objects != 60_000 {
		t.Errorf("the plan has %d objects", p.Objects)
	}
	t.Logf("10,000 Services and 40,000 pods are %d bytes of plan", len(data))
}

// A timeline that does not fit is refused with the numbers, before anything is started.
func TestTooLargeTimelineIsRefused(t *testing.T) {
	random := rand.NewChaCha8([32]byte{})
	line, err := ReadTimeline(t.Context(), timelineFile(t, recordingOf(3000, false, func() string { return fmt.Sprintf("%x", noise(random, 60)) })))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := line.pack(); err != nil {
		t.Error(err)
	}
	text := new(strings.Builder)
	text.WriteString("hitless timeline 1\n")
	for i := range 9000 {
		fmt.Fprintf(text, `given {"apiVersion":"v1","kind":"Service","metadata":{"name":"s%d","annotations":{"a":"%x"}}}`+"\n", i, noise(random, 400))
	}
	text.WriteString("+1s end\n")
	o := Options{LabOptions: site.LabOptions{ControlPlane: "replay", Cache: t.TempDir()}}
	if o.Timeline, err = ReadTimeline(t.Context(), timelineFile(t, text.String())); err == nil {
		err = o.fillDefaults(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := o.plan(t.Context()); !IsUsage(err) || !strings.Contains(err.Error(), "its 1 steps and 9000 objects take") || !strings.Contains(err.Error(), fmt.Sprintf("a run has room for %d:", maxTimeline)) {
		t.Errorf("a timeline that does not fit into a plan gave %v", err)
	}
}

// noise returns incompressible text.
func noise(random *rand.ChaCha8, n int) []byte {
	out := make([]byte, n)
	_, _ = random.Read(out) // never fails
	return out
}
