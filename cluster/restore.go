package cluster

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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// RestoreAnnotation marks each changed object outside the run's namespace. The change and the annotation are one write, so that the
// object can be restored even if the run was killed.
const RestoreAnnotation = "hitless/put-back"

// Restore describes how to restore an object: the value of RestoreAnnotation, as JSON.
type Restore struct {
	Run      string           `json:"run"` // the run's namespace
	Uncordon bool             `json:"uncordon,omitempty"`
	Untaint  string           `json:"untaint,omitempty"` // key of the taint that was added
	Images   map[string]Image `json:"images,omitempty"`  // by container of the pod template
}

// Image is the image of a container before and after a change. It is restored only if its value is still Set.
type Image struct {
	Was string `json:"was"`
	Set string `json:"set"`
}

// Annotations returns the annotations of the changed object.
func (d Restore) Annotations() map[string]string {
	text, _ := json.Marshal(d) // never fails
	return map[string]string{RestoreAnnotation: string(text)}
}

// Changed is an object that a run has changed and not restored.
type Changed struct {
	Kind            string // Node or DaemonSet
	Namespace, Name string
	Restore         Restore
	images          map[string]string // current images, by container
	taints          []corev1.Taint    // current taints of a node
	version         string            // at which these are current
}

// String names the object and its changes.
func (o Changed) String() string {
	var what []string
	if o.Restore.Uncordon {
		what = append(what, "cordoned")
	}
	if o.Restore.Untaint != "" {
		what = append(what, "tainted with "+o.Restore.Untaint)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Restore.Images)) {
		what = append(what, fmt.Sprintf("given the image %s instead of %s", o.Restore.Images[name].Set, o.Restore.Images[name].Was))
	}
	return fmt.Sprintf("the %s %s, %s by %s", o.Kind, strings.TrimPrefix(o.Namespace+"/"+o.Name, "/"), strings.Join(what, " and "), o.Restore.Run)
}

// ChangedNodes lists the nodes that runs have changed and not restored. It needs `list nodes`.
func (c *Cluster) ChangedNodes(ctx context.Context) ([]Changed, error) {
	list, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing the nodes: %w", Explain(err))
	}
	var all []Changed
	var wrong []error
	for i := range list.Items {
		o, owes, err := readAnnotation("Node", &list.Items[i].ObjectMeta)
		if wrong = append(wrong, err); owes {
			o.taints, o.version = list.Items[i].Spec.Taints, list.Items[i].ResourceVersion
			all = append(all, o)
		}
	}
	return all, errors.Join(wrong...)
}

// ChangedDaemonSet returns a DaemonSet if a run has changed and not restored it. It needs `get daemonsets`.
func (c *Cluster) ChangedDaemonSet(ctx context.Context, namespace, name string) ([]Changed, error) {
	d, err := c.Client.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the DaemonSet %s/%s: %w", namespace, name, Explain(err))
	}
	return changedDaemonSets(*d)
}

// ChangedDaemonSets lists the DaemonSets that runs have changed and not restored. It needs `list daemonsets`.
func (c *Cluster) ChangedDaemonSets(ctx context.Context) ([]Changed, error) {
	list, err := c.Client.AppsV1().DaemonSets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing the DaemonSets: %w", Explain(err))
	}
	return changedDaemonSets(list.Items...)
}

func changedDaemonSets(sets ...appsv1.DaemonSet) (all []Changed, err error) {
	var wrong []error
	for i := range sets {
		o, owes, err := readAnnotation("DaemonSet", &sets[i].ObjectMeta)
		wrong = append(wrong, err)
		if !owes {
			continue
		}
		o.images = map[string]string{}
		for _, container := range sets[i].Spec.Template.Spec.Containers {
			o.images[container.Name] = container.Image
		}
		o.version = sets[i].ResourceVersion
		all = append(all, o)
	}
	return all, errors.Join(wrong...)
}

// readAnnotation reads the annotation of an object, and returns false if the object has none.
func readAnnotation(kind string, m *metav1.ObjectMeta) (o Changed, owes bool, err error) {
	text, owes := m.Annotations[RestoreAnnotation]
	if !owes {
		return o, false, nil
	}
	o = Changed{Kind: kind, Namespace: m.Namespace, Name: m.Name}
	if err := json.Unmarshal([]byte(text), &o.Restore); err != nil {
		return o, false, fmt.Errorf("the annotation %s of the %s %s cannot be read (%w): restore the object by hand, and remove the annotation", RestoreAnnotation, kind, m.Name, err)
	}
	return o, true, nil
}

// maxConflicts limits the consecutive conflicts of a write.
const maxConflicts = 10

// Restore restores an object and checks the result. Of a DaemonSet it restores the template; the controller replaces the pods.
func (c *Cluster) Restore(ctx context.Context, o Changed) (err error) {
	if o.Kind == "Node" {
		err = c.restoreNode(ctx, o)
	} else {
		err = c.restoreDaemonSet(ctx, o)
	}
	if err != nil {
		return fmt.Errorf("restoring %s: %w; `hitless clean` tries again", o, Explain(err))
	}
	return nil
}

// restoreNode replaces the whole list of a node's taints, as a patch must, and retries after a conflict.
func (c *Cluster) restoreNode(ctx context.Context, o Changed) error {
	for tried := 1; ; tried++ {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": o.version, "annotations": withoutAnnotation}, "spec": o.nodeSpec()})
		if err != nil {
			return err
		}
		n, err := c.Client.CoreV1().Nodes().Patch(ctx, o.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if apierrors.IsConflict(err) && tried < maxConflicts {
			all, err := c.ChangedNodes(ctx)
			i := slices.IndexFunc(all, func(now Changed) bool { return now.Name == o.Name })
			if i < 0 {
				return err // nil if the node is restored already
			}
			o = all[i]
			continue
		}
		switch {
		case err != nil:
			return err
		case o.Restore.Uncordon && n.Spec.Unschedulable, slices.ContainsFunc(n.Spec.Taints, o.addedTaint), n.Annotations[RestoreAnnotation] != "":
			return fmt.Errorf("the answer was a node with unschedulable=%t, the taints %v and the annotations %v", n.Spec.Unschedulable, n.Spec.Taints, n.Annotations)
		}
		return nil
	}
}

// withoutAnnotation removes the annotation.
var withoutAnnotation = map[string]any{RestoreAnnotation: nil}

// addedTaint reports whether the run added a taint.
func (o Changed) addedTaint(t corev1.Taint) bool {
	return o.Restore.Untaint != "" && t.Key == o.Restore.Untaint
}

func (o Changed) nodeSpec() map[string]any {
	spec := map[string]any{}
	if o.Restore.Uncordon {
		spec["unschedulable"] = nil
	}
	if o.Restore.Untaint != "" {
		spec["taints"] = slices.DeleteFunc(slices.Clone(o.taints), o.addedTaint)
	}
	return spec
}

// restoreDaemonSet replaces images that nobody else has changed meanwhile, and retries after a conflict.
func (c *Cluster) restoreDaemonSet(ctx context.Context, o Changed) error {
	for tried := 1; ; tried++ {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": o.version, "annotations": withoutAnnotation}, "spec": o.setSpec()})
		if err != nil {
			return err
		}
		d, err := c.Client.AppsV1().DaemonSets(o.Namespace).Patch(ctx, o.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		if apierrors.IsConflict(err) && tried < maxConflicts {
			now, err := c.ChangedDaemonSet(ctx, o.Namespace, o.Name)
			if err != nil || len(now) == 0 {
				return err // nil if the DaemonSet is restored already
			}
			o = now[0]
			continue
		}
		if err == nil && d.Annotations[RestoreAnnotation] != "" {
			err = errors.New("the annotation was not removed")
		}
		return err
	}
}

// setSpec returns the part of a strategic merge patch that restores a DaemonSet's images.
func (o Changed) setSpec() map[string]any {
	spec := map[string]any{}
	var containers []map[string]any
	for _, name := range slices.Sorted(maps.Keys(o.Restore.Images)) {
		if i := o.Restore.Images[name]; o.images[name] == i.Set { // otherwise the image was changed later
			containers = append(containers, map[string]any{"name": name, "image": i.Was})
		}
	}
	if len(containers) > 0 {
		spec["template"] = map[string]any{"spec": map[string]any{"containers": containers}}
	}
	return spec
}
