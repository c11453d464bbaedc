package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// Port is the port of the kubelet's HTTPS server.
const Port = 10250

// Server are the files of the kubelet's HTTPS server: its certificate and key, and the authority of its clients' certificates. It serves the
// API server only: exec, attach, port-forward, logs and the list of pods.
type Server struct{ Certificate, Key, ClientCA string }

func (s Server) config() (*tls.Config, error) {
	own, err := tls.LoadX509KeyPair(s.Certificate, s.Key)
	if err != nil {
		return nil, fmt.Errorf("reading the kubelet's certificate: %w", err)
	}
	text, err := os.ReadFile(s.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("reading the authority of the kubelet's clients: %w", err)
	}
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("reading the authority of the kubelet's clients: %s has no certificate", s.ClientCA)
	}
	return &tls.Config{Certificates: []tls.Certificate{own}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}, nil
}

// serve runs the HTTPS server until ctx ends.
func (k *kubelet) serve(ctx context.Context) error {
	config, err := k.Workloads.Server.config()
	if err != nil {
		return err
	}
	listener, err := k.Node.Listen(ctx, "tcp", hostPort(k.Node.Addr.String(), Port))
	if err != nil {
		return fmt.Errorf("listening for the API server: %w", err)
	}
	server := &http.Server{Handler: k.routes(), TLSConfig: config, ReadHeaderTimeout: streamTimeout,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the API server: %w", err)
	}
	return nil
}

// streamTimeout bounds the time until a client has opened its streams; idleTimeout is that of a kubelet.
const (
	streamTimeout = remotecommand.DefaultStreamCreationTimeout
	idleTimeout   = 4 * time.Hour
)

func (k *kubelet) routes() http.Handler {
	mux := http.NewServeMux()
	for path, handle := range map[string]http.HandlerFunc{
		"/exec/{namespace}/{pod}/{container}":              k.serveExec,
		"/exec/{namespace}/{pod}/{uid}/{container}":        k.serveExec,
		"/attach/{namespace}/{pod}/{container}":            k.serveAttach,
		"/attach/{namespace}/{pod}/{uid}/{container}":      k.serveAttach,
		"/portForward/{namespace}/{pod}":                   k.servePortForward,
		"/portForward/{namespace}/{pod}/{uid}":             k.servePortForward,
		"GET /containerLogs/{namespace}/{pod}/{container}": k.serveLogs,
		"GET /pods":    k.servePods,
		"GET /healthz": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") },
	} {
		mux.HandleFunc(path, handle)
	}
	if k.Procs != nil { // the logs of the lab's programs are the node's
		mux.Handle("GET /logs/", http.StripPrefix("/logs/", http.FileServer(http.Dir(filepath.Dir(k.Procs.LogFile(k.name))))))
	}
	return mux
}

// requested finds the running container of a request; nil after an error has been answered.
func (k *kubelet) requested(w http.ResponseWriter, r *http.Request) *containerRun {
	p := k.podOf(r.PathValue("namespace"), r.PathValue("pod"))
	if p == nil {
		http.Error(w, fmt.Sprintf("no pod %s/%s is on %s", r.PathValue("namespace"), r.PathValue("pod"), k.name), http.StatusNotFound)
		return nil
	}
	found := make(chan *containerRun, 1)
	p.post(func() {
		for _, c := range p.all() {
			if c.spec.Name == r.PathValue("container") {
				found <- c.run
			}
		}
		close(found)
	})
	select {
	case run := <-found:
		if run != nil {
			return run
		}
	case <-p.done:
	}
	http.Error(w, fmt.Sprintf("container %s of pod %s is not running", r.PathValue("container"), p.name), http.StatusNotFound)
	return nil
}

// podOf returns the newest pod of a name; nil without one.
func (k *kubelet) podOf(namespace, name string) *pod {
	k.naming.Lock()
	defer k.naming.Unlock()
	return k.named[namespace+"/"+name]
}

// streamed returns the running container of a request and what the client wants of its streams. Without the first, it has answered.
func (k *kubelet) streamed(w http.ResponseWriter, r *http.Request, command string) (*containerRun, *remotecommand.Options) {
	run := k.requested(w, r)
	if run == nil {
		return nil, nil
	}
	options, err := remotecommand.NewOptions(r)
	if err == nil && options.TTY {
		err = errors.New("the lab's kubelet has no terminals: " + command + " without --tty")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil, nil
	}
	return run, options
}

func (k *kubelet) serveExec(w http.ResponseWriter, r *http.Request) {
	run, options := k.streamed(w, r, "exec")
	if run == nil {
		return
	}
	remotecommand.ServeExec(w, r, executor{run}, r.PathValue("pod"), r.PathValue("uid"), r.PathValue("container"), r.URL.Query()["command"], options,
		idleTimeout, streamTimeout, remotecommand.SupportedStreamingProtocols)
}

func (k *kubelet) serveAttach(w http.ResponseWriter, r *http.Request) {
	run, options := k.streamed(w, r, "attach")
	if run == nil {
		return
	}
	remotecommand.ServeAttach(w, r, executor{run}, r.PathValue("pod"), r.PathValue("uid"), r.PathValue("container"), options,
		idleTimeout, streamTimeout, remotecommand.SupportedStreamingProtocols)
}

func (k *kubelet) servePortForward(w http.ResponseWriter, r *http.Request) {
	p := k.podOf(r.PathValue("namespace"), r.PathValue("pod"))
	if p == nil {
		http.Error(w, fmt.Sprintf("no pod %s/%s is on %s", r.PathValue("namespace"), r.PathValue("pod"), k.name), http.StatusNotFound)
		return
	}
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, forwarder{p}, p.name, r.PathValue("uid"), options, idleTimeout, streamTimeout, portforward.SupportedProtocols)
}

func (k *kubelet) servePods(w http.ResponseWriter, _ *http.Request) {
	k.naming.Lock()
	list := corev1.PodList{Items: []corev1.Pod{}}
	for _, p := range k.named {
		object, _ := p.updates.take()
		list.Items = append(list.Items, *object)
	}
	k.naming.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list) // the client has gone
}
