package run

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

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

// A timeline that cannot be replayed is a UsageError with file and line, before anything is made.
func TestBadTimelines(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		options Options
		want    string
	}{
		"malformed":         {"hitless timeline 1\n+1s proxy reboot node-1\n+2s end\n", Options{}, "some.timeline:2: unknown verb"},
		"cut off":           {"hitless timeline 1\n+1s proxy stop node-1\n", Options{}, "some.timeline:2: the timeline is cut off"},
		"unknown parameter": {"hitless timeline 1\nset rolouts=2\n+2s end\n", Options{}, "some.timeline:2: "},
		"bad parameter":     {"hitless timeline 1\nset replicas=none\n+2s end\n", Options{}, "some.timeline:2: --set replicas=none"},
		"fewer nodes":       {"hitless timeline 1\n+1s proxy stop node-3\n+2s end\n", Options{Nodes: 2}, "some.timeline:2: proxy stop node-3: there is no node"},
		"a real API server": {"hitless timeline 1\n+1s api cut node-3\n+2s end\n", Options{}, "some.timeline:2: api cut node-3 needs --controlplane replay"},
		"other subject":     {"hitless timeline 1\n+1s proxy stop node-1\n+1s proxy change node-1 to=cilium\n+2s end\n", Options{}, "some.timeline:3: to=cilium"},
		"same subject":      {"hitless timeline 1\n+1s proxy stop node-1\n+1s proxy change node-1 to=bundled\n+2s end\n", Options{}, "that is the subject already"},
		"room":              {"hitless timeline 1\nrate 200\nset lanes=tcp-new,udp-fresh\n+3h end\n", Options{}, "name fewer lanes"},
	} {
		c.options.Out, c.options.Cache = filepath.Join(t.TempDir(), "out"), t.TempDir()
		var err error
		if c.options.Timeline, err = ReadTimeline(timelineFile(t, c.text)); err == nil {
			_, err = Run(t.Context(), c.options)
		}
		if !IsUsage(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want a usage error with %q", name, err, c.want)
		}
		if _, err := os.Stat(c.options.Out); err == nil {
			t.Errorf("%s: the folder for the results was made", name)
		}
	}
	if _, err := ReadTimeline(filepath.Join(t.TempDir(), "none")); !IsUsage(err) {
		t.Errorf("no file gave %v", err)
	}
	if _, err := Run(t.Context(), Options{Scenario: "timeline", Cache: t.TempDir()}); !IsUsage(err) || !strings.Contains(err.Error(), "hitless replay FILE") {
		t.Errorf("the scenario without a file gave %v", err)
	}
}

// What the file says holds unless the call says otherwise.
func TestATimelineSaysWhatTheCallDoesNot(t *testing.T) {
	line, err := ReadTimeline(timelineFile(t, "hitless timeline 1\nnodes 2\nrate 25\nseed 7\nset replicas=2\nset settle=5s\n+2s end\n"))
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
		{Options{Nodes: 4, Rate: 50, Seed: 8, Set: map[string]string{"settle": "9s"}}, 4, 50, 8, "9s",
			"hitless replay some.timeline --subject bundled --seed 8 --nodes 4 --rate 50 --set settle=9s"},
	} {
		o := c.options
		o.Timeline, o.Cache = line, t.TempDir()
		if err := o.fillDefaults(); err != nil {
			t.Fatal(err)
		}
		p, _, err := o.plan()
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

// 10,000 Services with their endpoints fit into a plan; what does not fit is refused with figures.
func TestARecordingOfTenThousandServices(t *testing.T) {
	recording := func(services int, noise func(i int) string) *Timeline {
		var text strings.Builder
		text.WriteString("hitless timeline 1\n")
		for i := range services {
			fmt.Fprintf(&text, `given {"apiVersion":"v1","kind":"Service","metadata":{"name":"s%d","annotations":{"a":"%s"}},"spec":{"clusterIP":"10.112.%d.%d","ports":[{"port":80,"targetPort":8080}]}}`+"\n", i, noise(i), i/250, i%250+1)
			fmt.Fprintf(&text, `given {"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"s%d-1","labels":{"kubernetes.io/service-name":"s%d"}},"addressType":"IPv4","endpoints":[{"addresses":["192.168.%d.%d"],"conditions":{"ready":true}}],"ports":[{"port":8080}]}`+"\n", i, i, i/250, i%250+1)
		}
		text.WriteString("+10s end\n")
		line, err := ReadTimeline(timelineFile(t, text.String()))
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	o := Options{Timeline: recording(10_000, func(int) string { return "" }), ControlPlane: "replay", Cache: t.TempDir()}
	if err := o.fillDefaults(); err != nil {
		t.Fatal(err)
	}
	p, _, err := o.plan()
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
	t.Logf("10,000 Services are %d bytes of plan", len(data))
	random := rand.NewChaCha8([32]byte{})
	o.Timeline = recording(3000, func(int) string { return fmt.Sprintf("%x", noise(random)) })
	if _, _, err := o.plan(); !IsUsage(err) || !strings.Contains(err.Error(), "6000 objects take") {
		t.Errorf("what has no room in a plan gave %v", err)
	}
}

// noise is text that nothing can pack.
func noise(random *rand.ChaCha8) []byte {
	out := make([]byte, 300)
	_, _ = random.Read(out) // never fails
	return out
}
