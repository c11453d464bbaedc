package replay_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"github.com/hitless/hitless/lab/replay"
)

// proxySelector is the label selector of kube-proxy for Services and EndpointSlices.
const proxySelector = "!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name"

// inform starts the informers of kube-proxy and waits until they have synced.
func inform(t tb, client kubernetes.Interface) informers.SharedInformerFactory {
	t.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = proxySelector }))
	factory.Core().V1().Services().Informer()
	factory.Discovery().V1().EndpointSlices().Informer()
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop); factory.Shutdown() })
	factory.Start(stop)
	for kind, synced := range factory.WaitForCacheSync(stop) {
		if !synced {
			t.Fatalf("the informer of %s has not synced", kind)
		}
	}
	return factory
}

// held lists the objects of an informer store by name and version.
func held(store cache.Store) []string {
	var names []string
	for _, o := range store.List() {
		m := o.(metav1.Object)
		names = append(names, m.GetName()+" "+m.GetResourceVersion())
	}
	slices.Sort(names)
	return names
}

// there lists the objects of the server that a proxy selects.
func there(t tb, client kubernetes.Interface) []string {
	t.Helper()
	all, err := client.CoreV1().Services("").List(context.Background(), metav1.ListOptions{LabelSelector: proxySelector})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range all.Items {
		names = append(names, s.Name+" "+s.ResourceVersion)
	}
	slices.Sort(names)
	return names
}

func TestInformersFollow(t *testing.T) {
	inBoth(t, func(t *testing.T, l lab, client kubernetes.Interface) {
		l.apply(t, service("web", "10.96.0.10"))
		factory := inform(t, client)
		services, slices := factory.Core().V1().Services(), factory.Discovery().V1().EndpointSlices()
		got, err := services.Lister().Services("default").Get("web")
		if err != nil {
			t.Fatal(err)
		}
		l.apply(t, slice("web-1", "web", "node-1", "10.244.1.4"))
		eventually(t, "the slice is in the cache", func() bool {
			s, err := slices.Lister().EndpointSlices("default").Get("web-1")
			return err == nil && *s.Endpoints[0].NodeName == "node-1"
		})
		// The same object listed and watched is the same.
		if err := l.Delete(replay.Ref{Kind: "Service", Name: "web"}, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		l.apply(t, service("web", "10.96.0.10"))
		eventually(t, "the new service is in the cache", func() bool {
			s, err := services.Lister().Services("default").Get("web")
			return err == nil && s.UID != got.UID
		})
		watched, err := services.Lister().Services("default").Get("web")
		if err != nil {
			t.Fatal(err)
		}
		watched = watched.DeepCopy()
		watched.ResourceVersion, watched.UID = got.ResourceVersion, got.UID
		if diff := cmp.Diff(got, watched); diff != "" {
			t.Errorf("(-listed +watched):\n%s", diff)
		}
	})
}

func TestInformersDropUnselectedObjects(t *testing.T) {
	l := start(t, nil)
	l.apply(t, service("web", "10.96.0.10"))
	services := inform(t, l.client(t)).Core().V1().Services().Informer().GetStore()
	hidden := service("web", "10.96.0.10")
	hidden.Labels = map[string]string{"service.kubernetes.io/headless": ""}
	l.apply(t, hidden)
	eventually(t, "the service has left the cache", func() bool { return len(services.List()) == 0 })
	l.apply(t, service("web", "10.96.0.10"))
	eventually(t, "the service is back", func() bool { return len(services.List()) == 1 })
}

// agents records the User-Agents of requests.
type agents struct {
	sync.Mutex
	urls []string
}

func (a *agents) count(part string) int {
	a.Lock()
	defer a.Unlock()
	n := 0
	for _, u := range a.urls {
		if strings.Contains(u, part) {
			n++
		}
	}
	return n
}

func TestInformersListAgainAfter410(t *testing.T) {
	l := start(t, nil)
	l.apply(t, service("web", "10.96.0.10"))
	seen := &agents{}
	client := l.client(t, func(c *rest.Config) { c.Wrap(seen.wrap) })
	services := inform(t, client).Core().V1().Services().Informer().GetStore()
	node := replay.Scope{UserAgent: "replay-test", Addr: netip.MustParseAddr("127.0.0.1"), Resource: "services"}
	eventually(t, "both watches are open", func() bool { return len(l.Watchers(replay.Scope{})) == 2 })
	if got := l.Watchers(node); len(got) != 1 || got[0].Resource != "services" || got[0].UserAgent != "replay-test/1" {
		t.Fatalf("watchers in %v: %v", node, got)
	}
	before := seen.count("/services?")
	l.Fault(replay.ExpireNextWatch{Scope: node})
	l.Fault(replay.CutWatches{Scope: node})
	l.apply(t, service("late", "10.96.0.11"))
	eventually(t, "the informer has caught up", func() bool { return len(services.List()) == 2 })
	// One watch that is answered 410, and the one that starts anew with all objects. (The cut watch may still have told of the
	// late service, so the cache alone does not say that both were asked for.)
	eventually(t, "the expired watch and another have been asked for", func() bool { return seen.count("/services?")-before >= 2 })
	if n := seen.count("endpointslices?"); n != 1 {
		t.Errorf("%d requests for slices, whose watch was not cut; want 1", n)
	}
}

// After any writes, delays, cuts, disconnections and expired watches an informer ends with the state of the server; after a
// lost event, once it has listed again. (A bare reflector, because an informer waits about 1 s after each cut watch.)
func TestInformersConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := replay.New()
		s.Keep = rapid.IntRange(1, 4).Draw(t, "kept events")
		l := start(t, s)
		client, at := l.client(t), netip.MustParseAddr("127.0.0.2")
		watcher := l.client(t, from(at), noRetry, rapid.SampledFrom([]func(*rest.Config){plainJSON, protobuf}).Draw(t, "form"))
		store := cache.NewStore(cache.MetaNamespaceKeyFunc)
		source := cache.NewFilteredListWatchFromClient(watcher.CoreV1().RESTClient(), "services", "",
			func(o *metav1.ListOptions) { o.LabelSelector = proxySelector })
		var lists cache.ListerWatcher = source
		if rapid.Bool().Draw(t, "list and watch apart") {
			lists = oldListWatch{source}
		}
		reflector := cache.NewReflectorWithOptions(lists, &corev1.Service{}, store,
			cache.ReflectorOptions{Backoff: &wait.Backoff{Duration: time.Millisecond, Factor: 1, Steps: 1}})
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { reflector.RunWithContext(ctx); close(ended) }()
		t.Cleanup(func() { cancel(); <-ended })
		faults := &faults{scope: replay.Scope{Addr: at}}
		for range rapid.IntRange(1, 40).Draw(t, "changes") {
			if rapid.IntRange(0, 2).Draw(t, "fault") == 0 {
				faults.disturb(t, l)
			} else {
				change(t, l, client)
			}
		}
		faults.end(l)
		want := there(t, client)
		eventually(t, fmt.Sprintf("the store holds %v", want), func() bool { return slices.Equal(held(store), want) })
	})
}

// oldListWatch lists and then watches, as clients before client-go 0.35 did.
type oldListWatch struct{ cache.ListerWatcher }

// IsWatchListSemanticsUnSupported implements the check of client-go.
func (oldListWatch) IsWatchListSemanticsUnSupported() bool { return true }

func change(t *rapid.T, l lab, client kubernetes.Interface) {
	t.Helper()
	services := client.CoreV1().Services("default")
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
	s := service(name, "10.96.0.10")
	s.Spec.Ports[0].Port = rapid.Int32Range(1, 5).Draw(t, "port")
	if rapid.Bool().Draw(t, "hidden") {
		s.Labels = map[string]string{"service.kubernetes.io/headless": ""}
	}
	var err error
	switch rapid.IntRange(0, 4).Draw(t, "what") {
	case 0, 1:
		l.apply(t, s)
	case 2:
		_, err = services.Update(t.Context(), s, metav1.UpdateOptions{})
	case 3, 4:
		err = services.Delete(t.Context(), name, metav1.DeleteOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// noRetry disables the client's retry, which would wait for 1 s.
func noRetry(c *rest.Config) {
	c.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return tripper(func(r *http.Request) (*http.Response, error) {
			answer, err := next.RoundTrip(r)
			if err != nil {
				err = fmt.Errorf("no answer: %v", err) // of no kind that it knows
			}
			return answer, err
		})
	})
}

// faults are the active faults of a client address.
type faults struct {
	scope replay.Scope
	late  func() // lifts the delay
	back  func() // ends the absence
	lost  bool
}

func (f *faults) disturb(t *rapid.T, l lab) {
	switch rapid.IntRange(0, 4).Draw(t, "which") {
	case 0:
		l.Fault(replay.CutWatches{Scope: f.scope})
	case 1:
		f.expire(l)
	case 2:
		toggle(l, &f.late, replay.DelayWatches{Scope: f.scope, By: time.Duration(rapid.IntRange(1, 20).Draw(t, "ms")) * time.Millisecond})
	case 3:
		toggle(l, &f.back, replay.Away{Addrs: []netip.Addr{f.scope.Addr}})
	case 4:
		f.lost = true
		l.Fault(replay.LoseNext{Scope: f.scope})
	}
}

// toggle begins or lifts a fault.
func toggle(l lab, lift *func(), f replay.Fault) {
	if *lift == nil {
		*lift = l.Fault(f)
		return
	}
	(*lift)()
	*lift = nil
}

func (f *faults) expire(l lab) {
	l.Fault(replay.ExpireNextWatch{Scope: f.scope})
	l.Fault(replay.CutWatches{Scope: f.scope})
}

// end reconnects the client and makes it list again after a lost event. Delays stay, since they end by themselves.
func (f *faults) end(l lab) {
	if f.back != nil {
		f.back()
	}
	if f.lost {
		f.expire(l)
	}
}

func TestNodeInformerSeesOneNode(t *testing.T) {
	l := start(t, nil)
	l.apply(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}})
	l.apply(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}})
	factory := informers.NewSharedInformerFactoryWithOptions(l.client(t), 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=node-2" }))
	nodes := factory.Core().V1().Nodes().Informer().GetStore()
	stop := make(chan struct{})
	defer factory.Shutdown()
	defer close(stop)
	factory.Start(stop)
	factory.WaitForCacheSync(stop)
	if diff := cmp.Diff([]string{"node-2 3"}, held(nodes)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (a *agents) wrap(next http.RoundTripper) http.RoundTripper {
	return tripper(func(r *http.Request) (*http.Response, error) {
		a.Lock()
		a.urls = append(a.urls, r.URL.String())
		a.Unlock()
		return next.RoundTrip(r)
	})
}
