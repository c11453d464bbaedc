package run_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/replay"
	"github.com/hitless/hitless/lab/replay/replaytest"
)

// newLiveCluster starts a cluster of the replay control plane with these nodes, and returns its kubeconfig. wrap, if not nil, wraps the
// handler of its API server.
func newLiveCluster(t *testing.T, nodes int, wrap func(http.Handler) http.Handler) (server *replay.Server, kubeconfig string) {
	t.Helper()
	server = replay.New()
	replaytest.AddNodes(t, server, "192.0.2.1", []string{"worker-1", "worker-2", "worker-3"}[:nodes]...)
	handler := server.Handler()
	if wrap != nil {
		handler = wrap(handler)
	}
	return server, replaytest.Serve(t, handler)
}

// runOn runs a scenario on a live cluster and returns the results' folder with the error.
func runOn(t *testing.T, kubeconfig, scenario string, change func(*run.Options)) (string, *run.Result, error) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := run.Options{Scenario: scenario, Out: out, Program: program, Live: &site.LiveOptions{Kubeconfig: kubeconfig}}
	if change != nil {
		change(&o)
	}
	r, err := run.Run(context.Background(), o)
	return out, r, err
}

// A call that no cluster can run is refused before any request, with advice. Only a cluster can tell how many nodes it has.
func TestInvalidLiveRunIsRefusedWithAdvice(t *testing.T) {
	var requests atomic.Int32
	_, kubeconfig := newLiveCluster(t, 1, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			next.ServeHTTP(w, r)
		})
	})
	for name, c := range map[string]struct {
		scenario string
		set      map[string]string
		target   string
		want     string
		asks     bool
	}{
		"a scenario for nodes":   {"interference", nil, "", "drain, flap, policy, quiet, restart, rollout, scale, upgrade", false},
		"a proxy's feature":      {"rollout", map[string]string{"terminatingFallback": "off"}, "", "a live cluster decides which proxy runs", false},
		"a lane of datagrams":    {"rollout", map[string]string{"lanes": "udp-fresh"}, "", "lanes of TCP", false},
		"a target":               {"quiet", nil, "ingress", "loadBalancer or nodePort", false},
		"Local over a node port": {"rollout", nil, "nodePort", "trafficPolicy=Cluster", false},
		"too few nodes":          {"policy", nil, "", "1 nodes take pods", true},
	} {
		t.Run(name, func(t *testing.T) {
			requests.Store(0)
			out, _, err := runOn(t, kubeconfig, c.scenario, func(o *run.Options) { o.Set, o.Live.Target = c.set, c.target })
			if n := requests.Load(); (n > 0) != c.asks {
				t.Errorf("the API server got %d requests", n)
			}
			if !run.IsUsage(err) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want a usage error with %q", err, c.want)
			}
			if _, err := os.Stat(out); err == nil {
				t.Error("the folder for the results was made")
			}
		})
	}
}

func TestDryRunCreatesNothing(t *testing.T) {
	var wrote []string
	_, kubeconfig := newLiveCluster(t, 3, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if replaytest.Writes(r) {
				wrote = append(wrote, r.Method+" "+r.URL.Path)
			}
			next.ServeHTTP(w, r)
		})
	})
	var said []string
	out, _, err := runOn(t, kubeconfig, "flap", func(o *run.Options) {
		o.Live.DryRun, o.Progress = true, progress.Lines(func(text string) { said = append(said, text) })
	})
	all := strings.Join(said, "\n")
	if err != nil || len(wrote) > 0 || !strings.Contains(all, "patch pods/status") || !strings.Contains(all, "hitless-flap-") {
		t.Errorf("%v, wrote %v, printed:\n%s", err, wrote, all)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("the folder for the results was made")
	}
}
