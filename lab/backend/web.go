package backend

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"
)

// Headers of every HTTP response.
const (
	HeaderPod         = "X-Hitless-Pod"
	HeaderNode        = "X-Hitless-Node"
	HeaderGeneration  = "X-Hitless-Generation"
	HeaderTerminating = "X-Hitless-Terminating-Ms" // absent before SIGTERM
	HeaderClient      = "X-Hitless-Client"         // address of the client as the pod sees it
)

func (s *server) web() *http.Server {
	routes := s.routes()
	return &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.setHeaders(w.Header(), r.RemoteAddr)
		if s.options.HTTPOverride != "" {
			override, err := s.override(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			r = override
		}
		routes.ServeHTTP(w, r)
	})}
}

func (s *server) setHeaders(h http.Header, client string) {
	h.Set(HeaderPod, s.id.Pod)
	h.Set(HeaderNode, s.id.Node)
	h.Set(HeaderGeneration, s.id.Generation)
	h.Set(HeaderClient, host(client))
	if ms := s.terminating(); ms > 0 {
		h.Set(HeaderTerminating, strconv.FormatInt(ms, 10))
	}
}

func (s *server) override(r *http.Request) (*http.Request, error) {
	to, err := url.Parse(s.options.HTTPOverride)
	if err != nil {
		return nil, fmt.Errorf("--http-override=%s: %w", s.options.HTTPOverride, err)
	}
	other := r.Clone(r.Context())
	other.Method, other.URL, other.Body = http.MethodGet, to, http.NoBody
	return other, nil
}

func (s *server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	// As in agnhost, this handler serves all other paths too.
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, "NOW: %v", time.Now()) })
	hostname := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, s.id.Pod) }
	mux.HandleFunc("/hostname", hostname)
	mux.HandleFunc("/hostName", hostname)
	mux.HandleFunc("/clientip", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RemoteAddr) })
	mux.HandleFunc("/serverport", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, s.options.HTTPPort) })
	mux.HandleFunc("/echo", echo)
	mux.HandleFunc("/header", header)
	mux.HandleFunc("/envvar", variable)
	mux.HandleFunc("/redirect", redirect)
	// Only /readyz fails during shutdown. agnhost answers 412 until its UDP server has started; this
	// backend does not, because all ports are open before the first response.
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("/readyz", s.ready)
	mux.HandleFunc("/exit", s.handleExit)
	mux.HandleFunc("/shutdown", func(http.ResponseWriter, *http.Request) { s.end(exitRequest{}) })
	for _, path := range []string{"/dial", "/shell", "/upload"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, path+" of agnhost netexec is not part of the lab's backend", http.StatusNotImplemented)
		})
	}
	return mux
}

func (s *server) ready(w http.ResponseWriter, _ *http.Request) {
	if s.terminating() > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, "shutting down")
		return
	}
	fmt.Fprint(w, "ok")
}

// code returns the parameter code, or absent if there is none.
func code(w http.ResponseWriter, r *http.Request, absent, low, high int) (int, bool) {
	text := r.FormValue("code")
	if text == "" {
		return absent, true
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		http.Error(w, fmt.Sprintf("code=%q: give a number from %d to %d", text, low, high), http.StatusBadRequest)
		return 0, false
	}
	return n, true
}

func echo(w http.ResponseWriter, r *http.Request) {
	status, ok := code(w, r, http.StatusOK, 200, 599)
	if !ok {
		return
	}
	w.WriteHeader(status)
	fmt.Fprint(w, r.FormValue("msg"))
}

func header(w http.ResponseWriter, r *http.Request) {
	if key := r.FormValue("key"); key != "" {
		fmt.Fprint(w, r.Header.Get(key))
		return
	}
	if err := json.NewEncoder(w).Encode(r.Header); err != nil {
		http.Error(w, "writing the request's header: "+err.Error(), http.StatusInternalServerError)
	}
}

func variable(w http.ResponseWriter, r *http.Request) {
	name := r.FormValue("var")
	if name == "" {
		http.Error(w, "the parameter var must name an environment variable", http.StatusBadRequest)
		return
	}
	value, set := os.LookupEnv(name)
	if !set {
		http.Error(w, fmt.Sprintf("the environment variable %q is not set", name), http.StatusInternalServerError)
		return
	}
	fmt.Fprint(w, value)
}

func redirect(w http.ResponseWriter, r *http.Request) {
	if status, ok := code(w, r, http.StatusFound, 300, 399); ok {
		http.Redirect(w, r, r.FormValue("location"), status)
	}
}

// handleExit handles /exit?code=N&wait=D&timeout=D: it waits, lets connections close for timeout, and exits with the
// code.
func (s *server) handleExit(w http.ResponseWriter, r *http.Request) {
	status, ok := code(w, r, 0, 0, 127)
	if !ok {
		return
	}
	request := exitRequest{code: status}
	var wait time.Duration
	for _, p := range []struct {
		name string
		to   *time.Duration
	}{{"wait", &wait}, {"timeout", &request.timeout}} {
		text := r.FormValue(p.name)
		if text == "" {
			continue
		}
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			http.Error(w, fmt.Sprintf("%s=%q: give a duration such as 500ms", p.name, text), http.StatusBadRequest)
			return
		}
		*p.to = d
	}
	if wait == 0 {
		s.end(request)
		return
	}
	time.AfterFunc(wait, func() { s.end(request) })
}

// end requests the exit; later requests are ignored.
func (s *server) end(request exitRequest) {
	select {
	case s.exit <- request:
	default:
	}
}
