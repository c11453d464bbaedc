package replay

import (
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// selection is the namespace and selectors of a list or watch. The zero value selects everything.
type selection struct {
	namespace string // empty for all
	labels    labels.Selector
	fields    fields.Selector
}

func newSelection(q *request, opts metav1.ListOptions) (selection, error) {
	sel := selection{namespace: q.key.namespace}
	var err error
	if sel.labels, err = labels.Parse(opts.LabelSelector); err != nil {
		return sel, apierrors.NewBadRequest(fmt.Sprintf("unable to parse label selector %q: %v", opts.LabelSelector, err))
	}
	if sel.fields, err = fields.ParseSelector(opts.FieldSelector); err != nil {
		return sel, apierrors.NewBadRequest(fmt.Sprintf("unable to parse field selector %q: %v", opts.FieldSelector, err))
	}
	known := append([]string{"metadata.name", "metadata.namespace"}, q.store.fields...)
	for _, r := range sel.fields.Requirements() {
		if !slices.Contains(known, r.Field) {
			return sel, apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s (for %s: %v)", r.Field, q.store.plural, known))
		}
	}
	return sel, nil
}

// matches reports whether o is selected; a nil o is not.
func (sel selection) matches(o *object) bool {
	return o != nil &&
		(sel.namespace == "" || sel.namespace == o.key.namespace) &&
		(sel.labels == nil || sel.labels.Matches(o.labels)) &&
		(sel.fields == nil || sel.fields.Matches(o.fields))
}

// checkList rejects list options that the real server rejects. This server issues no continue tokens, so it rejects
// them.
func checkList(st *store, opts metav1.ListOptions) error {
	var errs field.ErrorList
	match := opts.ResourceVersionMatch
	switch {
	case match == "":
	case opts.ResourceVersion == "":
		errs = append(errs, field.Forbidden(field.NewPath("resourceVersionMatch"), "forbidden unless resourceVersion is provided"))
	case match != metav1.ResourceVersionMatchExact && match != metav1.ResourceVersionMatchNotOlderThan:
		errs = append(errs, field.NotSupported(field.NewPath("resourceVersionMatch"), match,
			[]metav1.ResourceVersionMatch{metav1.ResourceVersionMatchExact, metav1.ResourceVersionMatchNotOlderThan}))
	}
	if opts.SendInitialEvents != nil {
		errs = append(errs, field.Forbidden(field.NewPath("sendInitialEvents"), "sendInitialEvents is forbidden for list"))
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", errs)
	}
	if opts.Continue != "" {
		return apierrors.NewResourceExpired("the continue token is not from this server, which answers every list in full")
	}
	return nil
}

// checkWatch rejects watch options that the real server rejects.
func checkWatch(opts metav1.ListOptions) error {
	var errs field.ErrorList
	path := field.NewPath("resourceVersionMatch")
	if opts.SendInitialEvents != nil && opts.ResourceVersionMatch != metav1.ResourceVersionMatchNotOlderThan {
		errs = append(errs, field.Forbidden(path, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
	}
	if opts.SendInitialEvents == nil && opts.ResourceVersionMatch != "" {
		errs = append(errs, field.Forbidden(path, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"))
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", errs)
	}
	return nil
}
