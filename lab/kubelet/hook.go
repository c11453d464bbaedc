package kubelet

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// hook runs a hook until it or ctx ends.
func (c *container) hook(ctx context.Context, r *containerRun, h *corev1.LifecycleHandler) error {
	switch {
	case h.Sleep != nil:
		if !pause(ctx, time.Duration(h.Sleep.Seconds)*time.Second) {
			return fmt.Errorf("sleeping %d s: the grace period was over first", h.Sleep.Seconds)
		}
		return nil
	case h.Exec != nil:
		return c.runCommand(ctx, r, h.Exec.Command)
	case h.HTTPGet != nil:
		return c.get(ctx, h.HTTPGet)
	}
	return nil
}

// runCommand runs a command in the container and waits for its end. A stand-in has no file system: its program is one of the machine that
// runs the lab, and sleeping is built in, because a guest may have no program for it.
func (c *container) runCommand(ctx context.Context, r *containerRun, argv []string) error {
	if len(argv) == 0 {
		return fmt.Errorf("the command is empty")
	}
	l := launch{argv: argv, env: r.launch.env, root: r.launch.root, dir: r.launch.dir}
	if l.root == nil {
		if d, ok := sleepOf(argv); ok {
			if !pause(ctx, d) {
				return fmt.Errorf("sleeping %s: %w", d, ctx.Err())
			}
			return nil
		}
		path, err := exec.LookPath(argv[0])
		if err != nil {
			return fmt.Errorf("finding the command (pods of the lab have no file system of their own): %w", err)
		}
		l.argv = append([]string{path}, argv[1:]...)
	}
	proc, err := r.sandbox.start(LogName(c.pod.namespace, c.pod.name, c.spec.Name)+"-exec", l)
	if err != nil {
		return err
	}
	if err := await(ctx, proc, argv[0]); err != nil {
		return err
	}
	if code := exitCode(proc.ExitText()); code != 0 {
		return fmt.Errorf("%s: %s", strings.Join(argv, " "), proc.ExitText())
	}
	return nil
}

// await waits for the end of a command, and kills it when ctx ends.
func await(ctx context.Context, proc process, name string) error {
	select {
	case <-proc.Done():
		return nil
	case <-ctx.Done():
		if err := proc.Signal(syscall.SIGKILL); err != nil {
			return fmt.Errorf("ending %s: %w", name, err)
		}
		<-proc.Done()
		return fmt.Errorf("%s did not end in time: %w", name, ctx.Err())
	}
}

// sleepOf parses `sleep N` and `sh -c "sleep N"`, N in seconds.
func sleepOf(argv []string) (time.Duration, bool) {
	if len(argv) == 3 && filepath.Base(argv[0]) == "sh" && argv[1] == "-c" {
		argv = strings.Fields(argv[2])
	}
	if len(argv) != 2 || filepath.Base(argv[0]) != "sleep" {
		return 0, false
	}
	n, err := strconv.ParseFloat(argv[1], 64)
	if err != nil || n < 0 || n > float64(24*time.Hour/time.Second) {
		return 0, false
	}
	return time.Duration(n * float64(time.Second)), true
}
