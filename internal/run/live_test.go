package run_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/replay"
)

// newLiveCluster starts a cluster of the replay control plane with these nodes, and returns its kubeconfig. wrap, if not nil, wraps the
// handler of its API server.
func newLiveCluster(t *testing.T, nodes int, wrap func(http.Handler) http.Handler) (server *replay.Server, kubeconfig string) {
	t.Helper()
	server = replay.New()
	addNodes(t, server, []string{"worker-1", "worker-2", "worker-3"}[:nodes], "192.0.2.1")
	handler := server.Handler()
	if wrap != nil {
		handler = wrap(handler)
	}
	api := httptest.NewServer(handler)
	t.Cleanup(func() { api.CloseClientConnections(); api.Close() })
	return server, writeKubeconfig(t, api.URL)
}

// addNodes adds schedulable nodes to a cluster, all with one address.
func addNodes(t *testing.T, server *replay.Server, names []string, address string) {
	t.Helper()
	for _, name := range names {
		node := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
				Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}}}
		if _, err := server.Apply(node); err != nil {
			t.Fatal(err)
		}
	}
}

// writeKubeconfig writes a kubeconfig for the address, and returns its name.
func writeKubeconfig(t *testing.T, address string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: address}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "c"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
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
			if r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "selfsubjectaccessreviews") {
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
