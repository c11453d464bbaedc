package kubelet

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	roots "github.com/hitless/hitless/lab/container"
	"github.com/hitless/hitless/lab/kubelet/grpchealth"
	"github.com/hitless/hitless/lab/procs"
	"github.com/hitless/hitless/lab/topology"
)

// host is the kubelet's interface to its node; nodeHost implements it, tests use a fake.
type host interface {
	// sandbox creates a pod's network; an invalid address means the node's network (hostNetwork).
	sandbox(pod string, addr netip.Addr) (sandbox, error)
	// get asks a URL with a literal address from the node and returns the status code.
	get(ctx context.Context, url string, header http.Header) (int, error)
	// connect opens and closes a TCP connection from the node.
	connect(ctx context.Context, address string) error
	// health asks a server of gRPC for the health of a service from the node.
	health(ctx context.Context, address, service string) error
	nodeFiles
}

// sandbox is the network of a pod.
type sandbox interface {
	start(name string, l launch) (process, error)
	// dial connects to a literal address from within the network.
	dial(ctx context.Context, address string) (net.Conn, error)
	// hostPorts makes ports of the node lead to the pod, until it is removed.
	hostPorts(ports []topology.HostPort) error
	// chained is what the CNI plugin does for the pod; nil without a plugin, and for a pod with the node's network.
	chained(pod *corev1.Pod) attachment
	remove() error
}

// process is a started program; *procs.Process is one.
type process interface {
	Done() <-chan struct{}
	ExitText() string
	Signal(syscall.Signal) error
}

type nodeHost struct {
	node   *topology.Node
	procs  *procs.Supervisor
	plugin *Plugin // nil for none
}

func (h *nodeHost) sandbox(pod string, addr netip.Addr) (sandbox, error) {
	if !addr.IsValid() {
		return &podNetwork{host: h, ns: h.node.Namespace}, nil
	}
	add := h.node.AddPod
	if h.plugin != nil {
		add = h.node.AddRoutedPod
	}
	ns, err := add(pod, addr)
	if err != nil {
		return nil, err
	}
	return &podNetwork{host: h, ns: ns, addr: addr}, nil
}

func (h *nodeHost) get(ctx context.Context, url string, header http.Header) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	req.Header = header
	// As the kubelet: a new connection for each probe; redirects count as success and are not followed.
	client := http.Client{
		Transport: &http.Transport{DialContext: h.node.DialContext, DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, // as the kubelet
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

func (h *nodeHost) health(ctx context.Context, address, service string) error {
	return grpchealth.Check(ctx, h.node.DialContext, address, service)
}

func (h *nodeHost) connect(ctx context.Context, address string) error {
	conn, err := h.node.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// podNetwork is a pod's namespace, or the node's, which has no link to remove.
type podNetwork struct {
	host *nodeHost
	ns   *topology.Namespace
	addr netip.Addr
}

func (w *podNetwork) start(name string, l launch) (process, error) {
	spec := procs.Spec{Name: name, Path: l.argv[0], Args: l.argv[1:], Env: l.env, Stdin: l.in, Stdout: l.out, Stderr: l.err}
	if l.root != nil {
		if err := w.host.node.Inside(func() error {
			return l.root.Enter(func() (err error) {
				spec.Path, err = roots.LookPath(l.argv[0], l.dir, l.env)
				return err
			})
		}); err != nil {
			return nil, err
		}
		spec.Enter, spec.OnlyEnv, spec.Dir = l.root.Enter, true, cmp.Or(l.dir, "/")
	}
	p, err := w.host.node.StartIn(w.ns, w.host.procs, topology.GroupPods, spec)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (w *podNetwork) chained(pod *corev1.Pod) attachment {
	if w.host.plugin == nil || !w.addr.IsValid() {
		return nil
	}
	return cniCall{w.host.plugin, w.host.node.Run, pod, w.host.node.PodLink(pod.Name, w.addr), w.ns.Path()}
}

func (w *podNetwork) dial(ctx context.Context, address string) (net.Conn, error) {
	return w.ns.DialContext(ctx, "tcp", address)
}

func (w *podNetwork) hostPorts(ports []topology.HostPort) error {
	return w.host.node.AddHostPorts(ports...)
}

func (w *podNetwork) remove() error {
	if !w.addr.IsValid() {
		return nil
	}
	return errors.Join(w.host.node.RemoveHostPorts(w.addr), w.host.node.RemovePod(w.addr), w.ns.Close())
}

// exitCode parses ExitText: N of "exit status N", or 128 plus the signal, as container runtimes report it.
func exitCode(text string) int32 {
	var code int32
	if _, err := fmt.Sscanf(text, "exit status %d", &code); err == nil {
		return code
	}
	for sig := syscall.Signal(1); sig < 65; sig++ {
		if text == "signal: "+sig.String() || text == "signal: "+sig.String()+" (core dumped)" {
			return 128 + int32(sig)
		}
	}
	return 255
}

func hostPort(host string, port int) string { return net.JoinHostPort(host, fmt.Sprint(port)) }
