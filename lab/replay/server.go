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

// DefaultKeep is how many events per resource a Server keeps for watches that resume, unless told otherwise.
const DefaultKeep = 10000

// Server is the API server. Make one with New; set the exported fields before the first request or write.
// Everything else is safe for concurrent use.
//
// Given the same writes in the same order, two servers hold and answer the same bytes: versions and uids are counted
// and timestamps come from Now.
type Server struct {
	// Now gives creation and deletion timestamps; their resolution is one second. New sets time.Now.
	Now func() time.Time
	// Keep is how many events per resource are kept; a watch that asks for older ones is answered with 410 Gone.
	Keep int
	// Dial opens connections to pods, for pods/proxy; those of this process's network when nil.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	toPods http.RoundTripper // by Dial

	mu      sync.Mutex
	stores  []*store
	version uint64 // the newest resource version; one count for all resources
	created uint64 // objects ever created, for uids
	named   uint64 // names ever generated

	delays   []*DelayWatches
	expiring []*ExpireNextWatch
	losses   []*loss
	away     []*Away
}

// New returns an empty server: no namespaces, no nodes, no Services.
func New() *Server {
	s := &Server{Now: time.Now, Keep: DefaultKeep, version: 1} // 0 means "any" to clients
	s.toPods = &http.Transport{DialContext: s.dialPods, DisableCompression: true, IdleConnTimeout: 90 * time.Second}
	for _, r := range resources() {
		s.stores = append(s.stores, &store{resource: r, objects: map[key]*object{}})
	}
	return s
}

// Serve answers requests on l over plain HTTP until ctx ends (then it returns nil) or l fails. When it returns, all
// connections are closed. TCP keep-alives are off: each would be a wake-up in idle virtual time.
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

// Ref names an object for in-process writers. Kind is as in manifests; "Event" is the core one.
type Ref struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"` // empty means "default" for namespaced kinds
	Name      string `json:"name"`
}

// String is the name as it appears in messages: Service default/web.
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// Apply creates the object, or replaces what is stored under its name: spec, labels and status alike, whatever the
// stored version (unless obj names a resourceVersion). An object without status keeps the stored one. Watches see what
// they would see of a write over the wire, and a write that changes nothing is none. obj is not kept; the result is a
// copy of what is stored now. Errors are API status errors (apierrors.IsConflict and so on).
func (s *Server) Apply(obj runtime.Object) (*unstructured.Unstructured, error) {
	u, err := unstructuredOf(obj)
	if err != nil {
		return nil, fmt.Errorf("applying an object: %w", err)
	}
	st := s.byGVK(u.GetAPIVersion(), u.GetKind())
	if st == nil {
		return nil, fmt.Errorf("applying %s: no such kind in %q; known are the resources of package replay", RefOf(u), u.GetAPIVersion())
	}
	if err := s.toStored(st, u, "default"); err != nil {
		return nil, fmt.Errorf("applying %s: %w", RefOf(u), err)
	}
	ref := RefOf(u)
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

// Warm encodes what is stored, so that whoever measures a client's start does not measure this server. Lists in protobuf are
// still encoded when they are asked for; clients of today ask for streams (sendInitialEvents).
func (s *Server) Warm() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.stores {
		for _, o := range st.sorted() {
			if _, err := o.encoded(st.resource, st.versions[0], protobufType); err != nil {
				return fmt.Errorf("encoding %s %s as protobuf: %w", st.kind, o.key.name, err)
			}
		}
	}
	return nil
}

// Delete deletes as a DELETE request with these options does: a pod on a node gets its grace period and stays until a
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

// RefOf names u.
func RefOf(u *unstructured.Unstructured) Ref {
	return Ref{Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName()}
}

// toStored checks u against the types of its own version and brings it to the stored one. A namespaced object that names
// no namespace gets the given one.
func (s *Server) toStored(st *store, u *unstructured.Unstructured, namespace string) error {
	if err := checkTypes(u); err != nil {
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
	for _, st := range s.stores {
		if st.kind == kind && !st.review {
			return st
		}
	}
	return nil
}

func (s *Server) byGVK(apiVersion, kind string) *store {
	for _, st := range s.stores {
		if st.hasKind(apiVersion, kind) {
			return st
		}
	}
	return nil
}

func (s *Server) byResource(group, version, plural string) *store {
	for _, st := range s.stores {
		if st.plural == plural && st.serves(group, version) {
			return st
		}
	}
	return nil
}

// tooLarge answers a client that knows a version which this server has not reached: it has seen another server. (The
// real one waits three seconds for that version before a list is answered so, and keeps a watch waiting; here nothing
// comes late.)
func tooLarge(asked, current uint64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", asked, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
	}}
	return err
}
