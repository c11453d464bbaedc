package kubelet

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/record"
)

// report writes changes of the status to the API and the record.
func (p *pod) report() {
	status := p.status()
	p.recordReadiness(status)
	if apiequality.Semantic.DeepEqual(status, p.reported) && !p.readinessOverridden(status) {
		return
	}
	p.reported = status
	if p.writer != nil {
		p.writer.put(status)
	}
}

// recordReadiness records a change of the Ready condition.
func (p *pod) recordReadiness(status corev1.PodStatus) {
	ready := conditionTrue(status.Conditions, corev1.PodReady)
	if ready == p.ready {
		return
	}
	if p.ready = ready; ready {
		p.record(record.PodReady, "its containers are ready")
	} else {
		p.record(record.PodUnready, "its containers are not ready")
	}
}

// readinessOverridden reports whether another writer has changed the pod's readiness in the API, as the node lifecycle
// controller does. The kubelet then writes its own again.
func (p *pod) readinessOverridden(status corev1.PodStatus) bool {
	return p.writer != nil && p.writer.newerThanLastWrite(p.object) &&
		conditionTrue(p.object.Status.Conditions, corev1.PodReady) != conditionTrue(status.Conditions, corev1.PodReady)
}

// status returns the status that a kubelet would report now.
func (p *pod) status() corev1.PodStatus {
	s := corev1.PodStatus{Phase: p.phase(), StartTime: &p.begun, ObservedGeneration: p.object.Generation,
		HostIP: p.k.Node.Addr.String()}
	for _, a := range p.k.Node.Addrs() {
		s.HostIPs = append(s.HostIPs, corev1.HostIP{IP: a.String()})
	}
	if p.addr.IsValid() && (p.anySeen() || p.k.Workloads != nil && p.sandbox != nil) {
		s.PodIP = p.addr.String()
		for _, a := range p.addrs {
			s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: a.String()})
		}
	}
	if p.evicted != "" {
		s.Phase, s.Reason, s.Message = corev1.PodFailed, "Evicted", p.evicted
	}
	var unready []string
	for _, c := range p.inits {
		cs := c.status()
		cs.Ready = c.initialized() && (!c.sidecar() || cs.Ready)
		if c.sidecar() && !cs.Ready {
			unready = append(unready, c.spec.Name)
		}
		s.InitContainerStatuses = append(s.InitContainerStatuses, cs)
	}
	for _, c := range p.containers {
		cs := c.status()
		s.ContainerStatuses = append(s.ContainerStatuses, cs)
		if !cs.Ready {
			unready = append(unready, c.spec.Name)
		}
	}
	p.conditions = p.newConditions(s.Phase, unready)
	s.Conditions = p.conditions
	return s
}

// anySeen reports whether a container was ever seen running: the kubelet learns the pod's address with it.
func (p *pod) anySeen() bool {
	for _, c := range p.containers {
		if c.last != nil || c.run != nil && c.run.seen {
			return true
		}
	}
	return false
}

// phase follows getPhase in the kubelet's kubelet_pods.go, and the rule that a deleted pod ends as Succeeded or Failed.
func (p *pod) phase() corev1.PodPhase {
	var running, unstarted, failed int
	for _, c := range p.containers {
		switch {
		case c.run != nil && (c.run.seen || c.last != nil):
			running++
		case c.last == nil:
			unstarted++
		case c.last.ExitCode != 0:
			failed++
		}
	}
	switch {
	case p.hasEnded() || p.completed():
		if failed+unstarted > 0 {
			return corev1.PodFailed
		}
		return corev1.PodSucceeded
	case unstarted > 0 && p.stop == nil:
		return corev1.PodPending
	case running == 0 && p.object.Status.Phase == corev1.PodPending && p.stop != nil:
		return corev1.PodPending
	}
	return corev1.PodRunning
}

func (c *container) status() corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: c.spec.Name, Image: c.spec.Image, ImageID: c.spec.Image, Started: new(bool),
		RestartCount: max(0, c.starts-1)}
	if c.starts > 0 {
		s.ContainerID = c.id()
	}
	r := c.run
	switch {
	case r != nil && r.seen:
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(r.began)}
		*s.Started = r.started
		s.Ready = r.started && r.ready
	case c.waiting != nil:
		s.State.Waiting = c.waiting
	case r == nil && c.last != nil:
		s.State.Terminated = c.last
		return s
	case c.pod.startErr != nil:
		s.State.Waiting = waitingFor(c.pod.startErr)
	case !c.init && !c.pod.podInitialized():
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "PodInitializing"}
	default:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	}
	if c.last != nil {
		s.LastTerminationState.Terminated = c.last
	}
	return s
}

// newConditions returns the conditions that a kubelet owns, with the time of each one's last change.
func (p *pod) newConditions(phase corev1.PodPhase, unready []string) []corev1.PodCondition {
	containers := corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}
	switch {
	case phase == corev1.PodSucceeded:
		containers.Status, containers.Reason = corev1.ConditionFalse, "PodCompleted"
	case phase == corev1.PodFailed:
		containers.Status, containers.Reason = corev1.ConditionFalse, "PodFailed"
	case len(unready) > 0:
		containers.Status, containers.Reason = corev1.ConditionFalse, "ContainersNotReady"
		containers.Message = fmt.Sprintf("containers with unready status: [%s]", strings.Join(unready, " "))
	}
	ready := containers
	ready.Type = corev1.PodReady
	if missing := p.falseGates(); ready.Status == corev1.ConditionTrue && len(missing) > 0 {
		ready.Status, ready.Reason = corev1.ConditionFalse, "ReadinessGatesNotReady"
		ready.Message = "readiness gates that are not true: " + strings.Join(missing, ", ")
	}
	all := []corev1.PodCondition{
		{Type: corev1.PodReadyToStartContainers, Status: conditionStatus(p.sandbox != nil)},
		p.initializedCondition(),
		ready, containers,
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
	}
	for i := range all {
		all[i].ObservedGeneration = p.object.Generation
		all[i].LastTransitionTime = p.since(all[i])
	}
	return all
}

// initializedCondition tells whether the init containers are done.
func (p *pod) initializedCondition() corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.PodInitialized, Status: conditionStatus(p.podInitialized())}
	if c.Status == corev1.ConditionTrue {
		return c
	}
	c.Reason = "ContainersNotInitialized"
	var waiting []string
	for _, i := range p.inits {
		if !i.initialized() {
			waiting = append(waiting, i.spec.Name)
		}
	}
	c.Message = fmt.Sprintf("containers with incomplete status: [%s]", strings.Join(waiting, " "))
	return c
}

// since returns the time of a condition's last change, also if the scheduler or an earlier kubelet wrote it.
func (p *pod) since(c corev1.PodCondition) metav1.Time {
	for _, known := range [][]corev1.PodCondition{p.conditions, p.object.Status.Conditions} {
		for _, old := range known {
			if old.Type == c.Type && old.Status == c.Status {
				return old.LastTransitionTime
			}
		}
	}
	return metav1.NewTime(time.Now())
}

// falseGates returns the readiness gates whose condition is not True.
func (p *pod) falseGates() []string {
	var closed []string
	for _, gate := range p.object.Spec.ReadinessGates {
		if !conditionTrue(p.object.Status.Conditions, gate.ConditionType) {
			closed = append(closed, string(gate.ConditionType))
		}
	}
	return closed
}

func conditionTrue(all []corev1.PodCondition, kind corev1.PodConditionType) bool {
	for _, c := range all {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func conditionStatus(b bool) corev1.ConditionStatus {
	if b {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

// statusPatch returns a strategic merge patch of the status. Conditions merge by type, so a removed reason must be null
// in the patch.
func statusPatch(uid string, status corev1.PodStatus) ([]byte, error) {
	text, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	if conditions, ok := fields["conditions"].([]any); ok {
		for _, c := range conditions {
			condition, ok := c.(map[string]any)
			if !ok {
				continue
			}
			for _, name := range []string{"reason", "message"} {
				if _, set := condition[name]; !set {
					condition[name] = nil
				}
			}
		}
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": fields})
}
