package replay

import (
	"encoding/json"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

func (s *Server) serveCreate(w http.ResponseWriter, q *request) error {
	if q.store.namespaced && q.key.namespace == "" {
		return apierrors.NewMethodNotSupported(q.store.gr(), "create without a namespace")
	}
	u, err := s.incoming(q)
	if err != nil {
		return err
	}
	s.mu.Lock()
	o, err := s.create(q.store, u, allButStatus)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	q.write(w, http.StatusCreated, o)
	return nil
}

func (s *Server) serveUpdate(w http.ResponseWriter, q *request) error {
	u, err := s.incoming(q)
	if err != nil {
		return err
	}
	if u.GetName() != q.key.name {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", u.GetName(), q.key.name))
	}
	s.mu.Lock()
	old, err := q.store.get(q.key)
	if err == nil {
		old, err = s.replace(q.store, old, u, q.part())
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	q.write(w, http.StatusOK, old)
	return nil
}

// servePatch serves merge patches (RFC 7396), strategic merge patches and server-side apply. Server-side apply creates
// missing objects and never removes a field, because fields have no owners here.
func (s *Server) servePatch(w http.ResponseWriter, q *request) error {
	kind := types.PatchType(contentType(q.Request))
	data, err := bodyBytes(q.Request)
	if err != nil {
		return err
	}
	switch kind {
	case types.StrategicMergePatchType:
		if q.store.untyped { // nothing says which lists are maps
			return unsupported(string(kind), string(types.MergePatchType), string(types.ApplyYAMLPatchType))
		}
	case types.MergePatchType:
	case types.ApplyYAMLPatchType:
		if data, err = yaml.YAMLToJSONStrict(data); err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
	default:
		return unsupported(string(kind), string(types.MergePatchType), string(types.StrategicMergePatchType), string(types.ApplyYAMLPatchType))
	}
	s.mu.Lock()
	o, code, err := s.patch(q, kind, data)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	q.write(w, code, o)
	return nil
}

func (s *Server) patch(q *request, kind types.PatchType, data []byte) (*object, int, error) {
	st := q.store
	old, err := st.get(q.key)
	create := apierrors.IsNotFound(err) && kind == types.ApplyYAMLPatchType && q.subresource == ""
	if err != nil && !create {
		return nil, 0, err
	}
	before := []byte("{}")
	if !create {
		before = old.as(st.resource, q.version)
	}
	u, err := patched(before, data, kind, st.gvk(q.version).Kind, func() (runtime.Object, error) { return scheme.Scheme.New(st.gvk(q.version)) })
	if err != nil {
		return nil, 0, err
	}
	u.SetGroupVersionKind(st.gvk(q.version))
	if err := s.toStored(st, u, q.key.namespace); err != nil {
		return nil, 0, err
	}
	if u.GetName() != q.key.name && u.GetName() != "" || u.GetNamespace() != q.key.namespace {
		return nil, 0, apierrors.NewBadRequest("the patch names another object than the URL")
	}
	if create {
		u.SetName(q.key.name)
		o, err := s.create(st, u, allButStatus)
		return o, http.StatusCreated, err
	}
	o, err := s.replace(st, old, u, q.part())
	return o, http.StatusOK, err
}

// patched applies a patch to the JSON of an object.
func patched(before, patch []byte, kind types.PatchType, name string, typed func() (runtime.Object, error)) (*unstructured.Unstructured, error) {
	if kind == types.StrategicMergePatchType {
		t, err := typed()
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		after, err := strategicpatch.StrategicMergePatch(before, patch, t)
		if err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("patching %s: %v", name, err))
		}
		return parse(after)
	}
	target, err := parse(before)
	if err != nil {
		return nil, err
	}
	change, err := parse(patch)
	if err != nil {
		return nil, err
	}
	mergePatch(target.Object, change.Object)
	return target, nil
}

// mergePatch applies patch to target (RFC 7396).
func mergePatch(target, patch map[string]any) {
	for name, value := range patch {
		change, isObject := value.(map[string]any)
		switch {
		case value == nil:
			delete(target, name)
		case isObject:
			inner, ok := target[name].(map[string]any)
			if !ok {
				inner = map[string]any{}
				target[name] = inner
			}
			mergePatch(inner, change)
		default:
			target[name] = value
		}
	}
}

// deleteOptions reads the options from the body or, for older clients and curl, from the query.
func (q *request) deleteOptions() (metav1.DeleteOptions, error) {
	var opts metav1.DeleteOptions
	if err := q.options(&opts); err != nil {
		return opts, err
	}
	u, err := body(q.Request)
	if err != nil || u == nil {
		return opts, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &opts); err != nil {
		return opts, apierrors.NewBadRequest(fmt.Sprintf("the delete options cannot be read: %v", err))
	}
	if len(opts.DryRun) > 0 {
		return opts, apierrors.NewBadRequest("dryRun is not known to the replay control plane; nothing was deleted")
	}
	return opts, nil
}

// serveDelete answers with the object while it stays. Once it is deleted, the answer is a Status or the last state, per
// resource as in the real server.
func (s *Server) serveDelete(w http.ResponseWriter, q *request) error {
	opts, err := q.deleteOptions()
	if err != nil {
		return err
	}
	s.mu.Lock()
	o, gone, err := s.remove(q.store, q.key, opts)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if !gone || q.store.returned {
		q.write(w, http.StatusOK, o)
		return nil
	}
	data, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Name: o.key.name, Group: q.store.group, Kind: q.store.plural, UID: o.content.GetUID()},
	})
	if err != nil {
		return err
	}
	write(w, q.media, http.StatusOK, data)
	return nil
}

func (s *Server) serveDeleteCollection(w http.ResponseWriter, q *request) error {
	var list metav1.ListOptions
	if err := q.options(&list); err != nil {
		return err
	}
	sel, err := newSelection(q, list)
	if err != nil {
		return err
	}
	opts, err := q.deleteOptions()
	if err != nil {
		return err
	}
	done, version, err := s.removeAll(q.store, sel, opts)
	if err != nil {
		return err
	}
	write(w, q.media, http.StatusOK, listJSON(q, version, done))
	return nil
}

// removeAll deletes the selected objects in list order and returns their last states.
func (s *Server) removeAll(st *store, sel selection, opts metav1.DeleteOptions) ([]*object, uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var done []*object
	for _, o := range st.sorted() {
		if !sel.matches(o) {
			continue
		}
		last, _, err := s.remove(st, o.key, opts)
		if err != nil {
			return nil, 0, err
		}
		done = append(done, last)
	}
	return done, s.version, nil
}
