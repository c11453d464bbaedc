package backend

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var someone = Identity{Pod: "web-1", Node: "node-2", Generation: "abc"}

// testServer is a backend on ports that the kernel picked.
type testServer struct {
	web, udp, tcp string
	terminate     chan os.Signal
	ended         chan int
}

func run(t *testing.T, o Options) *testServer {
	t.Helper()
	s := newServer(o, someone)
	l, err := s.listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := &testServer{terminate: make(chan os.Signal, 2), ended: make(chan int, 1)}
	r.web = local(l.http.Addr())
	if l.udp != nil {
		r.udp = local(l.udp.LocalAddr())
	}
	if l.tcp != nil {
		r.tcp = local(l.tcp.Addr())
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); l.close() })
	go func() {
		code, err := s.serve(ctx, l, r.terminate)
		l.close()
		if err != nil {
			code = -1
		}
		r.ended <- code
	}()
	return r
}

func local(a net.Addr) string {
	_, port, _ := net.SplitHostPort(a.String())
	return net.JoinHostPort("127.0.0.1", port)
}

func (r *testServer) get(t *testing.T, path string) (int, string, http.Header) {
	t.Helper()
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Get("http://" + r.web + path)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	return resp.StatusCode, string(body), resp.Header
}

func (r *testServer) end(t *testing.T) int {
	t.Helper()
	select {
	case code := <-r.ended:
		return code
	case <-time.After(10 * time.Second):
		t.Fatal("the backend did not end")
		return 0
	}
}

func TestPathsMatchAgnhost(t *testing.T) {
	t.Setenv("SOME", "thing")
	r := run(t, Options{HTTPPort: 0, UDPPort: Off, TCPPort: Off})
	tests := []struct {
		path   string
		status int
		body   string // "" for any
	}{
		{"/hostname", 200, "web-1"},
		{"/hostName", 200, "web-1"},
		{"/healthz", 200, ""},
		{"/readyz", 200, "ok"},
		{"/echo?msg=hi%20there", 200, "hi there"},
		{"/echo?msg=busy&code=503", 503, "busy"},
		{"/echo?msg=x&code=many", 400, ""},
		{"/header?key=User-Agent", 200, "Go-http-client/1.1"},
		{"/envvar?var=SOME", 200, "thing"},
		{"/envvar", 400, ""},
		{"/envvar?var=SOME_THAT_IS_NOT", 500, ""},
		{"/redirect?location=/echo%3Fmsg=x&code=307", 307, ""},
		{"/shell?cmd=id", 501, ""},
		{"/exit?code=128", 400, ""},
		{"/exit?code=1&wait=soon", 400, ""},
	}
	for _, tt := range tests {
		status, body, h := r.get(t, tt.path)
		if status != tt.status || tt.body != "" && body != tt.body {
			t.Errorf("%s: %d %q, want %d %q", tt.path, status, body, tt.status, tt.body)
		}
		got := Identity{h.Get(HeaderPod), h.Get(HeaderNode), h.Get(HeaderGeneration)}
		if diff := cmp.Diff(someone, got); diff != "" {
			t.Errorf("%s: identity (-want +got):\n%s", tt.path, diff)
		}
		if client := h.Get(HeaderClient); client != "127.0.0.1" {
			t.Errorf("%s: %s: %q", tt.path, HeaderClient, client)
		}
		if ms := h.Get(HeaderTerminating); ms != "" {
			t.Errorf("%s: %s: %s without SIGTERM", tt.path, HeaderTerminating, ms)
		}
	}
	for _, path := range []string{"/", "/anything"} {
		if status, body, _ := r.get(t, path); status != 200 || !strings.HasPrefix(body, "NOW: ") {
			t.Errorf("%s: %d %q", path, status, body)
		}
	}
	if _, body, _ := r.get(t, "/clientip"); !strings.HasPrefix(body, "127.0.0.1:") {
		t.Errorf("/clientip: %q", body)
	}
}

func TestServesDuringDelayShutdown(t *testing.T) {
	const delay = 2 * time.Second // three requests take place meanwhile, also on a busy machine
	r := run(t, Options{UDPPort: 0, TCPPort: Off, DelayShutdown: delay})
	begin := time.Now()
	r.terminate <- syscall.SIGTERM
	var h http.Header
	for h.Get(HeaderTerminating) == "" { // until the signal was taken
		_, _, h = r.get(t, "/hostname")
	}
	first, err := strconv.Atoi(h.Get(HeaderTerminating))
	if err != nil || first < 1 {
		t.Errorf("%s: %q, want at least 1", HeaderTerminating, h.Get(HeaderTerminating))
	}
	if status, _, _ := r.get(t, "/healthz"); status != 200 {
		t.Errorf("/healthz while terminating: %d, want 200", status)
	}
	if status, _, _ := r.get(t, "/readyz"); status != 503 {
		t.Errorf("/readyz while terminating: %d, want 503", status)
	}
	r.terminate <- syscall.SIGTERM // a second one changes nothing
	if code := r.end(t); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if took := time.Since(begin); took < delay {
		t.Errorf("ended %s after SIGTERM, want at least %s", took, delay)
	}
	if _, err := net.Dial("tcp", r.web); err == nil {
		t.Error("the port is still open after the end")
	}
}

func TestExitRequests(t *testing.T) {
	tests := []struct {
		name string
		ask  func(*testServer)
		code int
	}{
		{"SIGTERM without a delay", func(r *testServer) { r.terminate <- syscall.SIGTERM }, 0},
		{"/exit", func(r *testServer) { requestUnchecked(r, "/exit?code=3") }, 3},
		{"/exit with wait and timeout", func(r *testServer) { requestUnchecked(r, "/exit?code=4&wait=10ms&timeout=1s") }, 4},
		{"/shutdown", func(r *testServer) { requestUnchecked(r, "/shutdown") }, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := run(t, Options{UDPPort: Off, TCPPort: Off})
			tt.ask(r)
			if code := r.end(t); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
		})
	}
}

// requestUnchecked requests a path; the backend may exit before its response.
func requestUnchecked(r *testServer, path string) {
	if resp, err := http.Get("http://" + r.web + path); err == nil {
		resp.Body.Close()
	}
}

func TestRawCommands(t *testing.T) {
	t.Setenv("SOME", "Thing")
	r := run(t, Options{UDPPort: 0, TCPPort: 0})
	udp, err := net.Dial("udp", r.udp)
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	tcp, err := net.Dial("tcp", r.tcp)
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	lines := bufio.NewReader(tcp)
	tests := []struct{ ask, udp, tcp string }{
		{"hostname", "web-1", "web-1"},
		{"hostName\n", "web-1", "web-1"},
		{"identity", "web-1 node-2 abc 127.0.0.1 0", "web-1 node-2 abc 127.0.0.1 0"},
		{"attempt 1/42", "1/42 web-1 node-2 abc 127.0.0.1 0", "1/42 web-1 node-2 abc 127.0.0.1 0"},
		{"echo Hello you", "hello you", "hello you"},
		{"envvar SOME", "Thing", "Thing"},
		{"clientip", udp.LocalAddr().String(), tcp.LocalAddr().String()},
	}
	for _, tt := range tests {
		fmt.Fprint(udp, "nonsense")
		fmt.Fprint(udp, tt.ask)
		buf := make([]byte, 100)
		if err := udp.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := udp.Read(buf)
		if got := string(buf[:n]); err != nil || got != tt.udp {
			t.Errorf("udp %q: %q, %v, want %q", tt.ask, got, err, tt.udp)
		}
		fmt.Fprintf(tcp, "nonsense\n%s\n", strings.TrimSpace(tt.ask))
		if got, err := lines.ReadString('\n'); err != nil || strings.TrimSpace(got) != tt.tcp {
			t.Errorf("tcp %q: %q, %v, want %q", tt.ask, got, err, tt.tcp)
		}
	}
}

func TestOverride(t *testing.T) {
	r := run(t, Options{UDPPort: Off, TCPPort: Off, HTTPOverride: "/echo?msg=fixed&code=404"})
	for _, path := range []string{"/", "/healthz", "/hostname"} {
		if status, body, _ := r.get(t, path); status != 404 || body != "fixed" {
			t.Errorf("%s: %d %q, want 404 \"fixed\"", path, status, body)
		}
	}
}

func TestPortInUse(t *testing.T) {
	r := run(t, Options{UDPPort: Off, TCPPort: Off})
	_, port, _ := net.SplitHostPort(r.web)
	taken, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Serve(t.Context(), Options{HTTPPort: taken, UDPPort: Off, TCPPort: Off}, someone, nil); err == nil ||
		!strings.Contains(err.Error(), port) {
		t.Errorf("error %v, want one that names port %s", err, port)
	}
}

func TestCommandTakesAgnhostFlags(t *testing.T) {
	c, rest, err := Command().Find([]string{"netexec", "--http-port=80"})
	if err != nil || c.Name() != "netexec" {
		t.Fatalf("netexec is not a subcommand: %v", err)
	}
	flags := append(rest, "--udp-port", "81", "--delay-shutdown=10", "--http-override", "/echo?msg=x", "--tcp-port=-1")
	if err := c.ParseFlags(flags); err != nil {
		t.Error(err)
	}
	bad := Command()
	bad.SetArgs([]string{"netexec", "--delay-shutdown=-1"})
	bad.SetOut(io.Discard)
	bad.SetErr(io.Discard)
	if err := bad.Execute(); err == nil {
		t.Error("--delay-shutdown=-1 was accepted")
	}
}
