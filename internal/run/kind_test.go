package run_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/e2e-framework/support"

	"github.com/hitless/hitless/cluster"
	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/replay/replaytest"
)

// ready is a provider whose cluster exists already.
type ready struct {
	support.E2EClusterProvider
	kubeconfig string
	destroyed  atomic.Int32
	stays      error
}

func (r *ready) WithName(string) support.E2EClusterProvider { return r }

func (r *ready) CreateWithConfig(context.Context, string) (string, error) { return r.kubeconfig, nil }

func (r *ready) Destroy(ctx context.Context) error {
	r.destroyed.Add(1)
	return errors.Join(ctx.Err(), r.stays)
}

func (r *ready) provide(context.Context) (support.E2EClusterProvider, error) { return r, nil }

// The cluster of a run is deleted after any result and after an interrupt. If it cannot be deleted, the output names it.
func TestKindClusterIsDeleted(t *testing.T) {
	for name, c := range map[string]struct {
		refused bool
		stays   error
		is      func(error) bool
	}{
		"a run that cannot begin":    {true, nil, run.IsUsage},
		"a run that is interrupted":  {false, nil, func(err error) bool { return errors.Is(err, context.Canceled) }},
		"a cluster that cannot go":   {true, errors.New("the engine is gone"), run.IsUsage},
		"interrupted, it cannot go,": {false, errors.New("the engine is gone"), func(err error) bool { return errors.Is(err, context.Canceled) }},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, kubeconfig := newLiveCluster(t, 3, func(next http.Handler) http.Handler {
				quota := refuse(apierrors.NewForbidden(namespaces, "", errors.New("exceeded quota: team")), func(r *http.Request) bool { return replaytest.Verb(r) == "create namespaces" })(next)
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if c.refused {
						quota.ServeHTTP(w, r)
						return
					}
					next.ServeHTTP(w, r)
					if replaytest.Verb(r) == "create namespaces" { // the run has started
						cancel()
					}
				})
			})
			p := &ready{kubeconfig: kubeconfig, stays: c.stays}
			var said []string
			_, err := run.Run(ctx, run.Options{Scenario: "quiet", Out: t.TempDir(), Progress: progress.Lines(func(text string) { said = append(said, text) }),
				Live: &site.LiveOptions{Kind: "v1.26.0", Provider: p.provide}})
			if !c.is(err) {
				t.Errorf("the run ended with %v", err)
			}
			if p.destroyed.Load() != 1 {
				t.Errorf("the cluster was deleted %d times", p.destroyed.Load())
			}
			last := said[len(said)-1]
			if named := strings.Contains(last, "kind delete cluster --name hitless-v1-26-0-"); named != (c.stays != nil) {
				t.Errorf("the last message was %q", last)
			}
		})
	}
}

// A wrong call is an error before a cluster is created.
func TestNoClusterIsMadeForAWrongCall(t *testing.T) {
	for what, o := range map[string]run.Options{
		"a version":  {Scenario: "quiet", Live: &site.LiveOptions{Kind: "1.26"}},
		"a scenario": {Scenario: "fault", Live: &site.LiveOptions{Kind: "v1.26.0"}},
		"a target":   {Scenario: "quiet", Live: &site.LiveOptions{Kind: "v1.26.0", Target: "ingress"}},
		"an engine":  {Scenario: "quiet", Live: &site.LiveOptions{Kind: "v1.26.0"}},
	} {
		o.Live.Provider = func(context.Context) (support.E2EClusterProvider, error) {
			if what != "an engine" {
				t.Errorf("%s: a provider was requested", what)
			}
			return nil, errors.New("there is no engine")
		}
		if _, err := run.Run(t.Context(), o); !run.IsUsage(err) {
			t.Errorf("%s: %v, want a usage error", what, err)
		}
	}
}

// The error about missing nodes has the number of nodes.
func TestMissingNodesAreReported(t *testing.T) {
	_, kubeconfig := newLiveCluster(t, 2, nil)
	c, err := cluster.Open(kubeconfig, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Settle(t.Context(), 2, time.Minute); err != nil {
		t.Error(err)
	}
	if err := c.Settle(t.Context(), 3, time.Millisecond); err == nil || !strings.Contains(err.Error(), "there are 2") || !strings.Contains(err.Error(), "--nodes") {
		t.Errorf("%v, want the number of nodes and advice", err)
	}
}
