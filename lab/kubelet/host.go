package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"

	"github.com/hitless/hitless/lab/procs"
	"github.com/hitless/hitless/lab/topology"
)

// host is the node as the kubelet needs it; nodeHost is the real one.
type host interface {
	// sandbox makes the network of a pod; an invalid address stands for the node's own network.
	sandbox(pod string, addr netip.Addr) (sandbox, error)
	// get asks a URL with a literal address from the node and returns the status code.
	get(ctx context.Context, url string, header http.Header) (int, error)
	// connect opens and closes a TCP connection from the node.
	connect(ctx context.Context, address string) error
}

// sandbox is the network of a pod.
type sandbox interface {
	start(name string, argv, env []string) (process, error)
	remove() error
}

// process is a started program; *procs.Process is one.
type process interface {
	Done() <-chan struct{}
	ExitText() string
	Signal(syscall.Signal) error
}

type nodeHost struct {
	node  *topology.Node
	procs *procs.Supervisor
}

func (h *nodeHost) sandbox(pod string, addr netip.Addr) (sandbox, error) {
	if !addr.IsValid() {
		return &wired{host: h, ns: h.node.Namespace}, nil
	}
	ns, err := h.node.AddPod(pod, addr)
	if err != nil {
		return nil, err
	}
	return &wired{host: h, ns: ns, addr: addr}, nil
}

func (h *nodeHost) get(ctx context.Context, url string, header http.Header) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	req.Header = header
	// A new connection for each probe, as the kubelet makes; redirects are not followed and count as success.
	client := http.Client{
		Transport:     &http.Transport{DialContext: h.node.DialContext, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

func (h *nodeHost) connect(ctx context.Context, address string) error {
	conn, err := h.node.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// wired is a pod's namespace, or the node's own, which has no wire to remove.
type wired struct {
	host *nodeHost
	ns   *topology.Namespace
	addr netip.Addr
}

func (w *wired) start(name string, argv, env []string) (process, error) {
	p, err := w.host.procs.Start(procs.Spec{Name: name, Path: argv[0], Args: argv[1:], Env: env, Enter: w.ns.Enter})
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (w *wired) remove() error {
	if !w.addr.IsValid() {
		return nil
	}
	return errors.Join(w.host.node.RemovePod(w.addr), w.ns.Close())
}

// exitCode is the code in an ExitText: N of "exit status N", 128 and the signal for a program that a signal ended, as
// container runtimes report it.
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
