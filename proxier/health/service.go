package health

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/proxier/desired"
)

// Services are the servers of healthCheckNodePorts. They report to load balancers whether this node has endpoints of
// a Service. A Services is safe for concurrent use.
type Services struct {
	healthy func() bool
	mu      sync.Mutex
	checks  map[types.NamespacedName]*serviceCheck
}

// NewServices returns a set without servers. healthy reports whether the proxier keeps up: with outdated rules no
// node should be chosen (kubernetes#111661).
func NewServices(healthy func() bool) *Services {
	return &Services{healthy: healthy, checks: map[types.NamespacedName]*serviceCheck{}}
}

type serviceCheck struct {
	name     types.NamespacedName
	port     uint16
	local    atomic.Int64
	healthy  func() bool
	listener net.Listener // nil until the port is open
	server   *http.Server
}

// Set sets a Service's port and its number of ready local endpoints. A new port is opened by the next Open, so that
// Services can exchange ports in any order.
func (s *Services) Set(name types.NamespacedName, port uint16, local int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.checks[name]
	if c == nil || c.port != port {
		if c != nil {
			c.close()
		}
		c = &serviceCheck{name: name, port: port, healthy: s.healthy}
		s.checks[name] = c
	}
	c.local.Store(int64(local))
}

// Delete stops the server of a Service, if it exists.
func (s *Services) Delete(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.checks[name]; c != nil {
		c.close()
		delete(s.checks, name)
	}
}

// Open opens the ports that are not open yet. It must be retried after an error.
func (s *Services) Open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, name := range slices.SortedFunc(maps.Keys(s.checks), desired.CompareNames) {
		if c := s.checks[name]; c.listener == nil {
			errs = append(errs, c.open())
		}
	}
	return errors.Join(errs...)
}

// Close stops all servers.
func (s *Services) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.checks {
		c.close()
	}
	clear(s.checks)
}

func (c *serviceCheck) open() error {
	listener, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(int(c.port))))
	if err != nil {
		return fmt.Errorf("opening healthCheckNodePort %d of Service %v: %w", c.port, c.name, err)
	}
	c.listener, c.server = listener, &http.Server{Handler: c, ReadHeaderTimeout: 5 * time.Second}
	go serve(c.server, listener)
	return nil
}

// serve ends when the server is closed or its listener fails; Open could not repair the latter.
func serve(s *http.Server, l net.Listener) { _ = s.Serve(l) }

// close releases the port before it returns. http.Server.Close does not close the listener of a server that has just
// started.
func (c *serviceCheck) close() {
	if c.listener != nil {
		_ = c.listener.Close()
		_ = c.server.Close()
	}
}

type serviceResponse struct {
	Service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"service"`
	LocalEndpoints      int64 `json:"localEndpoints"`
	ServiceProxyHealthy bool  `json:"serviceProxyHealthy"`
}

// ServeHTTP replies to every path, as kube-proxy does.
func (c *serviceCheck) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	var answer serviceResponse
	answer.Service.Namespace, answer.Service.Name = c.name.Namespace, c.name.Name
	answer.LocalEndpoints, answer.ServiceProxyHealthy = c.local.Load(), c.healthy()
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.FormatInt(answer.LocalEndpoints, 10))
	writeJSON(w, answer.LocalEndpoints > 0 && answer.ServiceProxyHealthy, answer)
}

// Serve serves a handler at an address until stop is called. An empty address serves nothing.
func Serve(addr string, h http.Handler) (stop func(), err error) {
	if strings.TrimSpace(addr) == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", addr, err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	go serve(s, listener)
	return func() { _ = s.Close() }, nil
}
