//go:build linux

package guest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

// recoveries returns the results of the recovery checks, each as "node state change".
func (s *stage) recoveries() (all []string) {
	for _, e := range s.events {
		if b, is := e.Body.(record.Recovery); is {
			all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Node, b.State, b.Change)))
		}
	}
	return all
}

func runQuiet(t *testing.T, set map[string]string, over func(node string, answers bool) bool) *stage {
	t.Helper()
	s := newStage(t, "quiet", set)
	s.over = over
	if err := scenarios.Run(context.Background(), find(t, "quiet"), &s.world); err != nil {
		t.Fatal(err)
	}
	return s
}

// Each proxy must follow an added and a removed endpoint. One that does not follow is a result, and the others are checked
// all the same.
func TestRecoveryOfEachNode(t *testing.T) {
	for name, c := range map[string]struct {
		over func(node string, answers bool) bool
		want []string
	}{
		"all follow":     {nil, []string{"node-1 added", "node-2 added", "node-1 removed", "node-2 removed"}},
		"node-2 is dead": {func(node string, answers bool) bool { return answers && node == "node-1" }, []string{"node-1 added", "node-2 failed added", "node-1 removed"}},
		"node-1 keeps":   {func(node string, answers bool) bool { return answers || node == "node-1" }, []string{"node-1 added", "node-2 added", "node-1 failed removed", "node-2 removed"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := runQuiet(t, nil, c.over)
				if got := s.recoveries(); !slices.Equal(got, c.want) {
					t.Errorf("the check recorded %q, want %q", got, c.want)
				}
				if states := s.steps(""); slices.Contains(states, "failed") {
					t.Errorf("steps failed: %q", states)
				}
			})
		})
	}
}

// The check takes no time of a run whose proxies follow, and leaves no object behind.
func TestRecoveryTakesNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on, off := runQuiet(t, nil, nil), runQuiet(t, map[string]string{"recoverWithin": "0s"}, nil)
		if got := off.recoveries(); !slices.Equal(got, []string{"off"}) {
			t.Errorf("recoverWithin=0s recorded %q", got)
		}
		settle := func(s *stage) (took string) {
			var begin, end record.Event
			for _, e := range s.events {
				if e.Kind() == record.KindPhase && e.Object == "settle" {
					begin = e
				} else if e.Kind() == record.KindPhase && e.Object == "end" {
					end = e
				}
			}
			return (end.At - begin.At).String()
		}
		if a, b := settle(on), settle(off); a != b {
			t.Errorf("the settle phase takes %s with the check and %s without", a, b)
		}
		services, err := on.client.CoreV1().Services("default").List(context.Background(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range services.Items {
			if v.Name != "web" && v.Name != "canary" {
				t.Errorf("the Service %s is left", v.Name)
			}
		}
		slices, err := on.client.DiscoveryV1().EndpointSlices("default").List(context.Background(), metav1.ListOptions{})
		if err != nil || len(slices.Items) != 2 {
			t.Errorf("%d EndpointSlices are left (%v), want those of web and canary", len(slices.Items), err)
		}
	})
}

// A soak checks the proxies at each checkpoint and at its end.
func TestSoakChecksRecoveryEachHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, err := runSoak(t, map[string]string{"for": "62m", "scalesPerHour": "1"}, false)
		want := []string{"node-1 added", "node-2 added", "node-1 removed", "node-2 removed"}
		if got := s.recoveries(); err != nil || !slices.Equal(got, slices.Concat(want, want)) {
			t.Errorf("%v; the checks recorded %q", err, got)
		}
	})
}
