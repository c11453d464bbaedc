//go:build netns

package proxier

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// This test changes the network namespace of the whole process: unshare -rnm go test -tags netns ./proxier Without
// IPVS in the kernel it only checks the error; go test -tags lab ./suites/proxier runs it with IPVS.

const podAddr = "10.244.1.1"

// thinAPI serves one Service with one endpoint, and watches without events.
func thinAPI(t *testing.T) string {
	s := &source{pods: []string{podAddr}}
	slice := s.Slices(web)[0]
	slice.Name, slice.Namespace, slice.Labels = "web-1", web.Namespace, map[string]string{"kubernetes.io/service-name": web.Name}
	lists := map[string][]any{"/api/v1/services": {s.Service(web)}, "/apis/discovery.k8s.io/v1/endpointslices": {slice}, "/api/v1/nodes": {}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		items, known := lists[r.URL.Path]
		if !known {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") != "" {
			w.WriteHeader(http.StatusOK)
			if f, ok := w.(http.Flusher); ok {
				f.Flush()
			}
			<-r.Context().Done()
			return
		}
		if err := json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]string{"resourceVersion": "1"}, "items": items}); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// loopback brings lo up with the pod's address and starts a pod that replies there.
func loopback(t *testing.T) {
	t.Helper()
	lo := loopbackUp(t)
	addr, err := netlink.ParseAddr(podAddr + "/32")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrAdd(lo, addr); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netlink.AddrDel(lo, addr); err != nil {
			t.Error(err)
		}
	})
	l, err := net.Listen("tcp", podAddr+":8080")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			_, _ = c.Write([]byte("pod"))
			c.Close()
		}
	}()
}

// cleanUp removes all state of a proxier that another test left, and checks that the Service is not served.
func cleanUp(t *testing.T) {
	t.Helper()
	c := Command()
	c.SetArgs([]string{"--cleanup"})
	c.SetErr(io.Discard)
	if err := c.ExecuteContext(context.Background()); err != nil && !strings.Contains(err.Error(), "has no IPVS") {
		t.Fatalf("--cleanup: %v", err)
	}
	if got, err := answer(); err == nil {
		t.Fatalf("%q replies before the proxier was started", got)
	}
}

// program is the running command.
type program struct {
	end  context.CancelFunc
	done chan error
}

func run(t *testing.T, api string) program {
	ctx, cancel := context.WithCancel(context.Background())
	p := program{cancel, make(chan error, 1)}
	c := Command()
	c.SetArgs([]string{"--master=" + api, "--hostname-override=node-1", "--healthz-bind-address=127.0.0.1:10256", "--metrics-bind-address=127.0.0.1:10249"})
	c.SetErr(io.Discard)
	go func() { p.done <- c.ExecuteContext(ctx) }()
	return p
}

// waitHealthy waits until the program is healthy, and returns its error if it ends before.
func (p program) waitHealthy(t *testing.T) error {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		select {
		case err := <-p.done:
			return err
		case <-time.After(10 * time.Millisecond):
		}
		response, err := http.Get("http://127.0.0.1:10256/healthz")
		if err != nil {
			continue
		}
		response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return nil
		}
	}
	t.Fatal("waited 20 s for /healthz")
	return nil
}

func answer() (string, error) {
	c, err := net.DialTimeout("tcp", "10.96.0.10:80", 3*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	text, err := io.ReadAll(c)
	return string(text), err
}

func TestProgram(t *testing.T) {
	loopback(t)
	cleanUp(t)
	api := thinAPI(t)
	for _, life := range []string{"first", "second"} {
		p := run(t, api)
		if err := p.waitHealthy(t); err != nil {
			if strings.Contains(err.Error(), "has no IPVS") {
				t.Skipf("no IPVS in this kernel: %v", err)
			}
			t.Fatalf("the %s program ended: %v", life, err)
		}
		if got, err := answer(); got != "pod" || err != nil {
			t.Errorf("through the %s program: %q, %v", life, got, err)
		}
		if life == "second" {
			checkOnlyReads(t)
		}
		p.end()
		if err := <-p.done; err != nil {
			t.Errorf("the %s program ended with %v", life, err)
		}
		if got, err := answer(); got != "pod" || err != nil {
			t.Errorf("after the %s program: %q, %v", life, got, err)
		}
	}
}

// checkOnlyReads checks in the metrics that the second program only read the kernel.
func checkOnlyReads(t *testing.T) {
	t.Helper()
	response, err := http.Get("http://127.0.0.1:10249/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	reads := 0
	for line := range strings.Lines(string(text)) {
		switch counts := strings.HasPrefix(line, "hitless_proxier_kernel_operations_total"); {
		case counts && strings.Contains(line, `operation="read-`):
			reads++
		case counts:
			t.Errorf("the second program changed the kernel: %s", line)
		}
	}
	if reads == 0 {
		t.Errorf("the reads of the second program are not counted:\n%s", text)
	}
}
