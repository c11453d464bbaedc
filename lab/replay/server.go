package replay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// DefaultKeep is the default of Server.Keep.
const DefaultKeep = 10000

// Server is the API server. New creates one; set the exported fields before the first request or write. Methods are
// safe for concurrent use.
//
// It is deterministic: versions and uids are counters and timestamps come from Now, so the same writes give the same
// responses.
type Server struct {
	// Now returns the time of creation and deletion timestamps, which have a resolution of one second. The default is
	// time.Now.
	Now func() time.Time
	// Keep is how many events per resource are kept; a watch from an older version gets 410 Gone.
	Keep int
	// Dial opens connections to pods for pods/proxy; the default uses the network of this process.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	toPods http.RoundTripper // by Dial

	registry sync.RWMutex // of stores; see served
	stores   []*store

	mu      sync.Mutex
	version uint64 // the newest resource version, common to all resources
	created uint64 // objects ever created, for uids
	named   uint64 // names ever generated

	delays   []*DelayWatches
	expiring []*ExpireNextWatch
	losses   []*loss
	away     []*Away
}

// New returns an empty server without namespaces, nodes or Services.
func New() *Server {
	s := &Server{Now: time.Now, Keep: DefaultKeep, version: 1} // 0 means "any" to clients
	s.toPods = &http.Transport{DialContext: s.dialPods, DisableCompression: true, IdleConnTimeout: 90 * time.Second}
	for _, r := range resources() {
		s.stores = append(s.stores, &store{resource: r, objects: map[key]*object{}})
	}
	return s
}

// Serve serves plain HTTP on l until ctx ends (then it returns nil) or l fails, and closes all connections. TCP
// keep-alives are off, because each would be a wake-up in idle virtual time.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler:     s.Handler(),
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetKeepAlive(false) // a failure costs wake-ups, not answers
			}
			return ctx
		},
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err := server.Serve(l)
	if ctx.Err() != nil && errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving the replay API on %s: %w", l.Addr(), err)
}

// Ref names an object for writers in this process. Kind is as in manifests; "Event" is the core kind.
type Ref struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"` // empty means "default" for namespaced kinds
	Name      string `json:"name"`
}

// String returns the name as in messages: Service default/web.
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// Apply creates the object or replaces the stored one: spec, labels and status, whatever the stored version (unless obj
// has a resourceVersion). An object without status keeps the stored status. A write without changes causes no event.
// Apply copies obj and returns a copy of the stored object. Errors are API status errors (apierrors.IsConflict and
// others).
func (s *Server) Apply(obj runtime.Object) (*unstructured.Unstructured, error) {
	u, err := unstructuredOf(obj)
	if err != nil {
		return nil, fmt.Errorf("applying an object: %w", err)
	}
	st := s.byGVK(u.GetAPIVersion(), u.GetKind())
	if st == nil {
		return nil, fmt.Errorf("applying %s: no such kind in %q; package replay lists the supported resources", refOf(u), u.GetAPIVersion())
	}
	if err := s.toStored(st, u, "default"); err != nil {
		return nil, fmt.Errorf("applying %s: %w", refOf(u), err)
	}
	ref := refOf(u)
	s.mu.Lock()
	defer s.mu.Unlock()
	var o *object
	if old, found := st.objects[key{u.GetNamespace(), u.GetName()}]; found {
		o, err = s.replace(st, old, u, everything)
	} else {
		o, err = s.create(st, u, everything)
	}
	if err != nil {
		return nil, fmt.Errorf("applying %s: %w", ref, err)
	}
	return o.content.DeepCopy(), nil
}

// Warm encodes the stored objects, so that measurements of a client's start exclude this work. Protobuf lists are still
// encoded per request; current clients use streaming lists (sendInitialEvents).
func (s *Server) Warm() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.served() {
		for _, o := range st.sorted() {
			if st.untyped {
				continue
			}
			if _, err := o.encoded(st.resource, st.versions[0], protobufType); err != nil {
				return fmt.Errorf("encoding %s %s as protobuf: %w", st.kind, o.key.name, err)
			}
		}
	}
	return nil
}

// Delete deletes as a DELETE request with these options does: a pod on a node stays for its grace period, until a
// Delete with GracePeriodSeconds 0.
func (s *Server) Delete(ref Ref, opts metav1.DeleteOptions) error {
	st := s.byKind(ref.Kind)
	if st == nil {
		return fmt.Errorf("deleting %s: no such kind", ref)
	}
	if st.namespaced && ref.Namespace == "" {
		ref.Namespace = "default"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, _, err := s.remove(st, key{ref.Namespace, ref.Name}, opts); err != nil {
		return fmt.Errorf("deleting %s: %w", ref, err)
	}
	return nil
}

// refOf returns the Ref of u.
func refOf(u *unstructured.Unstructured) Ref {
	return Ref{Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName()}
}

// toStored checks u against the types of its version and converts it to the stored version. A namespaced object without
// namespace gets the given one.
func (s *Server) toStored(st *store, u *unstructured.Unstructured, namespace string) error {
	if err := st.checkTypes(u); err != nil {
		return err
	}
	convert(st.resource, u, st.versions[0])
	switch {
	case !st.namespaced:
		u.SetNamespace("")
	case u.GetNamespace() == "":
		u.SetNamespace(namespace)
	}
	return nil
}

func (s *Server) byKind(kind string) *store {
	for _, st := range s.served() {
		if st.kind == kind && !st.review {
			return st
		}
	}
	return nil
}

func (s *Server) byGVK(apiVersion, kind string) *store {
	for _, st := range s.served() {
		if st.hasKind(apiVersion, kind) {
			return st
		}
	}
	return nil
}

func (s *Server) byResource(group, version, plural string) *store {
	for _, st := range s.served() {
		if st.plural == plural && st.serves(group, version) {
			return st
		}
	}
	return nil
}

// tooLarge returns the error for a resource version that this server has not reached, so that the client must have it
// from another server. (The real server waits 3 s before it returns this error for a list, and keeps a watch waiting.)
func tooLarge(asked, current uint64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", asked, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
	}}
	return err
}
