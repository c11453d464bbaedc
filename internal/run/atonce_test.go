package run

import (
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/internal/site"
)

// No more labs run at a time than the memory holds: a VM takes its memory after the next one has been started. One runs in any case, and
// refuses to begin if there is no memory for it.
func TestNoMoreRunsAtATimeThanTheMemoryHolds(t *testing.T) {
	kube, replay := site.NeededMB(site.MemoryMB("kube")), site.NeededMB(site.MemoryMB("replay"))
	for name, c := range map[string]struct {
		available    int
		controlPlane []string
		want         int
		said         bool
	}{
		"16 GB and real control planes":   {15 << 10, []string{"kube"}, 3, true},
		"16 GB and replay control planes": {15 << 10, []string{"replay"}, 8, false},
		"room for all":                    {8 * kube, []string{"kube"}, 8, false},
		"a megabyte short":                {8*kube - 1, []string{"kube"}, 7, true},
		"the largest of several":          {3*kube + replay, []string{"replay", "kube"}, 3, true},
		"room for none":                   {100, []string{"kube"}, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			var all []Options
			said := ""
			for _, controlPlane := range c.controlPlane {
				all = append(all, Options{Scenario: "rollout", LabOptions: site.LabOptions{ControlPlane: controlPlane, Cache: t.TempDir()}, Program: "hitless",
					Progress: func(e progress.Event) { said += e.Text }})
			}
			if got := atOnce(t.Context(), 8, c.available, all); got != c.want {
				t.Errorf("%d runs at a time, want %d", got, c.want)
			}
			if strings.Contains(said, "MB of memory") != c.said {
				t.Errorf("it says %q", said)
			}
		})
	}
}
