package scenarios

import (
	"context"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// newImage is the image that the proxies of a live cluster get.
var newImage = newText("image", "", "new image of the proxies, such as registry.k8s.io/kube-proxy:v1.37.1; must be given")

// proxyContainer is the container of a DaemonSet that runs the proxy: the only one, or the one with the DaemonSet's
// name.
func proxyContainer(d *appsv1.DaemonSet) (*corev1.Container, error) {
	var names []string
	for i := range d.Spec.Template.Spec.Containers {
		c := &d.Spec.Template.Spec.Containers[i]
		if c.Name == d.Name || len(d.Spec.Template.Spec.Containers) == 1 {
			return c, nil
		}
		names = append(names, c.Name)
	}
	return nil, fmt.Errorf("the DaemonSet %s/%s has the containers %s, and none has its name: which of them is the proxy is not known",
		d.Namespace, d.Name, strings.Join(names, ", "))
}

// upgradeSet gives the proxy's DaemonSet another image. An annotation stores the old image until the end of the run.
func (w *World) upgradeSet(ctx context.Context, d *appsv1.DaemonSet, c *corev1.Container, image string) error {
	return w.Step(ctx, fmt.Sprintf("put %s in the place of %s in the DaemonSet %s/%s", image, c.Image, d.Namespace, d.Name), "", func(ctx context.Context) error {
		return w.rollProxies(ctx, func(ctx context.Context, d *appsv1.DaemonSet) error {
			patch := map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
				"containers": []map[string]any{{"name": c.Name, "image": image}}}}}}
			w.mark(patch, Change{Images: map[string]ImageChange{c.Name: {Was: c.Image, Set: image}}})
			return w.patchSet(ctx, d, patch)
		})
	})
}

// upgradeSetThereAndBack is upgradeThereAndBack for a DaemonSet.
func (w *World) upgradeSetThereAndBack(ctx context.Context) error {
	d, err := w.proxySet(ctx)
	if err != nil {
		return err
	}
	c, err := proxyContainer(d)
	if err != nil {
		return err
	}
	if err := w.upgradeSet(ctx, d, c, newImage.Of(w.Params)); err != nil {
		return err
	}
	if err := w.Clock.Sleep(ctx, upgradeRest.Of(w.Params)); err != nil {
		return err
	}
	if upgradeBack.Of(w.Params) {
		return w.Step(ctx, fmt.Sprintf("put %s back into the DaemonSet %s/%s", c.Image, d.Namespace, d.Name), "", func(ctx context.Context) error {
			return w.rollProxies(ctx, func(ctx context.Context, _ *appsv1.DaemonSet) error {
				m, err := part[Marks](w.Site, MarkedChanges)
				if err != nil {
					return err
				}
				return m.PutBack(ctx)
			})
		})
	}
	return nil
}

// keepNewImage removes the annotation with the old image, because the upgrade is to stay.
func (w *World) keepNewImage(ctx context.Context) error {
	d, err := w.proxySet(ctx)
	if err != nil {
		return err
	}
	m, err := part[Marks](w.Site, MarkedChanges)
	if err != nil {
		return err
	}
	gone := map[string]any{}
	for key := range m.Mark(Change{}) {
		gone[key] = nil
	}
	return w.patchSet(ctx, d, map[string]any{"metadata": map[string]any{"annotations": gone}})
}

// touchesImage lists what an upgrade of the proxy's DaemonSet changes.
func (w *World) touchesImage(ctx context.Context) ([]string, error) {
	lines, err := w.touchesSet(ctx)
	if err != nil {
		return nil, err
	}
	d, err := w.proxySet(ctx)
	if err != nil {
		return nil, err
	}
	c, err := proxyContainer(d)
	image := newImage.Of(w.Params)
	switch {
	case err != nil:
		return nil, err
	case image == "":
		return nil, errors.New("what the proxies become must be known: give --set image=IMAGE, such as --set image=registry.k8s.io/kube-proxy:v1.37.1")
	case image == c.Image:
		return nil, fmt.Errorf("--set image=%s: that is the image of the container %s already; its own restart is `hitless run restart`", image, c.Name)
	}
	line := fmt.Sprintf("its container %s gets the image %s in the place of %s", c.Name, image, c.Image)
	if upgradeBack.Of(w.Params) {
		line += ", and then that again"
	}
	return append(lines, line+"; a run that fails or is interrupted puts it back"), nil
}
