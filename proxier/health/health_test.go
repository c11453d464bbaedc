package health

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

type clock struct{ now time.Time }

func (c *clock) Now() time.Time          { return c.now }
func (c *clock) advance(d time.Duration) { c.now = c.now.Add(d) }

func code(h http.Handler, path string) int {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code
}

func TestNode(t *testing.T) {
	const period = 30 * time.Second
	for _, test := range []struct {
		name                string
		do                  func(*Node, *clock)
		healthz, liv, ready int
	}{
		{"before the first pass", func(*Node, *clock) {}, 503, 503, 503},
		{"after the first pass", func(n *Node, _ *clock) { n.Updated() }, 200, 200, 200},
		{"idle for a day", func(n *Node, c *clock) { n.Updated(); c.advance(24 * time.Hour) }, 200, 200, 200},
		{"a pending change within the limit", func(n *Node, c *clock) { n.Updated(); n.Queued(); c.advance(2 * period) }, 200, 200, 200},
		{"a pending change past the limit", func(n *Node, c *clock) { n.Updated(); n.Queued(); c.advance(2*period + 1) }, 503, 503, 200},
		{"later changes do not reset the limit", func(n *Node, c *clock) {
			n.Updated()
			n.Queued()
			c.advance(2 * period)
			n.Queued()
			c.advance(1)
		}, 503, 503, 200},
		{"a pass that does not end", func(n *Node, c *clock) { n.Updated(); n.Queued(); n.Taken(); c.advance(2*period + 1) }, 503, 503, 200},
		{"a failed pass and one that took more changes", func(n *Node, c *clock) {
			n.Updated()
			n.Queued()
			n.Taken()
			c.advance(2*period + 1)
			n.Queued()
			n.Taken()
		}, 503, 503, 200},
		{"a change during a pass stays queued", func(n *Node, c *clock) {
			n.Queued()
			n.Taken()
			n.Queued()
			n.Updated()
			c.advance(2*period + 1)
		}, 503, 503, 200},
		{"ineligible node (KEP-3836)", func(n *Node, _ *clock) { n.Updated(); n.SetEligible(false) }, 503, 200, 200},
		{"eligible again", func(n *Node, _ *clock) { n.Updated(); n.SetEligible(false); n.SetEligible(true) }, 200, 200, 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := &clock{time.Unix(1e9, 0)}
			answered := map[string]int{}
			n := NewNode(period, c.Now, func(path string, code int) { answered[path] = code })
			test.do(n, c)
			if got := code(n.Handler(), "/healthz"); got != test.healthz {
				t.Errorf("/healthz is %d, want %d", got, test.healthz)
			}
			if got := code(n.Handler(), "/livez"); got != test.liv {
				t.Errorf("/livez is %d, want %d", got, test.liv)
			}
			if got := code(n.Handler(), "/readyz"); got != test.ready {
				t.Errorf("/readyz is %d, want %d", got, test.ready)
			}
			if diff := cmp.Diff(map[string]int{"/healthz": test.healthz, "/livez": test.liv, "/readyz": test.ready}, answered); diff != "" {
				t.Errorf("counted (-want +got):\n%s", diff)
			}
		})
	}
}

func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

func TestServices(t *testing.T) {
	healthy := true
	s := NewServices(func() bool { return healthy })
	defer s.Close()
	name, port := types.NamespacedName{Namespace: "shop", Name: "web"}, freePort(t)
	check := func(what string, wantCode int, wantBody string) {
		t.Helper()
		response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/any/path", port))
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		defer response.Body.Close()
		var got, want any
		if err := json.NewDecoder(response.Body).Decode(&got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(wantBody), &want); err != nil {
			t.Fatal(err)
		}
		weight := fmt.Sprint(want.(map[string]any)["localEndpoints"])
		if diff := cmp.Diff(want, got); diff != "" || response.StatusCode != wantCode || response.Header.Get("X-Load-Balancing-Endpoint-Weight") != weight {
			t.Errorf("%s: code %d, want %d, header %v, body (-want +got):\n%s", what, response.StatusCode, wantCode, response.Header, diff)
		}
	}
	set := func(local int) {
		t.Helper()
		s.Set(name, port, local)
		if err := s.Open(); err != nil {
			t.Fatal(err)
		}
	}
	set(2)
	check("two", 200, `{"service":{"namespace":"shop","name":"web"},"localEndpoints":2,"serviceProxyHealthy":true}`)
	set(0)
	check("none", 503, `{"service":{"namespace":"shop","name":"web"},"localEndpoints":0,"serviceProxyHealthy":true}`)
	set(1)
	healthy = false
	check("stale rules", 503, `{"service":{"namespace":"shop","name":"web"},"localEndpoints":1,"serviceProxyHealthy":false}`)
	healthy = true
	old := port
	port = freePort(t)
	set(1)
	check("on another port", 200, `{"service":{"namespace":"shop","name":"web"},"localEndpoints":1,"serviceProxyHealthy":true}`)
	s.Delete(name)
	for _, p := range []uint16{old, port} {
		if c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p)); err == nil {
			c.Close()
			t.Errorf("port %d is still open", p)
		}
	}
}

func TestUsedPortIsRetried(t *testing.T) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServices(func() bool { return true })
	defer s.Close()
	port := l.Addr().(*net.TCPAddr).Port
	s.Set(types.NamespacedName{Name: "web"}, uint16(port), 1)
	if err := s.Open(); err == nil {
		t.Error("a used port was opened")
	}
	if err := s.Open(); err == nil {
		t.Error("a used port was opened by the second Open")
	}
	l.Close()
	if err := s.Open(); err != nil {
		t.Errorf("the port is free: %v", err)
	}
	response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
	if err != nil || response.StatusCode != 200 {
		t.Errorf("response %v, error %v", response, err)
	}
}

// Services can exchange ports in one pass, in any order of Set.
func TestServicesExchangePorts(t *testing.T) {
	s := NewServices(func() bool { return true })
	defer s.Close()
	app, web := types.NamespacedName{Name: "app"}, types.NamespacedName{Name: "web"}
	one, two := freePort(t), freePort(t)
	for range 100 { // including servers that have just started
		s.Set(app, one, 1)
		s.Set(web, two, 1)
		if err := s.Open(); err != nil {
			t.Fatal(err)
		}
		s.Set(app, two, 1)
		s.Set(web, one, 1)
		if err := s.Open(); err != nil {
			t.Fatalf("after the exchange: %v", err)
		}
		s.Set(app, one, 1)
		s.Delete(web)
		if err := s.Open(); err != nil {
			t.Fatalf("after one Service took the other's port: %v", err)
		}
	}
}
