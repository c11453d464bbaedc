package replay

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// request is a parsed request for objects.
type request struct {
	*http.Request
	store       *store
	version     string // the API version that the path names
	media       string // media type of the response
	partial     bool   // the client gets metadata only
	key         key    // name is empty for the collection; namespace is empty for all namespaces
	subresource string
	rest        string // of the path below subresource proxy
}

// part returns the part of the object that the request may write.
func (q *request) part() part {
	if q.subresource == "status" {
		return onlyStatus
	}
	return allButStatus
}

// Handler answers the Kubernetes API.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		away := s.isAway(clientOf(r))
		s.mu.Unlock()
		if away {
			panic(http.ErrAbortHandler) // net/http closes the connection
		}
		own, rest := splitProxy(r.URL.Path)
		path := strings.Split(strings.Trim(own, "/"), "/")
		if r.Method == http.MethodGet && s.discover(w, path) {
			return
		}
		media, err := negotiate(r.Header.Get("Accept"))
		if err != nil {
			writeError(w, jsonType, err)
			return
		}
		q, err := s.route(r, path, media)
		if err == nil {
			q.rest = rest
			err = s.answer(w, q)
		}
		if err != nil {
			writeError(w, media, err)
		}
	})
}

// route parses a path. Unknown paths get the real server's 404.
func (s *Server) route(r *http.Request, path []string, media string) (*request, error) {
	q := &request{Request: r, media: media}
	group, version, rest := splitAPI(path)
	// namespaces/NAME/status is a subresource of the Namespace; other paths below it are objects in the namespace.
	if len(rest) >= 3 && rest[0] == "namespaces" && rest[2] != "status" {
		q.key.namespace, rest = rest[1], rest[2:]
	}
	if len(rest) == 0 || len(rest) > 3 {
		return nil, notFound(r)
	}
	q.store, q.version = s.byResource(group, version, rest[0]), version
	if q.store != nil && q.store.untyped {
		var err error
		if q.partial, err = negotiateUntyped(r.Header.Get("Accept")); err != nil {
			return nil, err
		}
		q.media = jsonType
	}
	if len(rest) > 1 {
		q.key.name = rest[1]
	}
	if len(rest) > 2 {
		q.subresource = rest[2]
	}
	st := q.store
	if st == nil || !st.has(q.subresource) || !st.namespaced && q.key.namespace != "" ||
		st.namespaced && q.key.namespace == "" && q.key.name != "" {
		return nil, notFound(r)
	}
	return q, nil
}

func notFound(r *http.Request) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, strings.ToLower(r.Method), schema.GroupResource{}, "",
		"the replay control plane has nothing at "+r.URL.Path, 0, false)
}

// answer executes the request and writes the response, unless it returns an error.
func (s *Server) answer(w http.ResponseWriter, q *request) error {
	one := q.key.name != ""
	if q.subresource == "proxy" { // the query is the pod's
		if q.Method == http.MethodGet {
			return s.serveProxy(w, q)
		}
		return apierrors.NewMethodNotSupported(q.store.gr(), strings.ToLower(q.Method))
	}
	if q.URL.Query().Get("dryRun") != "" {
		return apierrors.NewBadRequest("dryRun is not known to the replay control plane; nothing was written")
	}
	switch {
	case q.store.review && q.Method == http.MethodPost && !one:
		return s.review(w, q)
	case q.store.review:
	case q.subresource == "eviction" && q.Method == http.MethodPost:
		return s.serveEviction(w, q)
	case q.subresource == "eviction":
	case q.Method == http.MethodGet && one:
		return s.serveGet(w, q)
	case q.Method == http.MethodGet:
		return s.serveCollection(w, q)
	case q.Method == http.MethodPost && !one:
		return s.serveCreate(w, q)
	case q.Method == http.MethodPut && one:
		return s.serveUpdate(w, q)
	case q.Method == http.MethodPatch && one:
		return s.servePatch(w, q)
	case q.Method == http.MethodDelete && one && q.subresource == "":
		return s.serveDelete(w, q)
	case q.Method == http.MethodDelete && q.subresource == "":
		return s.serveDeleteCollection(w, q)
	}
	return apierrors.NewMethodNotSupported(q.store.gr(), strings.ToLower(q.Method))
}

// shownAs is the kind of the objects in the response.
func (q *request) shownAs() schema.GroupVersionKind {
	if q.partial {
		return metav1.SchemeGroupVersion.WithKind(partialKind)
	}
	return q.store.gvk(q.version)
}

func (q *request) write(w http.ResponseWriter, code int, o *object) {
	if q.partial {
		write(w, q.media, code, o.partialJSON())
		return
	}
	write(w, q.media, code, o.as(q.store.resource, q.version))
}

// options reads the query's ListOptions or DeleteOptions.
func (q *request) options(into runtime.Object) error {
	if err := scheme.ParameterCodec.DecodeParameters(q.URL.Query(), schema.GroupVersion{Version: "v1"}, into); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

func (s *Server) serveGet(w http.ResponseWriter, q *request) error {
	s.mu.Lock()
	o, err := q.store.get(q.key)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	q.write(w, http.StatusOK, o)
	return nil
}

// serveCollection serves list and watch.
func (s *Server) serveCollection(w http.ResponseWriter, q *request) error {
	var opts metav1.ListOptions
	if err := q.options(&opts); err != nil {
		return err
	}
	sel, err := newSelection(q, opts)
	if err != nil {
		return err
	}
	if opts.Watch {
		return s.serveWatch(w, q, opts, sel)
	}
	if err := checkList(q.store, opts); err != nil {
		return err
	}
	s.mu.Lock()
	current := s.version
	all := q.store.sorted()
	s.mu.Unlock()
	asked, err := parseVersion(opts.ResourceVersion)
	switch {
	case err != nil:
		return err
	case asked > current:
		return tooLarge(asked, current)
	case opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact && asked != current:
		return apierrors.NewResourceExpired(fmt.Sprintf("only resource version %d can be listed exactly, not %d", current, asked))
	}
	all = slices.DeleteFunc(all, func(o *object) bool { return !sel.matches(o) })
	if q.media == protobufType {
		if data, err := listProtobuf(q, current, all); err == nil {
			writeAs(w, protobufType, http.StatusOK, data)
			return nil
		} // else JSON can carry what today's types do not have
	}
	writeAs(w, jsonType, http.StatusOK, listJSON(q, current, all))
	return nil
}

func parseVersion(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	v, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version %q", text))
	}
	return v, nil
}

// listJSON returns a list response in JSON.
func listJSON(q *request, version uint64, all []*object) []byte {
	gvk := q.shownAs()
	b := fmt.Appendf(nil, `{"kind":"%sList","apiVersion":"%s","metadata":{"resourceVersion":"%d"},"items":[`,
		gvk.Kind, gvk.GroupVersion(), version)
	for i, o := range all {
		if i > 0 {
			b = append(b, ',')
		}
		if q.partial {
			b = append(b, o.partialJSON()...)
			continue
		}
		b = append(b, o.listed(q.store.resource, q.version)...)
	}
	return append(b, "]}"...)
}

// listProtobuf returns a list response in protobuf, built from the cached encoding of each object, as in the real
// server: a starting proxy must not wait until thousands of objects are encoded. In every list, field 1 is the metadata
// and field 2 the items (generated.proto of each API group).
func listProtobuf(q *request, version uint64, all []*object) ([]byte, error) {
	meta := metav1.ListMeta{ResourceVersion: strconv.FormatUint(version, 10)}
	head, err := meta.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encoding the metadata of a list: %w", err)
	}
	raw := appendField(nil, 1, head)
	for _, o := range all {
		data, err := o.encoded(q.store.resource, q.version, protobufType)
		if err != nil {
			return nil, fmt.Errorf("encoding %s: %w", o.key.name, err)
		}
		var item runtime.Unknown
		if err := item.Unmarshal(data[len(protobufPrefix):]); err != nil {
			return nil, fmt.Errorf("reading what is kept of %s: %w", o.key.name, err)
		}
		raw = appendField(raw, 2, item.Raw)
	}
	gvk := q.store.gvk(q.version)
	list := runtime.Unknown{TypeMeta: runtime.TypeMeta{Kind: gvk.Kind + "List", APIVersion: gvk.GroupVersion().String()}, Raw: raw}
	body, err := list.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encoding a list: %w", err)
	}
	return append([]byte(protobufPrefix), body...), nil
}

// appendField appends a bytes field whose number is less than 16.
func appendField(b []byte, number byte, value []byte) []byte {
	b = binary.AppendUvarint(append(b, number<<3|2), uint64(len(value)))
	return append(b, value...)
}

// protobufPrefix begins every API object in protobuf.
const protobufPrefix = "k8s\x00"

// review answers token and access reviews: every token is valid and every access allowed.
func (s *Server) review(w http.ResponseWriter, q *request) error {
	u, err := s.incoming(q)
	if err != nil {
		return err
	}
	u.Object["status"] = map[string]any{"allowed": true}
	if q.store.kind == "TokenReview" {
		u.Object["status"] = map[string]any{"authenticated": true, "user": map[string]any{"username": "replay"}}
	}
	data, err := json.Marshal(u.Object)
	if err != nil {
		return err
	}
	write(w, q.media, http.StatusCreated, data)
	return nil
}

// incoming reads the object of a request and checks it against the path.
func (s *Server) incoming(q *request) (*unstructured.Unstructured, error) {
	u, err := body(q.Request)
	if err != nil {
		return nil, err
	}
	if u == nil {
		return nil, apierrors.NewBadRequest("the request carries no object")
	}
	want := q.store.gvk(q.version)
	if u.GetAPIVersion() == "" && u.GetKind() == "" {
		u.SetGroupVersionKind(want)
	}
	if got := u.GroupVersionKind(); got != want {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object is %s, the path wants %s", got, want))
	}
	if err := s.toStored(q.store, u, q.key.namespace); err != nil {
		return nil, err
	}
	if q.store.namespaced && u.GetNamespace() != q.key.namespace {
		return nil, apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return u, nil
}
