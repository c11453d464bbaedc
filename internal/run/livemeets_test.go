package run_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/cluster"
	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/replay/replaytest"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/scenarios"
)

// The twin of every fault: the same run without a fault completes and leaves nothing. It uses exactly the verbs that the preflight checks.
func TestLiveRunWithoutFault(t *testing.T) {
	t.Parallel()
	for _, scenario := range scenarios.All() {
		if len(scenario.Lacks(site.LiveOffers)) > 0 {
			continue
		}
		t.Run(scenario.Name, func(t *testing.T) {
			t.Parallel()
			var seen asks
			s := standing(t, seen.note)
			s.awaitProxies(t)
			e := s.run(t.Context(), t, scenario.Name, disrupts(map[string]map[string]string{
				"flap":    {"unready": "10s", "stayOpen": "10s", "openConnections": "2"}, // pauses that the clock skips
				"restart": {"proxy": proxySet},
				"upgrade": {"proxy": proxySet, "image": nextImage},
				"drain":   {"node": "worker-1"},
			}[scenario.Name]))
			e.finished(t)
			if left := s.left(t); len(left) != 0 {
				t.Errorf("%v are left", left)
			}
			if logs := e.events(t, record.KindLog); len(logs) != 0 {
				t.Errorf("the record has %v", logs)
			}
			seen.just(t, scenario)
		})
	}
}

// asks has the requests as verbs of RBAC.
type asks struct {
	mu   sync.Mutex
	seen map[string]bool
}

// note stores the verb of a request.
func (a *asks) note(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		if a.seen == nil {
			a.seen = map[string]bool{}
		}
		a.seen[replaytest.Verb(r)] = true
		a.mu.Unlock()
		next.ServeHTTP(w, r)
	})
}

// just fails the test unless the used verbs are those of the scenario's preflight.
func (a *asks) just(t *testing.T, s scenarios.Scenario) {
	t.Helper()
	want := []string{"create selfsubjectaccessreviews.authorization.k8s.io", "get configmaps"} // permitted to all users; optional
	for _, v := range slices.Concat(cluster.Needs(), cluster.NeedsRecovery()) {
		// Servers before 1.32 need a list before a watch; newer ones send it with the watch.
		if v.String() != "list endpointslices.discovery.k8s.io" {
			want = append(want, v.String())
		}
	}
	want = append(want, needsOf(s)...)
	if s.Name != "rollout" && s.Name != "scale" { // the others do not change the Deployment
		want = slices.DeleteFunc(want, func(v string) bool { return v == "update deployments.apps" })
	}
	slices.Sort(want)
	want = slices.Compact(want)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.seen, "")
	got := slices.Sorted(maps.Keys(a.seen))
	if !slices.Equal(got, want) {
		t.Errorf("the run used\n%s\nand the preflight checks\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// awayOnce makes the API server unreachable once its Deployment rolls, for the given time of the cluster's clock; forever for 0.
func awayOnce(t *testing.T, s *stand, away time.Duration) func(http.Handler) http.Handler {
	var rolling, gone atomic.Bool
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if rolling.Load() && gone.CompareAndSwap(false, true) {
				s.door.shut()
				back := s.clock.Now().Add(away)
				opened := new(atomic.Bool)
				opens := func(now time.Time) {
					if away > 0 && now.After(back) && opened.CompareAndSwap(false, true) {
						s.clock.rest()
						if err := s.door.open(); err != nil {
							t.Error(err)
						}
					}
				}
				s.clock.after.Store(&opens)
				s.clock.hurry()
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(w, r)
			if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/deployments/web") {
				rolling.Store(true)
			}
		})
	}
}

// faulty returns a stand for a fault that needs the stand.
func faulty(t *testing.T, fault func(s *stand) func(http.Handler) http.Handler) *stand {
	var made atomic.Pointer[stand]
	var once sync.Once
	var handler http.Handler
	s := standing(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			once.Do(func() { handler = fault(made.Load())(next) })
			handler.ServeHTTP(w, r)
		})
	})
	made.Store(s)
	return s
}

// A run survives an API server that is unreachable for a minute during a rollout, and the record has the duration.
func TestLiveRunSurvivesAPIOutageOfAMinute(t *testing.T) {
	t.Parallel()
	s := faulty(t, func(s *stand) func(http.Handler) http.Handler { return awayOnce(t, s, time.Minute) })
	e := s.run(t.Context(), t, "rollout", nil)
	e.finished(t)
	logs := e.events(t, record.KindLog)
	if !slices.ContainsFunc(logs, func(e record.Event) bool { return saidAtLeast(t, time.Minute, saidAway, e.Text) }) {
		t.Errorf("the log events about the API server are %v", logs)
	}
	if left := s.left(t); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
}

// The duration of the silence in the record, and of the tries in the error.
var (
	saidAway  = regexp.MustCompile(`did not answer for ([0-9]+\.[0-9]) s`)
	saidTried = regexp.MustCompile(`tried for ([0-9hms]+):`)
)

// saidAtLeast reports whether a text has a duration of at least that. With the skipping clock, concurrent waits are consecutive, so the
// duration can be longer. The tests of the retrier check the upper limit.
func saidAtLeast(t *testing.T, least time.Duration, said *regexp.Regexp, text string) bool {
	t.Helper()
	found := said.FindStringSubmatch(text)
	if found == nil {
		return false
	}
	got, err := time.ParseDuration(strings.TrimSuffix(found[1], "s") + "s")
	if err != nil {
		t.Fatal(err)
	}
	return got >= least
}

// An API server that stays unreachable makes the run invalid. The error has the last action and its result, and names what is left.
func TestLiveRunWithPermanentAPIOutage(t *testing.T) {
	t.Parallel()
	s := faulty(t, func(s *stand) func(http.Handler) http.Handler { return awayOnce(t, s, 0) })
	e := s.run(t.Context(), t, "rollout", nil)
	e.want(t, 3, "rollout 1", "connection refused", "whether this machine reaches it")
	if !saidAtLeast(t, 90*time.Second, saidTried, e.err.Error()) {
		t.Errorf("it was tried for less than 90 s: %v", e.err)
	}
	s.named(t, e, "connection refused")
	if err := s.door.open(); err != nil {
		t.Fatal(err)
	}
	if err := site.Clean(t.Context(), site.LiveOptions{Kubeconfig: s.kubeconfig}, time.Minute, func(string) {}); err != nil {
		t.Error(err)
	}
	if left := s.left(t); len(left) != 0 {
		t.Errorf("%v are left after hitless clean", left)
	}
}

// named fails the test unless the run's last message and host.json name the namespace that is left. The message must have the reason and
// the command that deletes it.
func (s *stand) named(t *testing.T, e ended, why string) {
	t.Helper()
	left := s.left(t)
	if len(left) != 1 {
		t.Fatalf("%v are left, want one", left)
	}
	for _, word := range []string{left[0], why, "hitless clean"} {
		if !strings.Contains(e.last(), word) {
			t.Errorf("the last message lacks %q: %s", word, e.last())
		}
	}
	host, err := os.ReadFile(filepath.Join(e.out, "host.json"))
	if err != nil || !strings.Contains(string(host), left[0]) {
		t.Errorf("host.json does not name %s: %v", left[0], err)
	}
}

// An answer of a load balancer to a read counts as silence, which the run survives too.
func TestLiveRunSurvivesAnswersOfLoadBalancer(t *testing.T) {
	t.Parallel()
	var refused atomic.Int32
	s := standing(t, refuse(apierrors.NewServiceUnavailable("no healthy upstream"), func(r *http.Request) bool {
		return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/deployments") && refused.Add(1) <= 3
	}))
	e := s.run(t.Context(), t, "quiet", nil)
	e.finished(t)
	if logs := e.events(t, record.KindLog); len(logs) == 0 || !strings.Contains(logs[0].Text, "did not answer") {
		t.Errorf("the record has no event about the silence: %v", logs)
	}
}

// A write that a load balancer answers may have happened. It is not repeated, and the error names the step, or the namespace that may exist.
func TestLiveWriteAnsweredByLoadBalancer(t *testing.T) {
	t.Parallel()
	for request, c := range map[string]struct {
		code int
		step string
	}{"create deployments.apps": {3, "deploy web: "}, "create namespaces": {2, "it may exist all the same, and `hitless clean` deletes it"}} {
		t.Run(request, func(t *testing.T) {
			t.Parallel()
			var sent atomic.Int32
			s := standing(t, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if replaytest.Verb(r) != request {
						next.ServeHTTP(w, r)
						return
					}
					sent.Add(1)
					http.Error(w, "no healthy upstream", http.StatusBadGateway)
				})
			})
			s.run(t.Context(), t, "rollout", nil).want(t, c.code, c.step, "no healthy upstream")
			if n := sent.Load(); n != 1 {
				t.Errorf("the write was sent %d times, want once", n)
			}
			if left := s.left(t); len(left) != 0 {
				t.Errorf("%v are left", left)
			}
		})
	}
}

// A token that expires during the rollout makes the run invalid, and the output names the namespace that could not be deleted.
func TestLiveTokenExpiresDuringRollout(t *testing.T) {
	t.Parallel()
	var over atomic.Bool
	s := standing(t, func(next http.Handler) http.Handler {
		late := refuse(expired, func(*http.Request) bool { return over.Load() })(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			late.ServeHTTP(w, r)
			if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/deployments/") { // the recovery check writes other objects before
				over.Store(true)
			}
		})
	})
	e := s.run(t.Context(), t, "rollout", nil)
	e.want(t, 3, "rollout 1", "log in again")
	s.named(t, e, "log in again")
}

// A namespace that is not deleted does not change the verdict. The output has its name and the cluster's reason.
func TestLiveRunWithStuckNamespace(t *testing.T) {
	t.Parallel()
	const keeps = "Some content in the namespace has finalizers remaining: service.kubernetes.io/load-balancer-cleanup in 1 resource instances"
	s := faulty(t, func(s *stand) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if replaytest.Verb(r) != "delete namespaces" {
					next.ServeHTTP(w, r)
					return
				}
				status, _ := json.Marshal(map[string]any{"status": corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating, Conditions: []corev1.NamespaceCondition{
					{Type: corev1.NamespaceFinalizersRemaining, Status: corev1.ConditionTrue, Message: keeps}}}})
				if _, err := s.direct.CoreV1().Namespaces().Patch(r.Context(), filepath.Base(r.URL.Path), types.MergePatchType, status, metav1.PatchOptions{}, "status"); err != nil {
					t.Error(err)
				}
				s.clock.hurry()
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
			})
		}
	})
	e := s.run(t.Context(), t, "quiet", nil)
	e.finished(t)
	s.named(t, e, keeps)
}

// A quota can forbid the namespace, before anything is created. The error has the cluster's message and advice, and nothing is left.
func TestLiveRunWithQuotaOfNamespaces(t *testing.T) {
	t.Parallel()
	s := standing(t, refuse(apierrors.NewForbidden(namespaces, "", errors.New("exceeded quota: team, requested: count/namespaces=1")),
		func(r *http.Request) bool { return replaytest.Verb(r) == "create namespaces" }))
	e := s.run(t.Context(), t, "rollout", nil)
	e.want(t, 2, "creating the run's namespace", "exceeded quota: team", "raise it")
	if left := s.left(t); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
}

// Pods that do not become ready make the run invalid after 2 minutes. The error has the cluster's reason, and nothing is left.
func TestLiveRunWhosePodsDoNotBecomeReady(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state func(s *stand, t *testing.T, namespace, deployment string)
		why   []string
	}{
		"a quota": {(*stand).noPods, []string{"exceeded quota: compute, requested: pods=1", "raise it"}},
		"no node fits": {onePod(corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Message: "0/3 nodes are available: 3 Insufficient cpu."}}}), []string{"pod web-1 has no node: 0/3 nodes are available: 3 Insufficient cpu."}},
		"an image": {onePod(corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: "ImagePullBackOff", Message: "Back-off pulling image"}}}}}), []string{"pod web-1 waits (ImagePullBackOff): Back-off pulling image"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := faulty(t, func(s *stand) func(http.Handler) http.Handler {
				return func(next http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if replaytest.Verb(r) == "get deployments.apps" {
							s.clock.hurry()
							parts := strings.Split(r.URL.Path, "/")
							c.state(s, t, parts[5], parts[7])
						}
						next.ServeHTTP(w, r)
					})
				}
			})
			s.idle() // stops the controllers that would create the pods
			e := s.run(t.Context(), t, "rollout", nil)
			e.want(t, 3, append(c.why, "deploy web", "waited 2m")...)
			if left := s.left(t); len(left) != 0 {
				t.Errorf("%v are left", left)
			}
		})
	}
}

// noPods sets the condition of a Deployment whose pods a quota forbids.
func (s *stand) noPods(t *testing.T, namespace, deployment string) {
	status, _ := json.Marshal(map[string]any{"status": appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure,
		Status: corev1.ConditionTrue, Message: `pods "web-1" is forbidden: exceeded quota: compute, requested: pods=1, used: pods=10, limited: pods=10`}}}})
	_, err := s.direct.AppsV1().Deployments(namespace).Patch(context.Background(), deployment, types.MergePatchType, status, metav1.PatchOptions{}, "status")
	if err != nil {
		t.Error(err)
	}
}

// onePod gives a Deployment one pod with this status.
func onePod(status corev1.PodStatus) func(s *stand, t *testing.T, namespace, deployment string) {
	return func(s *stand, t *testing.T, namespace, deployment string) {
		pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: deployment + "-1",
			Labels: map[string]string{"app": deployment}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}, Status: status}
		if _, err := s.server.Apply(pod); err != nil {
			t.Error(err)
		}
	}
}

// A Service without an address makes the run skipped, with exit code 2, after the time of the option. Nothing is left.
func TestLiveRunWithoutServiceAddress(t *testing.T) {
	t.Parallel()
	s := faulty(t, func(s *stand) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if replaytest.Verb(r) == "get services" {
					s.clock.hurry()
				}
				next.ServeHTTP(w, r)
			})
		}
	})
	e := s.run(t.Context(), t, "quiet", func(o *run.Options) { o.Live.Target = "" })
	if e.err != nil || e.code() != 2 || e.result.Report.Verdict != analysis.Skipped {
		t.Fatalf("%v, want a run that was skipped", e.err)
	}
	why := strings.Join(e.result.Report.Reasons, "; ")
	for _, word := range []string{"lane tcp-new was skipped", "got no address within 3m0s", "kubectl -n hitless-quiet-", "--target nodePort"} {
		if !strings.Contains(why, word) {
			t.Errorf("the reason lacks %q: %s", word, why)
		}
	}
	again, err := reports.OpenRun(e.out, nil)
	if err != nil || again.Report.Verdict != analysis.Skipped {
		t.Errorf("judged again: %+v, %v", again, err)
	}
	if left := s.left(t); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
}

// The error names each verb that RBAC does not grant, before anything is created.
func TestLiveRunWithoutOneVerb(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]map[string]string{"flap": nil, "restart": {"proxy": proxySet}, "drain": {"node": "worker-1"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scenario, err := scenarios.Find(name, site.LiveOffers)
			if err != nil {
				t.Fatal(err)
			}
			all := needsOf(scenario)
			for _, v := range slices.Concat(cluster.Needs(), cluster.NeedsRecovery()) {
				all = append(all, v.String())
			}
			for _, lacks := range all {
				t.Run(lacks, func(t *testing.T) {
					var made atomic.Bool
					s := standing(t, func(next http.Handler) http.Handler { return notes(&made, replaytest.Withhold(lacks)(next)) })
					e := s.run(t.Context(), t, name, disrupts(set))
					e.want(t, 2, "lacks what this run needs: "+lacks+";", "docs/clusters.md")
					if made.Load() {
						t.Error("an object was created")
					}
				})
			}
		})
	}
}

// notes whether an object is written.
func notes(wrote *atomic.Bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if replaytest.Writes(r) {
			wrote.Store(true)
		}
		next.ServeHTTP(w, r)
	})
}

// A policy engine can refuse a request that the access review granted. The error then has the step and the cluster's message, and
// everything is deleted.
func TestLiveRunForbiddenByPolicy(t *testing.T) {
	t.Parallel()
	for verb, step := range map[string]string{"create deployments.apps": "deploy web", "create services": "deploy web", "update deployments.apps": "rollout 1"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			s := standing(t, refuse(apierrors.NewForbidden(schema.GroupResource{}, "web", errors.New("the policy says no")),
				func(r *http.Request) bool { return replaytest.Verb(r) == verb }))
			e := s.run(t.Context(), t, "rollout", nil)
			e.want(t, 3, step, "the policy says no", "may not do that")
			if left := s.left(t); len(left) != 0 {
				t.Errorf("%v are left", left)
			}
		})
	}
}

// Conflicts with concurrent writes (409) are retried, because the write did not happen.
func TestLiveRunRetriesConflicts(t *testing.T) {
	t.Parallel()
	for request, scenario := range map[string]string{"update deployments.apps": "rollout", "patch nodes": "drain"} {
		t.Run(scenario, func(t *testing.T) {
			t.Parallel()
			var asks atomic.Int32 // every second request is refused, so in a drain also the one that restores the node
			s := standing(t, refuse(apierrors.NewConflict(schema.GroupResource{}, "it", errors.New("the object has been modified")),
				func(r *http.Request) bool { return replaytest.Verb(r) == request && asks.Add(1)%2 == 1 }))
			s.run(t.Context(), t, scenario, disrupts(map[string]map[string]string{"drain": {"node": "worker-1"}}[scenario])).finished(t)
			s.wantNode(t, "worker-1")
			if n := asks.Load(); n < 2 {
				t.Errorf("%s was sent %d times, want a conflict and a repetition", request, n)
			}
		})
	}
}

// Ctrl-C ends a run with exit code 130, and everything is deleted.
func TestLiveRunInterrupted(t *testing.T) {
	t.Parallel()
	s := standing(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	e := s.run(ctx, t, "rollout", func(o *run.Options) {
		report := o.Progress
		o.Progress = func(e progress.Event) {
			if report(e); strings.Contains(e.Text, "rollout 1") {
				cancel()
			}
		}
	})
	e.want(t, 130)
	if left := s.left(t); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
}
