//go:build unix

package probes

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/testfiles"
)

// serverVariable makes the test binary a backend for a benchmark, so that the server's CPU is not counted. Its value is
// the address to listen on.
const serverVariable = "HITLESS_TEST_BACKEND"

// helpers are what the test binary does instead of tests, by a variable of its environment.
var helpers = map[string]func(){}

func TestMain(m *testing.M) {
	if os.Getenv(serverVariable) != "" {
		serveUntilInputEnds()
		return
	}
	for variable, run := range helpers {
		if os.Getenv(variable) != "" {
			run()
			return
		}
	}
	if err := prepare(); err != nil {
		fmt.Println("preparing:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func serveUntilInputEnds() {
	listener, err := net.Listen("tcp", os.Getenv(serverVariable))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(listener.Addr())
	go serve(listener, answer("web-1", "node-1"))
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// answer returns the answer of a backend.
func answer(pod, node string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-Hitless-Pod: %s\r\nX-Hitless-Node: %s\r\n"+
		"X-Hitless-Generation: abc\r\nContent-Length: %d\r\n\r\n%s", pod, node, len(pod), pod)
}

// serve sends the text to each connection after its request, and waits for the client to close.
func serve(listener net.Listener, text string) {
	serveOnce(listener, func(c *net.TCPConn) {
		if _, err := io.WriteString(c, text); err == nil {
			_, _ = io.Copy(io.Discard, c)
		}
	})
}

// serveOnce reads one request from each connection and calls then.
func serveOnce(listener net.Listener, then func(c *net.TCPConn)) {
	for {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				then(c.(*net.TCPConn))
			}
		}()
	}
}

// listen returns a loopback address with a server. Without one it refuses connections.
func listen(t testing.TB, run func(net.Listener)) netip.AddrPort {
	t.Helper()
	if run == nil {
		return testfiles.Refusing(t)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go run(listener)
	return netip.MustParseAddrPort(listener.Addr().String())
}

// backendProcess starts a backend process in the caller's network namespace.
func backendProcess(t testing.TB, address string) (netip.AddrPort, error) {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), serverVariable+"="+address)
	in, err := c.StdinPipe()
	if err != nil {
		return netip.AddrPort{}, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return netip.AddrPort{}, err
	}
	if err := c.Start(); err != nil {
		return netip.AddrPort{}, err
	}
	t.Cleanup(func() { in.Close(); _ = c.Wait() })
	text, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("starting a backend: %w", err)
	}
	return netip.ParseAddrPort(strings.TrimSpace(text))
}
