package kubelet

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/record"
)

// The kubelet's back-off of restarts: 10 s, doubled up to 5 min, reset after 10 min of running. The first
// restart is immediate.
const (
	firstBackoff = 10 * time.Second
	maxBackoff   = 5 * time.Minute
	forgetAfter  = 10 * time.Minute
)

// minimumGrace is the minimum time between SIGTERM and SIGKILL, also after a long preStop (minimumGracePeriodInSeconds
// in the kubelet's kuberuntime_container.go).
const minimumGrace = 2 * time.Second

// container is a container of a pod, across its restarts.
type container struct {
	pod      *pod
	spec     *corev1.Container
	init     bool          // an init container, or a sidecar
	begun    bool          // it has started once, with its startup probe and postStart
	run      *containerRun // nil while no process runs
	last     *corev1.ContainerStateTerminated
	waiting  *corev1.ContainerStateWaiting // why no process runs
	finished bool                          // it has ended and is not restarted
	starts   int32
	backoff  time.Duration
	retry    *time.Timer
}

// containerRun is one process of a container.
type containerRun struct {
	proc      process
	sandbox   sandbox
	launch    launch   // what was started
	log       string   // name of its log
	file      string   // of its log
	input     *os.File // what is written there is its standard input; nil without one
	inputOnce bool     // the first client that attaches ends the input
	began     time.Time
	seen      bool // a relist of the kubelet has seen it running
	hooking   bool // its postStart runs; probes wait for it
	started   bool // the startup probe has passed, or there is none
	ready     bool
	stop      *grace // set once termination has begun

	alive        context.Context // ends with the process
	died         context.CancelFunc
	probing      context.Context // ends when termination begins; the context of liveness and startup probes
	cancelProbes context.CancelFunc
}

// start starts a process of the container and retries a failed start after the back-off.
func (c *container) start(ctx context.Context) {
	if c.run != nil || c.pod.stop != nil {
		return
	}
	l, err := c.launch()
	if err != nil {
		c.waiting = waitingFor(err)
		return // a retry would fail too
	}
	input, err := c.openInput(&l)
	if err != nil {
		c.waiting = waitingFor(err)
		return
	}
	log := c.logName(c.starts)
	proc, err := c.pod.sandbox.start(log, l)
	if err != nil {
		l.close()
		c.waiting = &corev1.ContainerStateWaiting{Reason: "RunContainerError", Message: err.Error()}
		c.restartAfter(ctx, c.nextBackoff())
		return
	}
	r := &containerRun{proc: proc, sandbox: c.pod.sandbox, launch: l, log: log, input: input, inputOnce: c.spec.StdinOnce, began: time.Now()}
	if c.ofImage() {
		r.file = c.pod.k.Procs.LogFile(log)
	}
	r.alive, r.died = context.WithCancel(ctx)
	r.probing, r.cancelProbes = context.WithCancel(r.alive)
	c.run, c.waiting = r, nil
	c.starts++
	c.pod.record(record.PodStarted, fmt.Sprintf("container %s, start %d", c.spec.Name, c.starts))
	c.pod.k.live.Go(func() {
		<-proc.Done()
		c.pod.post(func() { c.exited(ctx, r) })
	})
	c.pod.after(c.pod.k.Relist, func() { c.seenRunning(r) })
	c.watchStorage(r)
	c.postStart(ctx, r)
}

// logName is the name of the log of a start, counted from 0. All stand-ins of a container share a log.
func (c *container) logName(start int32) string {
	name := LogName(c.pod.namespace, c.pod.name, c.spec.Name)
	if !c.ofImage() {
		return name
	}
	return fmt.Sprintf("%s-%s-%d", name, c.pod.object.UID, start)
}

// LogName is the name of a container's log among those of the lab's programs.
func LogName(namespace, pod, container string) string {
	return "pod-" + namespace + "-" + pod + "-" + container
}

// seenRunning starts the probes when a relist sees the container.
func (c *container) seenRunning(r *containerRun) {
	if c.run != r {
		return
	}
	r.seen = true
	if r.hooking {
		return
	}
	if probe := c.spec.StartupProbe; probe != nil {
		c.probe(r.probing, r, probe, untilFirst, func(ok bool) {
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

// hasStarted starts the readiness and liveness probes. The readiness probe continues during termination.
func (c *container) hasStarted(r *containerRun) {
	r.started, c.begun = true, true
	c.pod.advance(r.alive)
	if probe := c.spec.ReadinessProbe; probe != nil {
		c.probe(r.alive, r, probe, untilNever, func(ok bool) { r.ready = ok })
	} else {
		r.ready = true
	}
	if probe := c.spec.LivenessProbe; probe != nil {
		c.probe(r.probing, r, probe, untilFailure, func(ok bool) {
			if !ok {
				c.end(newGrace(r.alive, probeGrace(c.pod.object, probe)))
			}
		})
	}
}

// probe runs a probe; decided runs on the pod's goroutine whenever a threshold is reached.
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

// end terminates the container within the grace period: preStop, SIGTERM, SIGKILL. Another call may shorten the grace
// period.
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
		r.cancelProbes()
		c.pod.k.live.Go(func() { c.terminate(r, g) })
	}
}

// terminate implements end; it returns when the process has ended or SIGKILL was sent.
func (c *container) terminate(r *containerRun, g *grace) {
	log := c.pod.k.Log.With("pod", c.pod.name, "container", c.spec.Name)
	if c.spec.Lifecycle != nil && c.spec.Lifecycle.PreStop != nil {
		if err := c.hook(g.expired, r, c.spec.Lifecycle.PreStop); err != nil && r.alive.Err() == nil {
			log.Warn("preStop did not end well; SIGTERM comes next", "error", err)
		}
	}
	if r.alive.Err() != nil {
		return
	}
	c.pod.record(record.PodSigterm, "container "+c.spec.Name)
	if err := r.proc.Signal(syscall.SIGTERM); err != nil {
		log.Warn("sending SIGTERM", "error", err)
	}
	minimum := time.NewTimer(minimumGrace)
	defer minimum.Stop()
	select {
	case <-r.proc.Done():
		return
	case <-g.expired.Done():
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

// kill sends SIGKILL and waits for the end of the process.
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

// exited handles the end of a process and restarts it if the pod's restart policy says so.
func (c *container) exited(ctx context.Context, r *containerRun) {
	r.died()
	r.launch.close()
	text := r.proc.ExitText()
	c.last = &corev1.ContainerStateTerminated{ExitCode: exitCode(text), Reason: "Completed", Message: c.message(text),
		StartedAt: metav1.NewTime(r.began), FinishedAt: metav1.Now(), ContainerID: c.id()}
	if c.last.ExitCode != 0 {
		c.last.Reason = "Error"
	}
	if r.stop != nil && r.stop != c.pod.stop {
		r.stop.release()
	}
	c.run = nil
	c.pod.record(record.PodExited, fmt.Sprintf("container %s, %s", c.spec.Name, text))
	policy := c.policy()
	if c.pod.stop != nil {
		c.pod.terminateAll(c.pod.stop)
		return
	}
	if c.pod.evicted != "" || policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure && c.last.ExitCode == 0 {
		c.finished = true
		c.pod.advance(ctx)
		c.pod.retireFinished(ctx)
		return
	}
	if time.Since(r.began) >= forgetAfter {
		c.backoff = 0
	}
	c.restartAfter(ctx, c.nextBackoff())
}

// nextBackoff returns the wait before the next start.
func (c *container) nextBackoff() time.Duration {
	wait := c.backoff
	c.backoff = min(maxBackoff, max(firstBackoff, 2*c.backoff))
	return wait
}

func (c *container) restartAfter(ctx context.Context, wait time.Duration) {
	if wait > 0 && c.last != nil {
		c.waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff",
			Message: fmt.Sprintf("back-off %s restarting failed container=%s", wait, c.spec.Name)}
	}
	c.retry = c.pod.after(wait, func() {
		c.retry = nil
		c.start(ctx)
	})
}

func (c *container) id() string {
	return fmt.Sprintf("hitless://%s/%s/%d", c.pod.object.UID, c.spec.Name, c.starts)
}
