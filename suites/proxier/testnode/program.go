package testnode

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ToolPath is the PATH of the node's programs; it contains modprobe.
const ToolPath = "/usr/sbin:/usr/bin:/sbin:/bin"

const waitTimeout = 60 * time.Second

// Program is a running program of the node.
type Program struct {
	cmd    *exec.Cmd
	output bytes.Buffer
	ended  chan error
}

func start(t *testing.T, path, name string, args ...string) *Program {
	t.Helper()
	p := &Program{cmd: exec.Command(name, args...), ended: make(chan error, 1)}
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	p.cmd.Env = append(os.Environ(), "PATH="+path, "GOMAXPROCS=2")
	Must(t, p.cmd.Start())
	go func() { p.ended <- p.cmd.Wait() }()
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

// Stop terminates the program with SIGTERM and waits for its end.
func (p *Program) Stop(t *testing.T) {
	t.Helper()
	Must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	<-p.ended
}

// Bundled starts the bundled proxier and waits until it is ready.
func (n *Node) Bundled(t *testing.T, args ...string) *Program {
	t.Helper()
	p := start(t, ToolPath, "/usr/bin/hitless", append([]string{"proxier"}, n.Args(args...)...)...)
	p.WaitUntil(t, "the proxier", func() bool { return status("/readyz") == http.StatusOK })
	return p
}

// KubeProxy starts the unmodified kube-proxy in a mode, with a PATH for its tools, and waits until it is healthy.
func (n *Node) KubeProxy(t *testing.T, path, mode string, args ...string) *Program {
	t.Helper()
	own := []string{"--proxy-mode=" + mode, "--conntrack-max-per-core=0", "--conntrack-min=0", "--conntrack-tcp-timeout-established=0",
		"--conntrack-tcp-timeout-close-wait=0"}
	p := start(t, path, "/usr/bin/kube-proxy", n.Args(append(own, args...)...)...)
	p.WaitUntil(t, "kube-proxy in mode "+mode+" to be healthy", func() bool { return status("/healthz") == http.StatusOK })
	return p
}

// Args returns the common flags of all proxies on the node, and more. A flag in more replaces the common one, because the bundled
// proxier refuses a flag that is given twice.
func (n *Node) Args(more ...string) []string {
	common := []string{"--master=" + n.API, "--hostname-override=" + NodeName, "--cluster-cidr=10.244.0.0/16"}
	common = slices.DeleteFunc(common, func(flag string) bool {
		name, _, _ := strings.Cut(flag, "=")
		return slices.ContainsFunc(more, func(m string) bool { return strings.HasPrefix(m, name+"=") })
	})
	return append(common, more...)
}

// status requests a health path on this thread, which is in the node's namespace. An HTTP client would use other
// threads.
func status(path string) int {
	conn, err := net.DialTimeout("tcp", "127.0.0.1:10256", 5*time.Second)
	if err != nil {
		return 0
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return 0
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.0\r\n\r\n", path)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	return response.StatusCode
}

// WaitUntil waits for a condition for up to a minute. A failure includes the program's output.
func (p *Program) WaitUntil(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitTimeout); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s; output of the program: %s", waitTimeout, what, p.output.String())
		}
		select {
		case err := <-p.ended:
			t.Fatalf("waiting for %s: the program ended with %v: %s", what, err, p.output.String())
		default:
		}
	}
}
