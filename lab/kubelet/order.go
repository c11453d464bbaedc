package kubelet

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// all are the init containers and the others, in the order of their starts.
func (p *pod) all() []*container { return slices.Concat(p.inits, p.containers) }

// sidecar reports whether an init container runs as long as the pod.
func (c *container) sidecar() bool {
	return c.init && c.spec.RestartPolicy != nil && *c.spec.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// initialized reports whether an init container lets the next one start: it has succeeded, or is a sidecar that has started.
func (c *container) initialized() bool {
	if c.sidecar() {
		return c.begun || c.run != nil && c.run.started
	}
	return c.finished && c.last != nil && c.last.ExitCode == 0
}

// advance starts the next init container, or all others when these are done.
func (p *pod) advance(ctx context.Context) {
	if p.stop != nil || p.inputs == nil {
		return
	}
	for _, c := range p.inits {
		if c.initialized() {
			continue
		}
		if c.run == nil && c.retry == nil && !c.finished {
			c.start(ctx)
		}
		return
	}
	for _, c := range p.containers {
		if c.run == nil && c.retry == nil && !c.finished {
			c.start(ctx)
		}
	}
}

// podInitialized reports whether all init containers are done.
func (p *pod) podInitialized() bool {
	return !slices.ContainsFunc(p.inits, func(c *container) bool { return !c.initialized() })
}

// policy is the restart policy of a container.
func (c *container) policy() corev1.RestartPolicy {
	switch {
	case c.sidecar():
		return corev1.RestartPolicyAlways
	case c.init && c.pod.object.Spec.RestartPolicy == corev1.RestartPolicyAlways:
		return corev1.RestartPolicyOnFailure
	}
	return c.pod.object.Spec.RestartPolicy
}

// terminateAll ends the pod's containers: sidecars in the reverse order of their starts, when all others have ended.
func (p *pod) terminateAll(g *grace) {
	alive := false
	for _, c := range p.all() {
		if !c.sidecar() {
			c.end(g)
			alive = alive || c.run != nil
		}
	}
	for _, c := range slices.Backward(p.inits) {
		if !c.sidecar() {
			continue
		}
		if !alive {
			c.end(g)
		}
		alive = alive || c.run != nil
	}
}
