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

// proxyPort is where a pod is asked when the path names no port: the first of its containers' that has one, or 80.
const proxyPort = "80"

// serveProxy passes a GET on to a pod (pods/NAME/proxy/PATH, NAME as [http:]NAME[:PORT]) and its answer back, as the real server
// does: a pod that is not there is 404, one without an address 400, one that cannot be reached 503 with plain words, since
// that is not the API server's own answer. Addresses of the loopback, which the real one refuses, are asked: pods of tests are there.
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
	proxy := httputil.ReverseProxy{Transport: s.toPods, ErrorLog: quiet,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL = &url.URL{Scheme: "http", Host: net.JoinHostPort(address, port), Path: "/" + q.rest, RawQuery: r.In.URL.RawQuery}
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, fmt.Sprintf("error trying to reach service: %v", err), http.StatusServiceUnavailable)
		}}
	proxy.ServeHTTP(w, q.Request)
	return nil
}

// portOf is the port of a pod that is meant when none is named.
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

// quiet takes what a ReverseProxy has to say of clients that went away.
var quiet = log.New(io.Discard, "", 0)

// dialPods reaches pods by Server.Dial.
func (s *Server) dialPods(ctx context.Context, network, address string) (net.Conn, error) {
	if s.Dial != nil {
		return s.Dial(ctx, network, address)
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

// splitProxy takes the part of a path that is the pod's own business off, if it has one: it may be of any length.
func splitProxy(path string) (own, rest string) {
	own, rest, found := strings.Cut(path, "/proxy/")
	if !found || !strings.Contains(own, "/pods/") {
		return path, ""
	}
	return own + "/proxy", rest
}
