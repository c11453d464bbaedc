package run_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/hitless/hitless/cluster"
	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/replay/replaytest"
	"github.com/hitless/hitless/record"
)

// disrupts permits a run with these parameters to change objects outside its namespace.
func disrupts(set map[string]string) func(*run.Options) {
	return func(o *run.Options) {
		o.Live.AllowDisruption = true
		maps.Copy(o.Set, set)
	}
}

// After a restart every node has another ready pod of the proxy, and the record has the start and exit of each.
func TestLiveRestartReplacesProxyPods(t *testing.T) {
	t.Parallel()
	s := standing(t, nil)
	before := s.awaitProxies(t)
	e := s.run(t.Context(), t, "restart", disrupts(map[string]string{"proxy": proxySet}))
	e.finished(t)
	after := s.proxies(t)
	if len(after) != len(before) {
		t.Errorf("proxy pods on %d nodes, before on %d", len(after), len(before))
	}
	for node, uid := range after {
		if uid == before[node] {
			t.Errorf("%s has the same proxy pod as before", node)
		}
	}
	seen := map[string]bool{}
	for _, event := range e.events(t, record.KindProxy) {
		seen[event.Node+" "+string(event.Body.(record.Proxy).State)] = true
	}
	for node := range before {
		for _, state := range []record.ProxyState{record.ProxyStopped, record.ProxyExited, record.ProxyStarted, record.ProxyReady} {
			if want := node + " " + string(state); !seen[want] {
				t.Errorf("the record lacks %q: %v", want, seen)
			}
		}
	}
	s.wantProxy(t, firstImage)
	if left := s.left(t); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
}

// awaitProxies waits until every node has its proxy.
func (s *stand) awaitProxies(t *testing.T) (uids map[string]string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if uids = s.proxies(t); len(uids) == 3 {
			return uids
		}
		if time.Now().After(end) {
			t.Fatalf("only %v have a proxy", uids)
		}
	}
}

// hurryOn skips all sleeps after the first request of that kind.
func hurryOn(request string) func(s *stand) func(http.Handler) http.Handler {
	return func(s *stand) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if replaytest.Verb(r) == request {
					s.clock.hurry()
				}
				next.ServeHTTP(w, r)
			})
		}
	}
}

// A restart is invalid when no controller acts, or when the controller reports it as done without replacing pods. The error has the last
// observed state.
func TestLiveRestartWithoutEffectIsInvalid(t *testing.T) {
	t.Parallel()
	for does, seen := range map[int32]string{idles: "its controller has seen generation", claims: "worker-1 has kube-proxy-1, as before; worker-2 has kube-proxy-2, as before"} {
		t.Run(seen, func(t *testing.T) {
			t.Parallel()
			s := faulty(t, hurryOn("patch daemonsets.apps"))
			s.awaitProxies(t)
			s.controller.Store(does)
			e := s.run(t.Context(), t, "restart", disrupts(map[string]string{"proxy": proxySet}))
			e.want(t, 3, "restart the proxies of worker-1, worker-2, worker-3", seen)
			if left := s.left(t); len(left) != 0 {
				t.Errorf("%v are left", left)
			}
		})
	}
}

// Objects outside the run's namespace are changed only with permission, and the dry run names them.
func TestLiveRunNeedsPermissionForDisruptions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		scenario string
		set      map[string]string
		told     []string
	}{
		"restart": {"restart", map[string]string{"proxy": proxySet}, []string{"DaemonSet kube-system/kube-proxy", "replaces 3 pods", "kube-proxy-1 on worker-1"}},
		"upgrade": {"upgrade", map[string]string{"proxy": proxySet, "image": nextImage, "back": "on"},
			[]string{"kube-proxy-2 on worker-2", "the image " + nextImage + " in the place of " + firstImage, "then that again"}},
		"drain":  {"drain", map[string]string{"node": "worker-2"}, []string{"the node worker-2", "cordoned", "1 pods of others", "shop/cart-1"}},
		"cordon": {"drain", map[string]string{"node": "worker-2", "what": "cordon"}, []string{"the node worker-2", "no new pods for 60s"}},
		"taint": {"drain", map[string]string{"node": "worker-2", "what": "taint", "effect": "NoExecute"},
			[]string{"hitless/taint:NoExecute", "whatever its PodDisruptionBudget says"}},
	} {
		for _, dry := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s dry=%t", name, dry), func(t *testing.T) {
				var wrote atomic.Bool
				s := standing(t, func(next http.Handler) http.Handler { return notes(&wrote, next) })
				s.awaitProxies(t)
				s.addPod(t, "shop", "cart-1", "worker-2", "ReplicaSet")
				e := s.run(t.Context(), t, c.scenario, func(o *run.Options) {
					maps.Copy(o.Set, c.set)
					o.Live.DryRun = dry
				})
				code, words := 2, []string{"--allow-disruption", "--dry-run"}
				if dry {
					code, words = 0, nil
				}
				e.want(t, code, words...)
				for _, word := range c.told {
					if !strings.Contains(strings.Join(e.said, "\n"), word) {
						t.Errorf("the output lacks %q:\n%s", word, strings.Join(e.said, "\n"))
					}
				}
				if wrote.Load() {
					t.Error("an object was changed")
				}
			})
		}
	}
}

// addPod creates a foreign pod on a node, owned by a controller of that kind; no owner for an empty kind.
func (s *stand) addPod(t *testing.T, namespace, name, node, owner string) {
	t.Helper()
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		Labels: map[string]string{"app": namespace}}, Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	if owner != "" {
		yes := true
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: owner, Name: "o", UID: "u", Controller: &yes}}
	}
	if _, err := s.server.Apply(pod); err != nil {
		t.Fatal(err)
	}
}

// A change that the cluster does not permit is refused before anything is created, with advice.
func TestImpossibleLiveDisruptionIsRefusedWithAdvice(t *testing.T) {
	t.Parallel()
	s := standing(t, nil)
	s.awaitProxies(t)
	s.addPod(t, "shop", "alone", "worker-3", "")
	for name, c := range map[string]struct {
		scenario string
		set      map[string]string
		want     []string
	}{
		"no proxy":         {"restart", nil, []string{"--set proxy=kube-system/ds/kube-proxy"}},
		"no such proxy":    {"restart", map[string]string{"proxy": "kube-system/ds/cilium"}, []string{"no DaemonSet kube-system/cilium", "kubectl get daemonsets -A"}},
		"no DaemonSet":     {"restart", map[string]string{"proxy": "kube-proxy"}, []string{"NAMESPACE/ds/NAME"}},
		"no image":         {"upgrade", map[string]string{"proxy": proxySet}, []string{"--set image=IMAGE"}},
		"the same image":   {"upgrade", map[string]string{"proxy": proxySet, "image": firstImage}, []string{"already", "hitless run restart"}},
		"no node":          {"drain", nil, []string{"--set node=NAME", "worker-1, worker-2, worker-3"}},
		"no such node":     {"drain", map[string]string{"node": "worker-9"}, []string{"worker-1, worker-2, worker-3"}},
		"a pod of nobody":  {"drain", map[string]string{"node": "worker-3"}, []string{"shop/alone", "no controller", "--set evict=own"}},
		"a lab's key":      {"restart", map[string]string{"proxy": proxySet, "signal": "KILL"}, []string{`no key "signal"`}},
		"a lab's scenario": {"interference", nil, []string{"drain, flap, policy, quiet, restart, rollout, scale, upgrade"}},
	} {
		e := s.run(t.Context(), t, c.scenario, disrupts(c.set))
		if e.code() != 2 {
			t.Errorf("%s: exit code %d: %v", name, e.code(), e.err)
		}
		for _, word := range c.want {
			if e.err == nil || !strings.Contains(e.err.Error(), word) {
				t.Errorf("%s: the error lacks %q: %v", name, word, e.err)
			}
		}
	}
	s.patchProxy(t, map[string]any{"spec": map[string]any{"updateStrategy": map[string]any{"type": appsv1.OnDeleteDaemonSetStrategyType}}})
	s.run(t.Context(), t, "restart", disrupts(map[string]string{"proxy": proxySet})).want(t, 2, "update strategy OnDelete")
	if left := s.left(t); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
}

// An upgrade leaves the new image, or restores the old one if its parameter says so.
func TestLiveUpgradeChangesProxyImage(t *testing.T) {
	t.Parallel()
	for back, image := range map[string]string{"off": nextImage, "on": firstImage} {
		t.Run("back="+back, func(t *testing.T) {
			t.Parallel()
			s := standing(t, nil)
			before := s.awaitProxies(t)
			e := s.run(t.Context(), t, "upgrade", disrupts(map[string]string{"proxy": proxySet, "image": nextImage, "back": back, "between": "10s"}))
			e.finished(t)
			s.wantProxy(t, image)
			after := s.proxies(t)
			if len(after) != len(before) {
				t.Errorf("proxy pods on %d nodes, before on %d", len(after), len(before))
			}
			for node, uid := range after {
				if uid == before[node] {
					t.Errorf("%s has the same proxy pod as before", node)
				}
			}
			var steps []string
			for _, step := range e.events(t, record.KindStep) {
				steps = append(steps, step.Object)
			}
			all := strings.Join(steps, "\n")
			if !strings.Contains(all, "put "+nextImage+" in the place of "+firstImage) || strings.Contains(all, "put "+firstImage+" back") != (back == "on") {
				t.Errorf("the steps were\n%s", all)
			}
		})
	}
}

// An image whose pods do not become ready makes the run invalid. The error has the reason of a pod, and the old image is restored.
func TestFailedLiveUpgradeIsRestored(t *testing.T) {
	t.Parallel()
	s := faulty(t, func(s *stand) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if replaytest.Verb(r) == "list pods" && s.proxyWaits(t) {
					s.clock.hurry()
				}
				next.ServeHTTP(w, r)
			})
		}
	})
	s.awaitProxies(t)
	e := s.run(t.Context(), t, "upgrade", disrupts(map[string]string{"proxy": proxySet, "image": badImage}))
	e.want(t, 3, "put "+badImage+" in the place of "+firstImage, "waited 12m", "which is not ready (ImagePullBackOff: Back-off pulling image)")
	s.wantProxy(t, firstImage)
	if said := strings.Join(e.said, "\n"); !strings.Contains(said, "put back the DaemonSet kube-system/kube-proxy") {
		t.Errorf("the output does not say that the image was restored:\n%s", said)
	}
}

// interruptedAt interrupts a run when it prints the text.
func interruptedAt(ctx context.Context, t *testing.T, s *stand, scenario, word string, set map[string]string) ended {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return s.run(ctx, t, scenario, func(o *run.Options) {
		disrupts(set)(o)
		report := o.Progress
		o.Progress = func(e progress.Event) {
			if report(e); strings.Contains(e.Text, word) {
				cancel()
			}
		}
	})
}

// An interrupted run restores the objects that it has changed.
func TestInterruptedLiveDisruptionIsRestored(t *testing.T) {
	t.Parallel()
	t.Run("an image", func(t *testing.T) {
		t.Parallel()
		var s *stand
		ctx, cancel := context.WithCancel(t.Context())
		s = standing(t, func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next.ServeHTTP(w, r)
				if replaytest.Verb(r) == "patch daemonsets.apps" {
					cancel()
				}
			})
		})
		s.awaitProxies(t)
		s.run(ctx, t, "upgrade", disrupts(map[string]string{"proxy": proxySet, "image": nextImage})).want(t, 130)
		s.wantProxy(t, firstImage)
	})
	t.Run("a node", func(t *testing.T) {
		t.Parallel()
		s := standing(t, nil)
		interruptedAt(t.Context(), t, s, "drain", "cordon worker-1 done", map[string]string{"node": "worker-1"}).want(t, 130)
		s.wantNode(t, "worker-1")
	})
}

// A run that loses its cluster cannot restore what it has changed. Its output names itself and the command that does.
func TestLiveRunThatCannotRestoreSaysSo(t *testing.T) {
	t.Parallel()
	s := faulty(t, func(s *stand) func(http.Handler) http.Handler {
		var gone atomic.Bool
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if gone.Load() {
					s.clock.hurry()
					s.door.shut()
					panic(http.ErrAbortHandler)
				}
				next.ServeHTTP(w, r)
				gone.Store(replaytest.Verb(r) == "patch daemonsets.apps")
			})
		}
	})
	s.awaitProxies(t)
	e := s.run(t.Context(), t, "upgrade", disrupts(map[string]string{"proxy": proxySet, "image": nextImage}))
	e.want(t, 3, "connection refused")
	if !slices.ContainsFunc(e.said, func(text string) bool {
		return strings.Contains(text, "changes of the run hitless-upgrade-") && strings.Contains(text, "may remain: `hitless clean` tries again")
	}) {
		t.Errorf("the output does not say that the proxy is still changed:\n%s", strings.Join(e.said, "\n"))
	}
}

// upgrading is what a killed upgrade leaves at the proxy's DaemonSet.
var upgrading = cluster.Restore{Run: "hitless-upgrade-abcde", Images: map[string]cluster.Image{"kube-proxy": {Was: firstImage, Set: nextImage}}}

// owing is a cluster with a DaemonSet and a node that killed runs have changed and not restored.
func owing(t *testing.T) *stand {
	t.Helper()
	s := standing(t, nil)
	s.awaitProxies(t)
	s.owes(t, upgrading, nextImage)
	s.owesNode(t, "worker-2", cluster.Restore{Run: "hitless-drain-abcde", Uncordon: true, Untaint: "hitless/taint"})
	return s
}

// A run refuses to start while another one has changed such an object and not restored it. The error names that run and what restores it.
func TestUnrestoredChangesRefuseOtherRuns(t *testing.T) {
	t.Parallel()
	s := owing(t)
	s.run(t.Context(), t, "restart", disrupts(map[string]string{"proxy": proxySet})).want(t, 2, "hitless-upgrade-abcde", "hitless clean")
	s.run(t.Context(), t, "drain", disrupts(map[string]string{"node": "worker-1"})).want(t, 2, "worker-2", "hitless-drain-abcde", "hitless clean")
}

// clean is the output of `hitless clean`.
func (s *stand) clean(t *testing.T, dry bool) string {
	t.Helper()
	var said []string
	if err := site.Clean(t.Context(), site.LiveOptions{Kubeconfig: s.kubeconfig, DryRun: dry}, time.Minute, func(text string) { said = append(said, text) }); err != nil {
		t.Error(err)
	}
	return strings.Join(said, "\n")
}

// `hitless clean` restores what killed runs have changed, and then finds nothing more. Its dry run lists the changes and restores none.
func TestCleanRestoresUnrestoredChanges(t *testing.T) {
	t.Parallel()
	s := owing(t)
	if all := s.clean(t, true); !strings.Contains(all, "worker-2") || !strings.Contains(all, firstImage) || s.proxy(t).Annotations[cluster.RestoreAnnotation] == "" {
		t.Errorf("a dry run printed\n%s", all)
	}
	s.clean(t, false)
	s.wantProxy(t, firstImage)
	s.wantNode(t, "worker-2", "team/slow")
	if all := s.clean(t, false); all != "nothing is left of any run" {
		t.Errorf("the second run printed %q", all)
	}
}

// An image that somebody else has set since is left alone by `hitless clean`.
func TestCleanKeepsChangesOfOthers(t *testing.T) {
	t.Parallel()
	const theirs = "registry.example/kube-proxy:v3"
	s := standing(t, nil)
	s.awaitProxies(t)
	s.owes(t, upgrading, theirs)
	s.clean(t, false)
	s.wantProxy(t, theirs)
}

// owes gives the proxy's DaemonSet the state that a killed run leaves.
func (s *stand) owes(t *testing.T, restore cluster.Restore, image string) {
	t.Helper()
	s.patchProxy(t, map[string]any{"metadata": map[string]any{"annotations": restore.Annotations()},
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []map[string]any{{"name": "kube-proxy", "image": image}}}}}})
}

// patchProxy patches the proxy's DaemonSet. An update could conflict with the controller, which writes the status.
func (s *stand) patchProxy(t *testing.T, change map[string]any) {
	t.Helper()
	patch, err := json.Marshal(change)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.direct.AppsV1().DaemonSets("kube-system").Patch(t.Context(), "kube-proxy", types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// owesNode gives a node the state that a killed run leaves, with a foreign taint.
func (s *stand) owesNode(t *testing.T, name string, restore cluster.Restore) {
	t.Helper()
	patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": restore.Annotations()},
		"spec": corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: "team/slow", Effect: corev1.TaintEffectPreferNoSchedule}, {Key: restore.Untaint, Effect: corev1.TaintEffectNoSchedule}}}})
	if _, err := s.direct.CoreV1().Nodes().Patch(t.Context(), name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// A drain evicts the pods of a node as their budgets allow, except those of DaemonSets, and makes the node schedulable again.
func TestLiveDrainEvictsAndRestores(t *testing.T) {
	t.Parallel()
	var ordered atomic.Int32
	s := faulty(t, func(s *stand) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next.ServeHTTP(w, r)
				if replaytest.Verb(r) == "create pods/eviction" && strings.Contains(r.URL.Path, "/cart-1/") && ordered.Add(1) == 1 {
					// After the first refusal the budget allows a disruption.
					if err := s.direct.PolicyV1().PodDisruptionBudgets("shop").Delete(context.Background(), "b", metav1.DeleteOptions{}); err != nil {
						t.Error(err)
					}
				}
			})
		}
	})
	s.awaitProxies(t)
	s.addPod(t, "shop", "cart-1", "worker-1", "ReplicaSet")
	s.addPod(t, "shop", "agent", "worker-1", "DaemonSet")
	s.addPod(t, "shop", "cart-2", "worker-2", "ReplicaSet")
	s.budget(t, "shop", 3)
	proxies := s.proxies(t)
	e := s.run(t.Context(), t, "drain", disrupts(map[string]string{"node": "worker-1"}))
	e.finished(t)
	s.wantNode(t, "worker-1")
	if ordered.Load() < 2 {
		t.Errorf("the eviction was requested %d times, want one repetition after the refusal", ordered.Load())
	}
	var names []string
	pods, err := s.direct.CoreV1().Pods("shop").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		names = append(names, pod.Name)
	}
	if got := strings.Join(names, " "); got != "agent cart-2" {
		t.Errorf("of the foreign pods %s are left, want agent cart-2", got)
	}
	if now := s.proxies(t); now["worker-1"] != proxies["worker-1"] {
		t.Error("the proxy's pod was evicted")
	}
}

// budget creates a PodDisruptionBudget b for the pods of a namespace.
func (s *stand) budget(t *testing.T, namespace string, least int) {
	t.Helper()
	available := intstr.FromInt(least)
	_, err := s.direct.PolicyV1().PodDisruptionBudgets(namespace).Create(t.Context(), &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b"},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &available, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": namespace}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// A budget that never allows the eviction makes the run invalid after the time of its parameter, and the node becomes schedulable again.
func TestLiveDrainForbiddenByBudget(t *testing.T) {
	t.Parallel()
	s := faulty(t, hurryOn("create pods/eviction"))
	s.addPod(t, "shop", "cart-1", "worker-1", "ReplicaSet")
	s.budget(t, "shop", 1)
	e := s.run(t.Context(), t, "drain", disrupts(map[string]string{"node": "worker-1"}))
	e.want(t, 3, "evict the pods of worker-1", "waited 5m0s for the eviction of shop/cart-1", "disruption budget")
	s.wantNode(t, "worker-1")
	if left := s.left(t); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
}

// During the scenario the node has cordon and taint together with foreign taints. Afterwards it has only the foreign ones.
func TestLiveCordonAndTaintAreRestored(t *testing.T) {
	t.Parallel()
	for what, want := range map[string]string{"cordon": "unschedulable", "taint": "hitless/taint"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := standing(t, nil)
			s.owesNode(t, "worker-2", cluster.Restore{Run: "x", Uncordon: true, Untaint: "x"})
			if err := site.Clean(t.Context(), site.LiveOptions{Kubeconfig: s.kubeconfig}, time.Minute, func(string) {}); err != nil { // only the foreign taint stays
				t.Fatal(err)
			}
			var during string
			e := s.run(t.Context(), t, "drain", func(o *run.Options) {
				disrupts(map[string]string{"node": "worker-2", "what": what})(o)
				report := o.Progress
				o.Progress = func(e progress.Event) {
					if report(e); strings.Contains(e.Text, what+" worker-2 done") {
						n, _ := s.direct.CoreV1().Nodes().Get(context.Background(), "worker-2", metav1.GetOptions{})
						data, _ := json.Marshal(n)
						during = string(data)
					}
				}
			})
			e.finished(t)
			for _, word := range []string{want, "team/slow", "hitless/put-back", "hitless-drain-"} {
				if !strings.Contains(during, word) {
					t.Errorf("during the scenario the node lacked %q: %s", word, during)
				}
			}
			s.wantNode(t, "worker-2", "team/slow")
		})
	}
}
