//go:build linux

package guest

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

// restarts counts what a scenario does to proxies that it restarts.
type restarts struct {
	idle
	pid   int
	nodes []string
}

func (r *restarts) Pid(string) (int, error)             { return r.pid, nil }
func (r *restarts) Quiet(string) (time.Duration, error) { return 3 * time.Minute, nil }
func (r *restarts) Stop(context.Context, string) error  { return nil }

func (r *restarts) Start(_ context.Context, node string) error {
	r.pid++
	r.nodes = append(r.nodes, node)
	return nil
}

// openings counts the connections that are held.
type openings struct{ opened, closed int }

func (o *openings) hold(context.Context, string) (io.Closer, error) { o.opened++; return o, nil }
func (o *openings) Close() error                                    { o.closed++; return nil }

// churned runs three minutes of churn on two nodes, with a rollout after each.
func churned(t *testing.T, failures func(s *stage) int) (s *stage, proxies *restarts, open *openings) {
	t.Helper()
	s = newStage(t, "churn", map[string]string{"for": "3m", "ports": "4", "rolloutEvery": "1"})
	proxies, open = &restarts{}, &openings{}
	s.world.Site.OfferProxies(proxies)
	s.hold = open.hold
	s.failures = func() int { return failures(s) }
	if err := scenarios.Run(context.Background(), find(t, "churn"), &s.world); err != nil {
		t.Fatal(err)
	}
	return s, proxies, open
}

// ends are the ends of the steps whose names begin so.
func (s *stage) ends(prefix string) (at []time.Duration) {
	for _, e := range s.events {
		if e.Body == (record.Step{State: record.StepEnd}) && strings.HasPrefix(e.Object, prefix) {
			at = append(at, e.At)
		}
	}
	return at
}

func TestChurnChangesEndpointsAtEachFullMinuteWhileAPodDrains(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, proxies, open := churned(t, func(*stage) int { return 0 })
		if n := len(s.ends("rollout ")); n < 3 || len(proxies.nodes) != 0 {
			t.Errorf("%d rollouts, restarts of %v; want three and none when nothing is lost", n, proxies.nodes)
		}
		churns := s.ends("churn ")
		for _, at := range churns {
			if in := at % time.Minute; in < 150*time.Millisecond || in >= 550*time.Millisecond {
				t.Errorf("a churn ended %s after a full minute", in)
			}
		}
		slice, err := s.client.DiscoveryV1().EndpointSlices("default").Get(context.Background(), "busy-1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		old, err := s.client.CoreV1().Endpoints("default").Get(context.Background(), "busy", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		first := fmt.Sprintf("192.0.2.%d", 1+8*len(churns)) // 20 a second for 400 ms
		if slice.Endpoints[0].Addresses[0] != first || old.Subsets[0].Addresses[0].IP != first {
			t.Errorf("after %d churns the first endpoint is %s and %s, want %s", len(churns), slice.Endpoints[0].Addresses[0], old.Subsets[0].Addresses[0].IP, first)
		}
		if open.opened != 12 || open.closed != 12 {
			t.Errorf("%d connections were opened and %d closed, want 3 for each of 4 ports", open.opened, open.closed)
		}
		drained, err := s.client.CoreV1().Endpoints("default").Get(context.Background(), "drained", metav1.GetOptions{})
		if err != nil || len(drained.Subsets) != 1 || len(drained.Subsets[0].Addresses) != 0 || len(drained.Subsets[0].NotReadyAddresses) != 1 {
			t.Errorf("the drained pod is %+v, %v; want it unready", drained.Subsets, err)
		}
	})
}

func TestChurnRestartsTheProxiesWhenConnectionsAreLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, proxies, _ := churned(t, func(*stage) int { return 1 })
		if churns := s.ends("churn "); len(churns) != 1 {
			t.Errorf("the churn went on for %d minutes", len(churns))
		}
		if !slices.Equal(proxies.nodes, []string{"node-1", "node-2"}) {
			t.Errorf("the proxies of %v were restarted", proxies.nodes)
		}
		watch, restarted := s.ends("watch"), s.ends("restart the proxy of ")
		if len(watch) != 1 || len(restarted) != 2 || watch[0] < s.ends("churn ")[0]+90*time.Second {
			t.Errorf("watched until %v, restarted at %v", watch, restarted)
		}
		quiet := slices.IndexFunc(s.events, func(e record.Event) bool {
			b, is := e.Body.(record.Log)
			return is && b.Quiet != nil && *b.Quiet == 3*time.Minute
		})
		if quiet < 0 || s.events[quiet].At != watch[0] {
			t.Error("nothing says how long the log of the proxy had had no line")
		}
	})
}

// A freeze may be seen in the last rollout alone, after which no minute of churn follows.
func TestChurnRestartsTheProxiesAfterTheLastRollout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _, _ := churned(t, func(*stage) int { return 0 })
		rollouts := len(s.ends("rollout "))
		s, proxies, _ := churned(t, func(s *stage) int { return len(s.ends("rollout ")) / rollouts })
		if n := len(s.ends("rollout ")); n != rollouts || len(proxies.nodes) != 2 {
			t.Errorf("%d of %d rollouts, and restarts of %v", n, rollouts, proxies.nodes)
		}
	})
}
