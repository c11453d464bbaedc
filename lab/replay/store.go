package replay

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// store holds the objects of one resource and the latest events. Server.mu guards it.
type store struct {
	*resource
	objects map[key]*object
	events  []event // oldest first
	dropped uint64  // resource version of the newest event that is no longer kept
	watches []*watch
}

// event is a change. old is nil for an addition, new is nil for a deletion.
type event struct {
	version  uint64
	at       time.Time // with its monotonic part: delayed watches count from here
	old, new *object
}

// part is the part of an object that a write may change.
type part int

const (
	allButStatus part = iota // a request for the object
	onlyStatus               // the status subresource
	everything               // writers in the process; an object without status keeps the stored one
)

// sorted lists the objects by namespace and name, as the real server's store does.
func (st *store) sorted() []*object {
	all := make([]*object, 0, len(st.objects))
	for _, o := range st.objects {
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b *object) int {
		return cmp.Or(strings.Compare(a.key.namespace, b.key.namespace), strings.Compare(a.key.name, b.key.name))
	})
	return all
}

func (st *store) get(k key) (*object, error) {
	if o, ok := st.objects[k]; ok {
		return o, nil
	}
	return nil, apierrors.NewNotFound(st.gr(), k.name)
}

// create stores u and takes ownership of it.
func (s *Server) create(st *store, u *unstructured.Unstructured, p part) (*object, error) {
	if u.GetName() == "" && u.GetGenerateName() != "" {
		s.named++
		u.SetName(u.GetGenerateName() + suffix(s.named))
	}
	if u.GetResourceVersion() != "" {
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	if st.status && p == allButStatus && st.kind != "Node" { // a kubelet registers its Node with its status
		delete(u.Object, "status")
	}
	if err := admit(st, u); err != nil {
		return nil, err
	}
	k := key{u.GetNamespace(), u.GetName()}
	if _, exists := st.objects[k]; exists {
		return nil, apierrors.NewAlreadyExists(st.gr(), k.name)
	}
	s.created++
	u.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012x", s.created)))
	u.SetCreationTimestamp(metav1.NewTime(s.Now()))
	u.SetDeletionTimestamp(nil)
	u.SetDeletionGracePeriodSeconds(nil)
	if st.counted {
		u.SetGeneration(1)
	}
	return s.commit(st, k, u)
}

// replace makes next, whose ownership it takes, the new content of old, as far as p allows.
func (s *Server) replace(st *store, old *object, next *unstructured.Unstructured, p part) (*object, error) {
	if err := unchanged(st, old, next.GetResourceVersion(), next.GetUID()); err != nil {
		return nil, err
	}
	next = merged(st, old.content, next, p)
	if err := admit(st, next); err != nil {
		return nil, err
	}
	next.SetResourceVersion(old.content.GetResourceVersion())
	if st.counted && !sameSpec(old.content, next) {
		next.SetGeneration(old.content.GetGeneration() + 1)
	}
	same, err := newObject(st.resource, next.DeepCopy(), old.version)
	if err != nil || bytes.Equal(same.bare, old.bare) {
		return old, err // as in the real server, a write without changes causes no event
	}
	if grace := next.GetDeletionGracePeriodSeconds(); next.GetDeletionTimestamp() != nil && len(next.GetFinalizers()) == 0 &&
		(grace == nil || *grace == 0) {
		return s.drop(st, same), nil
	}
	return s.commit(st, old.key, next)
}

// merged returns the result of a write of part p of next to old. Server-managed metadata is kept.
func merged(st *store, old, next *unstructured.Unstructured, p part) *unstructured.Unstructured {
	if p == onlyStatus {
		status, given := next.Object["status"]
		next = old.DeepCopy()
		if delete(next.Object, "status"); given {
			next.Object["status"] = status
		}
		return next
	}
	status, has := old.Object["status"]
	if _, given := next.Object["status"]; st.status && has && (p == allButStatus || !given) {
		next.Object["status"] = status
	} else if st.status && p == allButStatus {
		delete(next.Object, "status")
	}
	next.SetName(old.GetName())
	next.SetNamespace(old.GetNamespace())
	next.SetUID(old.GetUID())
	next.SetCreationTimestamp(old.GetCreationTimestamp())
	next.SetDeletionTimestamp(old.GetDeletionTimestamp())
	next.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	if st.counted {
		next.SetGeneration(old.GetGeneration())
	}
	return next.DeepCopy() // must not share data with old
}

// unchanged returns 409 if a given version or uid differs from the stored one; empty values match.
func unchanged(st *store, old *object, version string, uid types.UID) error {
	if uid != "" && uid != old.content.GetUID() {
		return apierrors.NewConflict(st.gr(), old.key.name, fmt.Errorf(
			"Precondition failed: UID in precondition: %s, UID in object meta: %s", uid, old.content.GetUID()))
	}
	if version != "" && version != "0" && version != strconv.FormatUint(old.version, 10) {
		return apierrors.NewConflict(st.gr(), old.key.name, fmt.Errorf(
			"the object has been modified; please apply your changes to the latest version and try again"))
	}
	return nil
}

// admit sets defaults and validates an object.
func admit(st *store, u *unstructured.Unstructured) error {
	if !st.untyped {
		setDefaults(u)
	}
	if err := st.checkTypes(u); err != nil {
		return err
	}
	var errs field.ErrorList
	if u.GetName() == "" {
		errs = append(errs, field.Required(field.NewPath("metadata", "name"), "name or generateName is required"))
	}
	if st.namespaced && u.GetNamespace() == "" {
		errs = append(errs, field.Required(field.NewPath("metadata", "namespace"), ""))
	}
	if st.kind == "EndpointSlice" && fieldValue(u.Object, "addressType") == "" {
		errs = append(errs, field.Required(field.NewPath("addressType"), "IPv4, IPv6 or FQDN"))
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(st.gvk("").GroupKind(), u.GetName(), errs)
	}
	return nil
}

// remove deletes an object. The second result is false if the object stays for now: a pod with a grace period, until a
// delete with grace 0, or an object with finalizers.
func (s *Server) remove(st *store, k key, opts metav1.DeleteOptions) (*object, bool, error) {
	old, err := st.get(k)
	if err != nil {
		return nil, false, err
	}
	if p := opts.Preconditions; p != nil {
		var version string
		var uid types.UID
		if p.ResourceVersion != nil {
			version = *p.ResourceVersion
		}
		if p.UID != nil {
			uid = *p.UID
		}
		if err := unchanged(st, old, version, uid); err != nil {
			return nil, false, err
		}
	}
	grace := gracePeriod(st, old, opts.GracePeriodSeconds)
	held := len(old.content.GetFinalizers()) > 0
	if left := old.content.GetDeletionGracePeriodSeconds(); (held || st.kind == "Pod") && (left == nil || *left > grace) {
		if old, err = s.terminate(st, old, grace); err != nil {
			return nil, false, err
		}
	}
	if held || grace > 0 {
		return old, false, nil
	}
	return s.drop(st, old), true, nil
}

// terminate begins a graceful deletion or shortens it. As in the real server, watches get MODIFIED before DELETED even
// with grace 0.
func (s *Server) terminate(st *store, o *object, grace int64) (*object, error) {
	next := o.content.DeepCopy()
	from := s.Now()
	if end, left := next.GetDeletionTimestamp(), next.GetDeletionGracePeriodSeconds(); end != nil && left != nil {
		from = end.Add(-time.Duration(*left) * time.Second)
	} else if st.counted {
		next.SetGeneration(next.GetGeneration() + 1)
	}
	end := metav1.NewTime(from.Add(time.Duration(grace) * time.Second))
	next.SetDeletionTimestamp(&end)
	next.SetDeletionGracePeriodSeconds(&grace)
	return s.commit(st, o.key, next)
}

// gracePeriod returns the object's grace period in seconds; only pods on a node have one.
func gracePeriod(st *store, o *object, asked *int64) int64 {
	phase := o.fields["status.phase"]
	if st.kind != "Pod" || o.fields["spec.nodeName"] == "" || phase == "Succeeded" || phase == "Failed" {
		return 0
	}
	if asked != nil {
		return max(0, *asked)
	}
	grace, _, _ := unstructured.NestedInt64(o.content.Object, "spec", "terminationGracePeriodSeconds")
	return grace
}

// drop removes an object whose last state is o, and returns that state at the version of its deletion.
func (s *Server) drop(st *store, o *object) *object {
	old := st.objects[o.key]
	delete(st.objects, o.key)
	s.version++
	last := o.at(st.resource, s.version)
	s.publish(st, event{version: s.version, at: time.Now(), old: old})
	if st.defines {
		s.undefine(last)
	}
	return last
}

// commit stores u as the newest version of k and notifies the watches.
func (s *Server) commit(st *store, k key, u *unstructured.Unstructured) (*object, error) {
	if st.defines {
		d, err := definitionOf(u)
		if err == nil {
			err = s.define(d)
		}
		if err != nil {
			return nil, err
		}
		d.establish(u, s.Now().UTC().Format(time.RFC3339))
	}
	o, err := newObject(st.resource, u, s.version+1)
	if err != nil {
		return nil, err
	}
	s.version++
	old := st.objects[k]
	st.objects[k] = o
	s.publish(st, event{version: s.version, at: time.Now(), old: old, new: o})
	return o, nil
}

func (s *Server) publish(st *store, e event) {
	st.events = append(st.events, e)
	if extra := len(st.events) - max(1, s.Keep); extra > 0 {
		st.dropped = st.events[extra-1].version
		st.events = slices.Delete(st.events, 0, extra)
	}
	for _, w := range st.watches {
		w.notify()
	}
}

// sameSpec compares two objects without metadata and status.
func sameSpec(a, b *unstructured.Unstructured) bool {
	x, y := maps.Clone(a.Object), maps.Clone(b.Object)
	for _, m := range []map[string]any{x, y} {
		delete(m, "metadata")
		delete(m, "status")
	}
	return reflect.DeepEqual(x, y)
}

// suffix converts a count to the five characters after a generateName, with the alphabet of Kubernetes.
func suffix(n uint64) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	var b [5]byte
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = letters[n%uint64(len(letters))]
		n /= uint64(len(letters))
	}
	return string(b[:])
}
