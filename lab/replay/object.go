package replay

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"
)

type key struct{ namespace, name string }

// object is one stored version of an object. It is immutable, so reads need no lock.
type object struct {
	key     key
	version uint64
	content *unstructured.Unstructured // in the stored version of its resource; never handed out uncopied
	bare    []byte                     // content as JSON, less apiVersion and kind: as it stands in a list
	labels  labels.Set
	fields  fields.Set

	protobuf atomic.Pointer[[]byte] // the stored version in protobuf, once a watch or Warm has asked for it
}

// newObject creates an object; it takes ownership of content.
func newObject(r *resource, content *unstructured.Unstructured, version uint64) (*object, error) {
	content.SetResourceVersion(strconv.FormatUint(version, 10))
	data, err := bareJSON(content)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("encoding %s %s: %v", content.GetKind(), content.GetName(), err))
	}
	o := &object{
		key: key{content.GetNamespace(), content.GetName()}, version: version, content: content, bare: data,
		labels: content.GetLabels(),
		fields: fields.Set{"metadata.name": content.GetName(), "metadata.namespace": content.GetNamespace()},
	}
	for _, path := range r.fields {
		o.fields[path] = fieldValue(content.Object, path)
	}
	return o, nil
}

// as returns the object's JSON in an API version.
func (o *object) as(r *resource, version string) []byte {
	gvk := r.gvk(version)
	b := fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,`, gvk.Kind, gvk.GroupVersion())
	return append(b, o.listed(r, version)[1:]...)
}

// encoded returns the object in a media type. Protobuf is cached, because converting JSON is expensive.
func (o *object) encoded(r *resource, version, media string) ([]byte, error) {
	keep := media == protobufType && version == r.versions[0]
	if known := o.protobuf.Load(); keep && known != nil {
		return *known, nil
	}
	data, err := encode(media, o.as(r, version))
	if err == nil && keep {
		o.protobuf.Store(&data)
	}
	return data, err
}

// listed returns the JSON without kind and apiVersion, which list items omit. (Typed clients would keep them, and the
// same object from a list and a watch would differ.)
func (o *object) listed(r *resource, version string) []byte {
	if version == r.versions[0] {
		return o.bare
	}
	u := o.content.DeepCopy()
	convert(r, u, version)
	data, err := bareJSON(u)
	if err != nil { // cannot happen: the same content has been encoded before
		return o.bare
	}
	return data
}

// bareJSON encodes u without its kind and apiVersion; u must have metadata.
func bareJSON(u *unstructured.Unstructured) ([]byte, error) {
	rest := maps.Clone(u.Object)
	delete(rest, "kind")
	delete(rest, "apiVersion")
	return json.Marshal(rest)
}

// at returns the object with a later resource version, which is the state in a DELETED event.
func (o *object) at(r *resource, version uint64) *object {
	last, err := newObject(r, o.content.DeepCopy(), version)
	if err != nil { // cannot happen, as in as
		return o
	}
	return last
}

func fieldValue(m map[string]any, path string) string {
	value, found, err := unstructured.NestedFieldNoCopy(m, strings.Split(path, ".")...)
	if err != nil || !found || value == nil {
		return ""
	}
	return fmt.Sprint(value)
}

// parse reads a JSON object with numbers as int64 or float64, which the API machinery requires.
func parse(data []byte) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(data, &u.Object); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object is not a JSON object: %v", err))
	}
	if u.Object == nil {
		return nil, apierrors.NewBadRequest("the object is empty")
	}
	return u, nil
}

// unstructuredOf copies any API object; the kind of a typed one is looked up when it does not name it.
func unstructuredOf(obj runtime.Object) (*unstructured.Unstructured, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok && u == nil {
		return nil, apierrors.NewBadRequest("no object given")
	}
	data, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("encoding %T: %w", obj, err)
	}
	u, err := parse(data)
	if err != nil {
		return nil, err
	}
	if u.GetKind() == "" {
		kinds, _, err := scheme.Scheme.ObjectKinds(obj)
		if err != nil {
			return nil, fmt.Errorf("finding the kind of %T: %w", obj, err)
		}
		u.SetGroupVersionKind(kinds[0])
	}
	return u, nil
}

// checkTypes returns an error if typed clients cannot decode u. The real server rejects such an object too; stored, it
// would break every list that contains it. Unknown fields are accepted, because old clients may know them.
func (r *resource) checkTypes(u *unstructured.Unstructured) error {
	if r.untyped {
		return nil
	}
	typed, err := scheme.Scheme.New(u.GroupVersionKind())
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("%s %q in version %q cannot be read as %T: %v",
			u.GetKind(), u.GetName(), u.GetAPIVersion(), typed, err))
	}
	return nil
}
