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

// DebtAnnotation stands on each object that a run has changed and that is not the run's own, for as long as it is changed. It
// comes with the change in one write, so that whatever becomes of the run, the cluster itself knows what is to be put back.
const DebtAnnotation = "hitless/put-back"

// Debt is what puts an object back: the value of DebtAnnotation, as JSON.
type Debt struct {
	Run      string           `json:"run"` // the run's namespace
	Uncordon bool             `json:"uncordon,omitempty"`
	Untaint  string           `json:"untaint,omitempty"` // key of the taint that was added
	Images   map[string]Image `json:"images,omitempty"`  // by container of the pod template
}

// Image is what a container's image was, and what a run made it. Only while it is that is it put back.
type Image struct {
	Was string `json:"was"`
	Set string `json:"set"`
}

// Annotations are those that go with the change.
func (d Debt) Annotations() map[string]string {
	text, _ := json.Marshal(d) // of words and truths
	return map[string]string{DebtAnnotation: string(text)}
}

// Owed is an object that a run has changed.
type Owed struct {
	Kind            string // Node or DaemonSet
	Namespace, Name string
	Debt            Debt
	images          map[string]string // that the containers have now
	taints          []corev1.Taint    // likewise, of a node at the version
	version         string
}

// String names the object and what is to be put back.
func (o Owed) String() string {
	var what []string
	if o.Debt.Uncordon {
		what = append(what, "cordoned")
	}
	if o.Debt.Untaint != "" {
		what = append(what, "tainted with "+o.Debt.Untaint)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Debt.Images)) {
		what = append(what, fmt.Sprintf("given the image %s in the place of %s", o.Debt.Images[name].Set, o.Debt.Images[name].Was))
	}
	return fmt.Sprintf("the %s %s, %s by %s", o.Kind, strings.TrimPrefix(o.Namespace+"/"+o.Name, "/"), strings.Join(what, " and "), o.Debt.Run)
}

// OwedNodes lists the nodes that runs have changed and not put back. It needs `list nodes`.
func (c *Cluster) OwedNodes(ctx context.Context) ([]Owed, error) {
	list, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing the nodes: %w", Explain(err))
	}
	var all []Owed
	var wrong []error
	for i := range list.Items {
		o, owes, err := owedBy("Node", &list.Items[i].ObjectMeta)
		if wrong = append(wrong, err); owes {
			o.taints, o.version = list.Items[i].Spec.Taints, list.Items[i].ResourceVersion
			all = append(all, o)
		}
	}
	return all, errors.Join(wrong...)
}

// OwedDaemonSet tells whether runs have changed a DaemonSet and not put it back. It needs `get daemonsets`.
func (c *Cluster) OwedDaemonSet(ctx context.Context, namespace, name string) ([]Owed, error) {
	d, err := c.Client.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the DaemonSet %s/%s: %w", namespace, name, Explain(err))
	}
	return owedSets(*d)
}

// OwedDaemonSets lists the DaemonSets that runs have changed and not put back. It needs `list daemonsets`.
func (c *Cluster) OwedDaemonSets(ctx context.Context) ([]Owed, error) {
	list, err := c.Client.AppsV1().DaemonSets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing the DaemonSets: %w", Explain(err))
	}
	return owedSets(list.Items...)
}

func owedSets(sets ...appsv1.DaemonSet) (all []Owed, err error) {
	var wrong []error
	for i := range sets {
		o, owes, err := owedBy("DaemonSet", &sets[i].ObjectMeta)
		wrong = append(wrong, err)
		if !owes {
			continue
		}
		o.images = map[string]string{}
		for _, container := range sets[i].Spec.Template.Spec.Containers {
			o.images[container.Name] = container.Image
		}
		all = append(all, o)
	}
	return all, errors.Join(wrong...)
}

// owedBy reads the annotation of an object, if it has one.
func owedBy(kind string, m *metav1.ObjectMeta) (o Owed, owes bool, err error) {
	text, owes := m.Annotations[DebtAnnotation]
	if !owes {
		return o, false, nil
	}
	o = Owed{Kind: kind, Namespace: m.Namespace, Name: m.Name}
	if err := json.Unmarshal([]byte(text), &o.Debt); err != nil {
		return o, false, fmt.Errorf("the annotation %s of the %s %s cannot be read (%w): put it back by hand, and take the annotation away", DebtAnnotation, kind, m.Name, err)
	}
	return o, true, nil
}

// conflicts is how often a write may meet another one in a row.
const conflicts = 10

// PutBack makes an object what it was, and sees that it is. Of a DaemonSet that is its template; its pods follow by themselves.
func (c *Cluster) PutBack(ctx context.Context, o Owed) (err error) {
	if o.Kind == "Node" {
		err = c.putNodeBack(ctx, o)
	} else {
		err = c.putSetBack(ctx, o)
	}
	if err != nil {
		return fmt.Errorf("putting back %s: %w; `hitless clean` tries again", o, Explain(err))
	}
	return nil
}

// putNodeBack writes a node's taints all at once, as a patch must, again where the node has been written meanwhile.
func (c *Cluster) putNodeBack(ctx context.Context, o Owed) error {
	for tried := 1; ; tried++ {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": o.version, "annotations": unmarked}, "spec": o.nodeSpec()})
		if err != nil {
			return err
		}
		n, err := c.Client.CoreV1().Nodes().Patch(ctx, o.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if apierrors.IsConflict(err) && tried < conflicts {
			all, err := c.OwedNodes(ctx)
			i := slices.IndexFunc(all, func(now Owed) bool { return now.Name == o.Name })
			if i < 0 {
				return err // somebody else has put it back, if the list could be read
			}
			o = all[i]
			continue
		}
		switch {
		case err != nil:
			return err
		case o.Debt.Uncordon && n.Spec.Unschedulable, slices.ContainsFunc(n.Spec.Taints, o.added), n.Annotations[DebtAnnotation] != "":
			return fmt.Errorf("the answer was a node with unschedulable=%t, the taints %v and the annotations %v", n.Spec.Unschedulable, n.Spec.Taints, n.Annotations)
		}
		return nil
	}
}

// unmarked are the annotations of an object that is put back.
var unmarked = map[string]any{DebtAnnotation: nil}

// added reports whether a taint is the run's.
func (o Owed) added(t corev1.Taint) bool { return o.Debt.Untaint != "" && t.Key == o.Debt.Untaint }

func (o Owed) nodeSpec() map[string]any {
	spec := map[string]any{}
	if o.Debt.Uncordon {
		spec["unschedulable"] = nil
	}
	if o.Debt.Untaint != "" {
		spec["taints"] = slices.DeleteFunc(slices.Clone(o.taints), o.added)
	}
	return spec
}

func (c *Cluster) putSetBack(ctx context.Context, o Owed) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": unmarked}, "spec": o.setSpec()})
	if err != nil {
		return err
	}
	d, err := c.Client.AppsV1().DaemonSets(o.Namespace).Patch(ctx, o.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err == nil && d.Annotations[DebtAnnotation] != "" {
		err = errors.New("its annotation is still there")
	}
	return err
}

// setSpec is the part of a strategic merge patch that puts a DaemonSet's images back.
func (o Owed) setSpec() map[string]any {
	spec := map[string]any{}
	var containers []map[string]any
	for _, name := range slices.Sorted(maps.Keys(o.Debt.Images)) {
		if i := o.Debt.Images[name]; o.images[name] == i.Set { // else somebody has changed it since
			containers = append(containers, map[string]any{"name": name, "image": i.Was})
		}
	}
	if len(containers) > 0 {
		spec["template"] = map[string]any{"spec": map[string]any{"containers": containers}}
	}
	return spec
}
