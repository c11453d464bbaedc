package replay

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// proxyPort is the default for a path without a port, if no container of the pod has one.
const proxyPort = "80"

// serveProxy forwards a GET to a pod (pods/NAME/proxy/PATH, NAME as [http:]NAME[:PORT]) and returns the response, as
// the real server does. A missing pod gets 404, a pod without an address 400, an unreachable one 503 in plain text.
// Unlike the real server it allows loopback addresses, which pods of tests have.
func (s *Server) serveProxy(w http.ResponseWriter, q *request) error {
	scheme, name, port, valid := utilnet.SplitSchemeNamePort(q.key.name)
	if !valid || scheme == "https" {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid pod request %q: the replay control plane passes on http:NAME:PORT", q.key.name))
	}
	s.mu.Lock()
	o, err := q.store.get(key{q.key.namespace, name})
	s.mu.Unlock()
	if err != nil {
		return err
	}
	address := o.fields["status.podIP"]
	if net.ParseIP(address) == nil {
		return apierrors.NewBadRequest("address not allowed")
	}
	if port == "" {
		port = portOf(o.content)
	}
	proxy := httputil.ReverseProxy{Transport: s.toPods, ErrorLog: discardLog,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL = &url.URL{Scheme: "http", Host: net.JoinHostPort(address, port), Path: "/" + q.rest, RawQuery: r.In.URL.RawQuery}
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, fmt.Sprintf("error trying to reach service: %v", err), http.StatusServiceUnavailable)
		}}
	proxy.ServeHTTP(w, q.Request)
	return nil
}

// portOf returns the port for a path without one: the first container port, or proxyPort.
func portOf(pod *unstructured.Unstructured) string {
	containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
	for _, c := range containers {
		container, _ := c.(map[string]any)
		ports, _, _ := unstructured.NestedSlice(container, "ports")
		for _, p := range ports {
			if declared, is := p.(map[string]any); is {
				return fmt.Sprint(declared["containerPort"])
			}
		}
	}
	return proxyPort
}

// discardLog drops the messages of ReverseProxy about clients that have disconnected.
var discardLog = log.New(io.Discard, "", 0)

// dialPods connects to pods with Server.Dial.
func (s *Server) dialPods(ctx context.Context, network, address string) (net.Conn, error) {
	if s.Dial != nil {
		return s.Dial(ctx, network, address)
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

// splitProxy splits a path into the API's part and the pod's part, which may have any length.
func splitProxy(path string) (own, rest string) {
	own, rest, found := strings.Cut(path, "/proxy/")
	if !found || !strings.Contains(own, "/pods/") {
		return path, ""
	}
	return own + "/proxy", rest
}
