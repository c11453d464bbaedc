package scenarios

//lint:file-ignore SA1019 Endpoints are deprecated, and the only thing that kube-proxy up to 1.18 watches

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/e2e-framework/klient/k8s"
	"sigs.k8s.io/e2e-framework/klient/k8s/resources"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/timeline"
)

// objectOf returns an empty object of a kind that a timeline can name.
func objectOf(kind string) (k8s.Object, error) {
	switch kind {
	case "Deployment":
		return &appsv1.Deployment{}, nil
	case "EndpointSlice":
		return &discoveryv1.EndpointSlice{}, nil
	case "Endpoints":
		return &corev1.Endpoints{}, nil
	case "Node":
		return &corev1.Node{}, nil
	case "Pod":
		return &corev1.Pod{}, nil
	case "Service":
		return &corev1.Service{}, nil
	}
	return nil, fmt.Errorf("a timeline has no objects of kind %q", kind)
}

// named returns an empty object with the name of a reference.
func named(reference string) (k8s.Object, error) {
	parts := strings.Split(reference, "/")
	o, err := objectOf(parts[0])
	if err != nil {
		return nil, err
	}
	o.SetName(parts[len(parts)-1])
	if len(parts) == 3 {
		o.SetNamespace(parts[1])
	}
	return o, nil
}

// makeObject is ApplyObject for an object that probably does not exist: a recording has thousands of them.
func (w *World) makeObject(ctx context.Context, s timeline.Step) error {
	reference, o, err := objectIn(s)
	if err != nil {
		return err
	}
	if plane, err := w.controlPlane(); err == nil {
		if err := plane.Put(o); err != nil {
			return fmt.Errorf("making %s: %w", reference, err)
		}
		return nil
	}
	switch err := w.createInNamespace(ctx, o); {
	case apierrors.IsAlreadyExists(err):
		return executor{w}.ApplyObject(ctx, s)
	case err != nil:
		return fmt.Errorf("creating %s: %w", reference, err)
	}
	return w.applyStatus(ctx, reference, s.JSON)
}

// objectIn reads the object that a step applies, and its name.
func objectIn(s timeline.Step) (reference string, o k8s.Object, err error) {
	if reference, err = s.Reference(); err != nil {
		return "", nil, err
	}
	if o, err = named(reference); err != nil {
		return "", nil, err
	}
	space := o.GetNamespace()
	if err := json.Unmarshal([]byte(s.JSON), o); err != nil {
		return "", nil, fmt.Errorf("reading %s: %w", reference, err)
	}
	o.SetNamespace(space)
	return reference, o, nil
}

// ApplyObject creates an object, or replaces it and its status. Concurrent writes, such as those of a controller, are
// replaced too.
func (w executor) ApplyObject(ctx context.Context, s timeline.Step) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error { return w.applyOnce(ctx, s) })
}

func (w *World) applyOnce(ctx context.Context, s timeline.Step) error {
	reference, o, err := objectIn(s)
	if err != nil {
		return err
	}
	there, err := named(reference)
	if err != nil {
		return err
	}
	switch err := w.Cluster.Get(ctx, there.GetName(), there.GetNamespace(), there); {
	case apierrors.IsNotFound(err):
		if err := w.createInNamespace(ctx, o); err != nil {
			return fmt.Errorf("creating %s: %w", reference, err)
		}
		if w.isMeasured(o) {
			w.recordServiceChange(record.ServiceCreated, "")
			if w.run.deleted > 0 {
				w.excuseAbsence(w.run.deleted, w.Clock.Now(), "the Service did not exist", w.Params.ThroughBalancer())
				w.run.deleted = 0
			}
		}
	case err != nil:
		return fmt.Errorf("reading %s: %w", reference, err)
	default:
		o.SetResourceVersion(there.GetResourceVersion())
		if err := w.Cluster.Update(ctx, o); err != nil {
			return fmt.Errorf("replacing %s: %w", reference, err)
		}
	}
	return w.applyStatus(ctx, reference, s.JSON)
}

// createInNamespace creates an object, and its namespace if there is none: a timeline has no steps for namespaces.
func (w *World) createInNamespace(ctx context.Context, o k8s.Object) error {
	err := w.Cluster.Create(ctx, o)
	if o.GetNamespace() == "" || !apierrors.IsNotFound(err) {
		return err
	}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.GetNamespace()}}
	if err := w.Cluster.Create(ctx, space); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the namespace %s: %w", space.Name, err)
	}
	return w.Cluster.Create(ctx, o)
}

// applyStatus writes the status of an applied object, which create and update requests ignore.
func (w *World) applyStatus(ctx context.Context, reference, object string) error {
	var has struct{ Status map[string]any }
	if err := json.Unmarshal([]byte(object), &has); err != nil || len(has.Status) == 0 {
		return err
	}
	data, err := json.Marshal(map[string]any{"status": has.Status})
	if err != nil {
		return err
	}
	o, err := named(reference)
	if err != nil {
		return err
	}
	if err := w.Cluster.PatchStatus(ctx, o, k8s.Patch{PatchType: types.MergePatchType, Data: data}); err != nil {
		return fmt.Errorf("writing the status of %s: %w", reference, err)
	}
	return nil
}

// PatchObject changes fields of an object. A patch without effect is an error: nothing was disturbed.
func (w executor) PatchObject(ctx context.Context, s timeline.Step) error {
	before, err := named(s.Object)
	if err != nil {
		return err
	}
	after, err := named(s.Object)
	if err != nil {
		return err
	}
	if err := w.Cluster.Get(ctx, before.GetName(), before.GetNamespace(), before); err != nil {
		return fmt.Errorf("reading %s: %w", s.Object, err)
	}
	// A merge patch replaces whole lists, such as the ports of a Service.
	if err := w.Cluster.Patch(ctx, after, k8s.Patch{PatchType: types.MergePatchType, Data: []byte(s.JSON)}); err != nil {
		return fmt.Errorf("changing %s by %s: %w", s.Object, s.JSON, err)
	}
	if after.GetResourceVersion() == before.GetResourceVersion() {
		return fmt.Errorf("%s is as it was after %s: nothing was changed", s.Object, s.JSON)
	}
	if service, is := after.(*corev1.Service); is && w.isMeasured(service) {
		w.run.main.policy = service.Spec.ExternalTrafficPolicy
		w.recordServiceChange(record.ServiceChanged, fieldsOf(s.JSON))
	}
	return nil
}

// isMeasured reports whether the object is the measured Service. A replay may have no measured Service.
func (w *World) isMeasured(o k8s.Object) bool {
	_, is := o.(*corev1.Service)
	return is && w.run.main != nil && o.GetName() == w.run.main.name && o.GetNamespace() == w.namespace()
}

// recordServiceChange records a change of the measured Service, which may be a cause of lost traffic.
func (w *World) recordServiceChange(state record.ServiceState, fields string) {
	name := w.namespace() + "/" + w.run.main.name
	text := "the Service " + name + " was " + string(state)
	if fields != "" {
		text += ": " + fields
	}
	w.Recorder.Event(record.Event{At: w.Clock.Now(), Object: name, Text: text,
		Body: record.Service{Service: name, State: state, Fields: fields}})
}

// fieldsOf are the names of the spec fields that a patch changes, sorted.
func fieldsOf(patch string) string {
	var p struct{ Spec map[string]any }
	if err := json.Unmarshal([]byte(patch), &p); err != nil {
		return "" // it was applied, so that this cannot be
	}
	return strings.Join(slices.Sorted(maps.Keys(p.Spec)), ", ")
}

func (w executor) DeleteObject(ctx context.Context, s timeline.Step) error {
	o, err := named(s.Object)
	if err != nil {
		return err
	}
	at := w.Clock.Now()
	if err := w.Cluster.Delete(ctx, o, graceOf(s)...); err != nil {
		return fmt.Errorf("deleting %s: %w", s.Object, err)
	}
	if w.isMeasured(o) {
		w.run.deleted = at
		w.recordServiceChange(record.ServiceDeleted, "")
	}
	return nil
}

// workload returns an existing workload.
func (w *World) workload(name string) (*workload, error) {
	if k := w.state().workloads[name]; k != nil {
		return k, nil
	}
	return nil, fmt.Errorf("there is no workload %q", name)
}

func (w executor) DeployWorkload(ctx context.Context, s timeline.Step) error {
	k := &workload{name: s.Object, replicas: s.Number("replicas", 1), policy: corev1.ServiceExternalTrafficPolicyCluster, gated: s.Get("gated") == "on"}
	if policy := s.Get("policy"); policy != "" {
		k.policy = corev1.ServiceExternalTrafficPolicy(policy)
	}
	if n := s.Number("ports", 0); n > 0 {
		k.special = manyPorts(n)
	}
	w.state().workloads[k.name] = k
	return k.deploy(ctx, w.World)
}

func (w executor) RollWorkload(ctx context.Context, s timeline.Step) error {
	k, err := w.workload(s.Object)
	if err != nil {
		return err
	}
	if k == w.run.main {
		w.noteEnds(ownGrace, anyPod)
	}
	number := w.state().rollouts + 1
	if err := w.replacePods(ctx, k, number); err != nil {
		return err
	}
	if w.state().rollouts = number; k == w.run.main {
		w.state().rolling = number
	}
	return nil
}

func (w executor) ScaleWorkload(ctx context.Context, s timeline.Step) error {
	k, err := w.workload(s.Object)
	if err != nil {
		return err
	}
	k.replicas = s.Number("replicas", k.replicas)
	if k == w.run.main {
		w.noteScale(w.Clock.Now(), k.replicas)
		w.noteEnds(ownGrace, anyPod)
	}
	if err := w.updateDeployment(ctx, k, func(d *appsv1.Deployment) { d.Spec.Replicas = ptr(int32(k.replicas)) }); err != nil {
		return fmt.Errorf("scaling the Deployment to %d: %w", k.replicas, err)
	}
	return nil
}

func (w executor) AwaitRolledOut(ctx context.Context, s timeline.Step) error {
	k, err := w.workload(s.Object)
	if err != nil {
		return err
	}
	within := s.Duration("within", w.podReplacementTime())
	if k == w.run.main {
		if err := w.excuseEmpty(ctx, within); err != nil {
			return err
		}
	}
	return k.awaitRollout(ctx, w.World, within)
}

func (w executor) AwaitBalanced(ctx context.Context, s timeline.Step) error {
	k, err := w.workload(s.Object)
	if err != nil {
		return err
	}
	within := s.Duration("within", w.membershipTime())
	return k.judgeMembers(w.World, within, k.awaitMembers(ctx, w.World, within))
}

func (w executor) CreateEndpoints(ctx context.Context, s timeline.Step) error {
	h := &headless{name: s.Object, addresses: s.Addresses()}
	w.state().services[h.name] = h
	return h.create(ctx, w.World)
}

func (w executor) SetEndpoints(ctx context.Context, s timeline.Step) error {
	h := w.state().services[s.Object]
	if h == nil {
		return fmt.Errorf("there is no Service %q without a selector", s.Object)
	}
	h.addresses = s.Addresses()
	return h.update(ctx, w.World)
}

// errPodReplaced reports that a pod was replaced or restarted while a step waited for it.
var errPodReplaced = errors.New("the pod was replaced or restarted")

func deletion(seconds int64) resources.DeleteOption {
	return func(o *metav1.DeleteOptions) { o.GracePeriodSeconds = &seconds }
}
