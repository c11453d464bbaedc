package kubelet

import (
	"context"
	"fmt"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The kubelet's back-off of containers that end: 10 s, doubled up to 5 min, forgotten after 10 min of running. The first
// restart comes at once.
const (
	firstBackoff = 10 * time.Second
	maxBackoff   = 5 * time.Minute
	forgetAfter  = 10 * time.Minute
)

// minimumGrace is the least time between SIGTERM and SIGKILL, whatever preStop has used up (minimumGracePeriodInSeconds
// in the kubelet's kuberuntime_container.go).
const minimumGrace = 2 * time.Second

// container is one container of a pod, over all its restarts.
type container struct {
	pod      *pod
	spec     *corev1.Container
	run      *containerRun // nil while no process runs
	last     *corev1.ContainerStateTerminated
	waiting  *corev1.ContainerStateWaiting // why no process runs
	finished bool                          // it has ended and is not started again
	starts   int32
	backoff  time.Duration
	retry    *time.Timer
}

// containerRun is one process of a container.
type containerRun struct {
	proc    process
	sandbox sandbox
	env     []string
	began   time.Time
	seen    bool // the kubelet has noticed that it runs
	started bool // the startup probe has passed, or there is none
	ready   bool
	stop    *grace // not nil once it is told to end

	alive     context.Context // ends with the process
	died      context.CancelFunc
	vital     context.Context // ends when the container is told to end: no liveness or startup probes after that
	dismissed context.CancelFunc
}

// start starts a process of the container; a failure is tried again after the back-off.
func (c *container) start(ctx context.Context) {
	if c.run != nil || c.pod.stop != nil {
		return
	}
	argv, env, err := c.command()
	if err != nil {
		c.waiting = waitingFor(err)
		return // it is as wrong the next time
	}
	proc, err := c.pod.sandbox.start(c.logName(), argv, env)
	if err != nil {
		c.waiting = &corev1.ContainerStateWaiting{Reason: "RunContainerError", Message: err.Error()}
		c.again(ctx, c.nextBackoff())
		return
	}
	r := &containerRun{proc: proc, sandbox: c.pod.sandbox, env: env, began: time.Now()}
	r.alive, r.died = context.WithCancel(ctx)
	r.vital, r.dismissed = context.WithCancel(r.alive)
	c.run, c.waiting = r, nil
	c.starts++
	c.pod.record("started", fmt.Sprintf("container %s, start %d", c.spec.Name, c.starts))
	c.pod.k.live.Go(func() {
		<-proc.Done()
		c.pod.post(func() { c.exited(ctx, r) })
	})
	c.pod.after(c.pod.k.Relist, func() { c.noticed(r) })
}

func (c *container) logName() string {
	return "pod-" + c.pod.namespace + "-" + c.pod.name + "-" + c.spec.Name
}

// noticed is the moment when the kubelet hears that the container runs: probing begins.
func (c *container) noticed(r *containerRun) {
	if c.run != r {
		return
	}
	r.seen = true
	if probe := c.spec.StartupProbe; probe != nil {
		c.probe(r.vital, r, probe, always, func(ok bool) {
			if ok {
				c.hasStarted(r)
			} else {
				c.end(newGrace(r.alive, probeGrace(c.pod.object, probe)))
			}
		})
		return
	}
	c.hasStarted(r)
}

// hasStarted starts the readiness and liveness probes. Readiness goes on while the container is being ended.
func (c *container) hasStarted(r *containerRun) {
	r.started = true
	if probe := c.spec.ReadinessProbe; probe != nil {
		c.probe(r.alive, r, probe, never, func(ok bool) { r.ready = ok })
	} else {
		r.ready = true
	}
	if probe := c.spec.LivenessProbe; probe != nil {
		c.probe(r.vital, r, probe, onFailure, func(ok bool) {
			if !ok {
				c.end(newGrace(r.alive, probeGrace(c.pod.object, probe)))
			}
		})
	}
}

// probe runs a probe; decided is called on the pod's goroutine whenever a threshold is reached.
func (c *container) probe(ctx context.Context, r *containerRun, spec *corev1.Probe, last until, decided func(ok bool)) {
	check := c.check(r, spec)
	c.pod.k.live.Go(func() {
		keepProbing(ctx, spec, r.began, check, last, func(ok bool) {
			c.pod.post(func() {
				if c.run == r && ctx.Err() == nil {
					decided(ok)
				}
			})
		})
	})
}

// end tells the container to end within the grace: preStop, SIGTERM, SIGKILL. It may be called again with less grace.
func (c *container) end(g *grace) {
	if c.retry != nil {
		c.retry.Stop()
	}
	r := c.run
	switch {
	case r == nil:
	case r.stop != nil:
		r.stop.shorten(g.left())
	default:
		r.stop = g
		r.dismissed()
		c.pod.k.live.Go(func() { c.terminate(r, g) })
	}
}

// terminate does what end promises and returns when the process has ended or SIGKILL was sent.
func (c *container) terminate(r *containerRun, g *grace) {
	log := c.pod.k.Log.With("pod", c.pod.name, "container", c.spec.Name)
	if c.spec.Lifecycle != nil && c.spec.Lifecycle.PreStop != nil {
		if err := c.hook(g.over, r, c.spec.Lifecycle.PreStop); err != nil && r.alive.Err() == nil {
			log.Warn("preStop did not end well; SIGTERM comes next", "error", err)
		}
	}
	if r.alive.Err() != nil {
		return
	}
	c.pod.record("sigterm", "container "+c.spec.Name)
	if err := r.proc.Signal(syscall.SIGTERM); err != nil {
		log.Warn("sending SIGTERM", "error", err)
	}
	minimum := time.NewTimer(minimumGrace)
	defer minimum.Stop()
	select {
	case <-r.proc.Done():
		return
	case <-g.over.Done():
	}
	select {
	case <-r.proc.Done():
		return
	case <-minimum.C:
	}
	if err := r.proc.Signal(syscall.SIGKILL); err != nil {
		log.Warn("sending SIGKILL", "error", err)
	}
}

// kill ends the process at once and waits for its end.
func (c *container) kill() {
	if c.retry != nil {
		c.retry.Stop()
	}
	if c.run == nil {
		return
	}
	if err := c.run.proc.Signal(syscall.SIGKILL); err == nil {
		<-c.run.proc.Done()
	}
	c.run.died()
}

// exited takes the end of a process and starts the next one if the pod's restart policy wants it.
func (c *container) exited(ctx context.Context, r *containerRun) {
	r.died()
	text := r.proc.ExitText()
	c.last = &corev1.ContainerStateTerminated{ExitCode: exitCode(text), Reason: "Completed", Message: text,
		StartedAt: metav1.NewTime(r.began), FinishedAt: metav1.Now(), ContainerID: c.id()}
	if c.last.ExitCode != 0 {
		c.last.Reason = "Error"
	}
	if r.stop != nil && r.stop != c.pod.stop {
		r.stop.release()
	}
	c.run = nil
	c.pod.record("exited", fmt.Sprintf("container %s, %s", c.spec.Name, text))
	policy := c.pod.object.Spec.RestartPolicy
	if c.pod.stop != nil {
		return
	}
	if policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure && c.last.ExitCode == 0 {
		c.finished = true
		c.pod.retireFinished()
		return
	}
	if time.Since(r.began) >= forgetAfter {
		c.backoff = 0
	}
	c.again(ctx, c.nextBackoff())
}

// nextBackoff is how long to wait before the next start.
func (c *container) nextBackoff() time.Duration {
	wait := c.backoff
	c.backoff = min(maxBackoff, max(firstBackoff, 2*c.backoff))
	return wait
}

func (c *container) again(ctx context.Context, wait time.Duration) {
	if wait > 0 && c.last != nil {
		c.waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff",
			Message: fmt.Sprintf("back-off %s restarting failed container=%s", wait, c.spec.Name)}
	}
	c.retry = c.pod.after(wait, func() { c.start(ctx) })
}

func (c *container) id() string {
	return fmt.Sprintf("hitless://%s/%s/%d", c.pod.object.UID, c.spec.Name, c.starts)
}
