package kubelet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	roots "github.com/hitless/hitless/lab/container"
	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/record"
)

// testKubelet is a kubelet with a fake host and a fake API, in virtual time.
type testKubelet struct {
	*testing.T
	begin  time.Time
	client *fake.Clientset
	host   *fakeHost
	config Config
	off    context.CancelFunc
	ended  chan struct{}

	mu     sync.Mutex
	events []string // "second pod state"
}

func (b *testKubelet) Event(e record.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	body := e.Body.(record.Pod)
	b.events = append(b.events, fmt.Sprintf("%d %s %s", int(e.At.Seconds()), body.Pod, body.State))
}

func (b *testKubelet) Attempt(record.Attempt) {}

// runTest runs test with a running kubelet and stops the kubelet at the end.
func runTest(t *testing.T, adjust func(*Config), test func(*testKubelet)) {
	synctest.Test(t, func(t *testing.T) {
		b := &testKubelet{T: t, begin: time.Now(), client: fake.NewClientset(), ended: make(chan struct{})}
		b.host = &fakeHost{begin: b.begin, exitAfter: map[string]time.Duration{}, onTerm: map[string]time.Duration{},
			volumes: map[string][]volumeFile{}, endAfter: map[string]time.Duration{}}
		node := &topology.Node{Namespace: &topology.Namespace{Name: "node-1"}, Number: 1,
			Addr: netip.MustParseAddr("10.0.0.11"), PodCIDR: netip.MustParsePrefix("10.244.1.0/24")}
		b.config = Config{Node: node, Client: b.client, Backend: Program{Path: "/hitless", Args: []string{"backend"}},
			Recorder: b, Now: func() time.Duration { return time.Since(b.begin) }, Log: slog.New(slog.DiscardHandler)}
		if adjust != nil {
			adjust(&b.config)
		}
		if _, err := b.client.CoreV1().Nodes().Create(t.Context(),
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		k, err := newKubelet(b.config)
		if err != nil {
			t.Fatal(err)
		}
		k.host = b.host
		ctx, off := context.WithCancel(context.Background())
		b.off = off
		go func() {
			defer close(b.ended)
			k.run(ctx)
		}()
		defer func() {
			off()
			<-b.ended
		}()
		synctest.Wait()
		test(b)
	})
}

// at waits until a second of virtual time and until all goroutines are idle.
func (b *testKubelet) at(second int) {
	time.Sleep(time.Until(b.begin.Add(time.Duration(second) * time.Second)))
	synctest.Wait()
}

func (b *testKubelet) wantEvents(want ...string) {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.events, want) {
		b.Errorf("events:\n%s\nwant:\n%s", strings.Join(b.events, "\n"), strings.Join(want, "\n"))
	}
}

func (b *testKubelet) pod(name string) *corev1.Pod {
	b.Helper()
	pod, err := b.client.CoreV1().Pods("default").Get(b.Context(), name, metav1.GetOptions{})
	if err != nil {
		b.Fatalf("pod %s: %v", name, err)
	}
	return pod
}

// remove deletes a bound pod as the API server does: it sets the deletion timestamp and waits for the kubelet.
func (b *testKubelet) remove(name string, grace int64) {
	b.Helper()
	pod := b.pod(name).DeepCopy()
	now := metav1.Now()
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, &grace
	if _, err := b.client.CoreV1().Pods("default").Update(b.Context(), pod, metav1.UpdateOptions{}); err != nil {
		b.Fatal(err)
	}
	synctest.Wait()
}

func (b *testKubelet) podExists(name string) bool {
	_, err := b.client.CoreV1().Pods("default").Get(b.Context(), name, metav1.GetOptions{})
	return err == nil
}

// webPod returns a pod of one backend with a readiness probe each second.
func webPod(name string, adjust ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name),
			Labels: map[string]string{"pod-template-hash": "g1", "app": "web"}},
		Spec: corev1.PodSpec{NodeName: "node-1", RestartPolicy: corev1.RestartPolicyAlways,
			Containers: []corev1.Container{{Name: "web", Image: "registry.k8s.io/e2e-test-images/agnhost:2.47",
				Args: []string{"netexec", "--http-port=8080"},
				ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1, ProbeHandler: corev1.ProbeHandler{
					HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: port(8080)}}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, f := range adjust {
		f(pod)
	}
	return pod
}

func (b *testKubelet) create(pod *corev1.Pod) {
	b.Helper()
	if _, err := b.client.CoreV1().Pods("default").Create(b.Context(), pod, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	synctest.Wait()
}

// fakeHost has fake processes. A process ends exitAfter its start, or onTerm after SIGTERM (default 0, negative ignores
// it). Pages of a pod answer while its process lives and the page is not in failing.
type fakeHost struct {
	begin     time.Time
	exitAfter map[string]time.Duration // by pod
	onTerm    map[string]time.Duration
	endAfter  map[string]time.Duration // by the last word of a command; it ends well

	mu         sync.Mutex
	failing    []string // pages
	live       []*fakeProcess
	starts     []string // "second pod"
	ran        []string // "second last-word-of-the-command", and "second ended last-word"
	volumes    map[string][]volumeFile
	stored     int64 // bytes of each root
	last       *fakeProcess
	sandboxes  int
	asked      []int      // seconds at which a page was asked for
	attachment attachment // of each pod; nil for none
}

type fakeSandbox struct {
	host *fakeHost
	pod  string
	addr netip.Addr
}

func (h *fakeHost) sandbox(pod string, addr netip.Addr) (sandbox, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sandboxes++
	return &fakeSandbox{host: h, pod: pod, addr: addr}, nil
}

// chained has no plugin; cni_test.go tests one.
func (s *fakeSandbox) chained(*corev1.Pod) attachment { return s.host.attachment }

func (h *fakeHost) get(_ context.Context, url string, _ http.Header) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = append(h.asked, int(time.Since(h.begin).Seconds()))
	for _, p := range h.live {
		if strings.HasPrefix(url, "http://"+p.sandbox.addr.String()+":8080/") {
			for _, page := range h.failing {
				if strings.HasSuffix(url, page) {
					return http.StatusServiceUnavailable, nil
				}
			}
			return http.StatusOK, nil
		}
	}
	return 0, errors.New("connection refused")
}

func (h *fakeHost) connect(context.Context, string) error { return errors.New("connection refused") }

func (h *fakeHost) setFailing(pages ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failing = pages
}

func (s *fakeSandbox) remove() error {
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	s.host.sandboxes--
	return nil
}

func (s *fakeSandbox) dial(context.Context, string) (net.Conn, error) {
	return nil, errors.New("no network")
}

func (s *fakeSandbox) hostPorts([]topology.HostPort) error { return nil }

func (s *fakeSandbox) start(_ string, l launch) (process, error) {
	argv, env := l.argv, l.env
	h := s.host
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &fakeProcess{sandbox: s, argv: argv, env: env, done: make(chan struct{})}
	h.live = append(h.live, p)
	h.last = p
	h.starts = append(h.starts, fmt.Sprintf("%d %s", int(time.Since(h.begin).Seconds()), s.pod))
	word := argv[len(argv)-1]
	h.ran = append(h.ran, fmt.Sprintf("%d %s", int(time.Since(h.begin).Seconds()), word))
	if d, ok := h.endAfter[word]; ok {
		time.AfterFunc(d, func() { p.exit("exit status 0") })
	}
	if d, ok := h.exitAfter[s.pod]; ok {
		time.AfterFunc(d, func() { p.exit("exit status 1") })
	}
	return p, nil
}

type fakeProcess struct {
	sandbox   *fakeSandbox
	argv, env []string
	done      chan struct{}
	text      string
	signals   []string // "second signal"
}

func (p *fakeProcess) Done() <-chan struct{} { return p.done }
func (p *fakeProcess) ExitText() string      { return p.text }

func (p *fakeProcess) Signal(sig syscall.Signal) error {
	h := p.sandbox.host
	h.mu.Lock()
	p.signals = append(p.signals, fmt.Sprintf("%d %s", int(time.Since(h.begin).Seconds()), sig))
	h.mu.Unlock()
	switch delay := h.onTerm[p.sandbox.pod]; {
	case sig == syscall.SIGKILL:
		p.exit("signal: killed")
	case sig == syscall.SIGTERM && delay == 0:
		p.exit("exit status 0")
	case sig == syscall.SIGTERM && delay > 0:
		time.AfterFunc(delay, func() { p.exit("exit status 0") })
	}
	return nil
}

func (p *fakeProcess) exit(text string) {
	h := p.sandbox.host
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.Index(h.live, p)
	if i < 0 {
		return
	}
	h.live = slices.Delete(h.live, i, i+1)
	p.text = text
	h.ran = append(h.ran, fmt.Sprintf("%d ended %s", int(time.Since(h.begin).Seconds()), p.argv[len(p.argv)-1]))
	close(p.done)
}

// failPatches makes the API refuse patches of pods while the value is true.
func (b *testKubelet) failPatches() *atomic.Bool {
	var down atomic.Bool
	down.Store(true)
	b.client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return down.Load(), nil, errors.New("the API is away")
	})
	return &down
}

func (h *fakeHost) health(context.Context, string, string) error { return errors.New("no gRPC") }

// The fake's nodes remember the first files of volumes.
func (h *fakeHost) volume(dir string, files []volumeFile) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.volumes[dir] = files
	return dir, nil
}
func (h *fakeHost) hostPath(string, corev1.HostPathType) error { return nil }
func (h *fakeHost) below(volume, name string) (string, error)  { return volume + "/" + name, nil }
func (h *fakeHost) used(*roots.Root) (int64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stored, nil
}
func (h *fakeHost) removeVolumes(string) error         { return nil }
func (h *fakeHost) read(string, int64) (string, error) { return "", nil }
