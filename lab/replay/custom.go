package replay

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// definitions is the resource whose objects define custom resources. Their objects are served as they are given: without validation,
// pruning, defaults and conversion.
func definitions() *resource {
	return &resource{group: "apiextensions.k8s.io", versions: []string{"v1"}, plural: "customresourcedefinitions", kind: "CustomResourceDefinition",
		status: true, counted: true, untyped: true, defines: true}
}

// definition is a CustomResourceDefinition as far as this server reads it.
type definition struct {
	Group string
	Scope string
	Names struct{ Plural, Kind string }

	Versions []definedVersion
}

type definedVersion struct {
	Name            string
	Served, Storage bool
	Status          bool // has the status subresource
}

// definitionOf reads a definition. Errors are those of the real server's validation.
func definitionOf(u *unstructured.Unstructured) (d definition, err error) {
	text := func(path ...string) string {
		value, _, _ := unstructured.NestedString(u.Object, append([]string{"spec"}, path...)...) // empty is refused below
		return value
	}
	d.Group, d.Scope, d.Names.Plural, d.Names.Kind = text("group"), text("scope"), text("names", "plural"), text("names", "kind")
	spec, _ := u.Object["spec"].(map[string]any)
	for _, v := range children(spec, "versions") {
		version := definedVersion{Name: fmt.Sprint(v["name"])}
		version.Served, _ = v["served"].(bool)
		version.Storage, _ = v["storage"].(bool)
		_, version.Status, _ = unstructured.NestedMap(v, "subresources", "status")
		d.Versions = append(d.Versions, version)
	}
	var errs field.ErrorList
	path := field.NewPath("spec")
	if d.Group == "" || d.Names.Plural == "" || d.Names.Kind == "" {
		errs = append(errs, field.Required(path, "group, names.plural and names.kind"))
	}
	if want := d.Names.Plural + "." + d.Group; u.GetName() != want {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), u.GetName(), "must be spec.names.plural+\".\"+spec.group"))
	}
	if d.Scope != "Namespaced" && d.Scope != "Cluster" {
		errs = append(errs, field.NotSupported(path.Child("scope"), d.Scope, []string{"Cluster", "Namespaced"}))
	}
	stored := slices.DeleteFunc(slices.Clone(d.Versions), func(v definedVersion) bool { return !v.Storage })
	if len(stored) != 1 || !stored[0].Served {
		errs = append(errs, field.Invalid(path.Child("versions"), len(stored), "exactly one version must be the storage version, and this server must serve it"))
	}
	if len(errs) > 0 {
		return d, apierrors.NewInvalid(schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}, u.GetName(), errs)
	}
	return d, nil
}

// resource is the resource that a definition defines. The stored version is the first one.
func (d definition) resource() *resource {
	r := &resource{group: d.Group, plural: d.Names.Plural, kind: d.Names.Kind, namespaced: d.Scope == "Namespaced", counted: true, untyped: true}
	for _, v := range d.Versions {
		switch {
		case v.Storage:
			r.versions = slices.Insert(r.versions, 0, v.Name)
		case v.Served:
			r.versions = append(r.versions, v.Name)
		}
		r.status = r.status || v.Served && v.Status
	}
	return r
}

// establish completes the status of a definition as the real server's controllers do: it is served from its creation on.
func (d definition) establish(u *unstructured.Unstructured, now string) {
	names, _, _ := unstructured.NestedMap(u.Object, "spec", "names") // it has been read
	var conditions []any
	for _, c := range [][3]string{{"NamesAccepted", "NoConflicts", "no conflicts found"}, {"Established", "InitialNamesAccepted", "the initial names have been accepted"}} {
		conditions = append(conditions, map[string]any{"type": c[0], "status": "True", "reason": c[1], "message": c[2], "lastTransitionTime": now})
	}
	status := child(u.Object, "status")
	fill(status, "conditions", conditions)
	status["acceptedNames"] = names
	status["storedVersions"] = []any{d.resource().versions[0]}
}

// define serves the resource of a definition from now on, or a changed one with its objects. Server.mu is held.
func (s *Server) define(d definition) error {
	r := d.resource()
	for _, st := range s.served() {
		if st.group != r.group || st.plural != r.plural && st.kind != r.kind {
			continue
		}
		if !st.untyped || st.defines || st.plural != r.plural || st.kind != r.kind {
			return apierrors.NewConflict(schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}, r.gr().String(),
				fmt.Errorf("%s of the kind %s is served already", st.gr(), st.kind))
		}
		if !reflect.DeepEqual(st.resource, r) { // its watches end, and go on with a new list
			s.serve(func(all []*store) []*store {
				next := &store{resource: r, objects: st.objects, dropped: s.version}
				i := slices.Index(all, st)
				return slices.Concat(all[:i], []*store{next}, all[i+1:])
			})
			for _, w := range st.watches {
				w.end()
			}
		}
		return nil
	}
	s.serve(func(all []*store) []*store {
		return append(slices.Clone(all), &store{resource: r, objects: map[key]*object{}})
	})
	return nil
}

// undefine deletes the objects of a definition and ends their watches. Server.mu is held.
func (s *Server) undefine(o *object) {
	d, err := definitionOf(o.content)
	if err != nil { // cannot happen: it was read before it was stored
		return
	}
	for _, st := range s.served() {
		if st.group != d.Group || st.plural != d.Names.Plural {
			continue
		}
		for _, object := range st.sorted() {
			s.drop(st, object)
		}
		for _, w := range st.watches {
			w.end()
		}
		s.serve(func(all []*store) []*store {
			return slices.DeleteFunc(slices.Clone(all), func(other *store) bool { return other == st })
		})
	}
}

// served are the stores of all resources. The list never changes; a new definition makes another list.
func (s *Server) served() []*store {
	s.registry.RLock()
	defer s.registry.RUnlock()
	return s.stores
}

// serve replaces the list of stores.
func (s *Server) serve(next func(all []*store) []*store) {
	s.registry.Lock()
	defer s.registry.Unlock()
	s.stores = next(s.stores)
}

// negotiateUntyped accepts JSON for resources without types, which have no protobuf form here. partial is whether the client asks for their
// metadata only.
func negotiateUntyped(accept string) (partial bool, err error) {
	for item := range strings.SplitSeq(accept, ",") {
		name, params, err := mime.ParseMediaType(item)
		switch as := strings.TrimSuffix(params["as"], "List"); {
		case accept == "", err == nil && as == "" && slices.Contains([]string{jsonType, "application/*", "*/*"}, name):
			return false, nil
		case err == nil && as == partialKind && params["g"] == metav1.GroupName && params["v"] == "v1" && name == jsonType:
			return true, nil
		}
	}
	return false, apierrors.NewGenericServerResponse(http.StatusNotAcceptable, "get", schema.GroupResource{}, "",
		fmt.Sprintf("only %s is made of these objects, the client accepts %q", jsonType, accept), 0, false)
}

// partialKind is the kind of objects of which a client gets the metadata only.
const partialKind = "PartialObjectMetadata"

// partialJSON is the metadata of an object.
func (o *object) partialJSON() []byte {
	data, err := json.Marshal(map[string]any{"kind": partialKind, "apiVersion": metav1.SchemeGroupVersion.String(), "metadata": o.content.Object["metadata"]})
	if err != nil { // cannot happen: the object has been encoded before
		return o.bare
	}
	return data
}
