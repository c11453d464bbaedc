package kubelet

import (
	"context"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"

	roots "github.com/hitless/hitless/lab/container"
	"github.com/hitless/hitless/lab/images"
	"github.com/hitless/hitless/lab/subject"
)

// Workloads make pods run the programs of their images, in roots of their own.
type Workloads struct {
	DNS    string // address of the cluster's DNS Service
	Server Server
}

// launch is a program of a container that is to be started.
type launch struct {
	argv, env []string
	dir       string
	root      *roots.Root // nil for a stand-in, which has the node's files
	streams
}

// ofImage reports whether the container runs a program of its image: all but stand-ins, this program and kube-proxy.
func (c *container) ofImage() bool {
	name, _ := imageOf(c.spec.Image)
	return c.pod.k.Workloads != nil && name != "hitless" && name != subject.KubeProxy
}

// launch returns what to start for the container.
func (c *container) launch() (l launch, err error) {
	if !c.ofImage() {
		l.argv, l.env, err = c.command()
		return l, err
	}
	image, known := images.Find(c.spec.Image)
	if !known {
		return l, startError{reason: "ErrImagePull", message: fmt.Sprintf("the lab pulls no images, and has no %s: it knows %s",
			c.spec.Image, strings.Join(append(images.Names(), "hitless", subject.KubeProxy), ", "))}
	}
	variables, err := c.variables()
	if err != nil {
		return l, err
	}
	argv := append(append([]string{}, c.spec.Command...), c.spec.Args...)
	if len(c.spec.Command) == 0 {
		argv = append(append([]string{}, image.Entrypoint...), c.spec.Args...)
		if len(c.spec.Args) == 0 {
			argv = append(argv, image.Cmd...)
		}
	}
	for i, word := range argv {
		argv[i] = expand(word, variables)
	}
	if len(argv) == 0 {
		return l, startError{reason: "CreateContainerError", message: fmt.Sprintf("the image %s has no command: give the container one", c.spec.Image)}
	}
	root, err := c.root(image, variables)
	if err != nil {
		return l, err
	}
	env := append(append([]string{"HOME=/root"}, image.Env...), variables...)
	return launch{argv: argv, env: env, dir: c.spec.WorkingDir, root: root}, nil
}

// root describes the container's root file system.
func (c *container) root(image images.Image, variables []string) (*roots.Root, error) {
	p := c.pod
	spec := roots.Spec{Layers: image.Layers, Hostname: p.hostname(), Files: p.files()}
	for i := range c.spec.VolumeMounts {
		m := &c.spec.VolumeMounts[i]
		from, has := p.inputs.volumes[m.Name]
		if !has {
			return nil, startError{reason: "CreateContainerConfigError", message: fmt.Sprintf("the pod has no volume %s, which container %s mounts", m.Name, c.spec.Name)}
		}
		sub := m.SubPath
		if m.SubPathExpr != "" {
			sub = expand(m.SubPathExpr, variables)
		}
		if sub != "" {
			var err error
			if from, err = p.k.host.below(from, sub); err != nil {
				return nil, err
			}
		}
		spec.Mounts = append(spec.Mounts, roots.Mount{From: from, At: m.MountPath, ReadOnly: m.ReadOnly})
	}
	if path := c.spec.TerminationMessagePath; path != "" {
		from, err := p.k.host.volume(p.volumeDir("termination-"+c.spec.Name), []volumeFile{{name: "log", mode: 0o666}})
		if err != nil {
			return nil, err
		}
		spec.Mounts = append(spec.Mounts, roots.Mount{From: from + "/log", At: path})
	}
	return roots.New(spec), nil
}

// variables are the environment variables of the container's spec, and those of Services.
func (c *container) variables() ([]string, error) {
	values := append([]string{"HOSTNAME=" + c.pod.hostname()}, c.pod.inputs.services...)
	for i := range c.spec.EnvFrom {
		more, err := c.pod.inputs.envFrom(&c.spec.EnvFrom[i])
		if err != nil {
			return nil, err
		}
		values = append(values, more...)
	}
	for i := range c.spec.Env {
		variable := &c.spec.Env[i]
		value, set := expand(variable.Value, values), true
		if variable.ValueFrom != nil {
			var err error
			if value, set, err = c.valueFrom(variable.ValueFrom); err != nil {
				return nil, err
			}
		}
		if set {
			values = append(values, variable.Name+"="+value)
		}
	}
	return values, nil
}

// valueFrom returns the value of a variable; set is false for an optional one that does not exist.
func (c *container) valueFrom(from *corev1.EnvVarSource) (value string, set bool, err error) {
	switch {
	case from.FieldRef != nil:
		value, err = c.pod.field(from.FieldRef.FieldPath)
		return value, true, err
	case from.ResourceFieldRef != nil:
		value, err = c.pod.resource(from.ResourceFieldRef, c.spec.Name)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		r := from.ConfigMapKeyRef
		return c.pod.inputs.key("ConfigMap", r.Name, r.Key, r.Optional)
	case from.SecretKeyRef != nil:
		r := from.SecretKeyRef
		return c.pod.inputs.key("Secret", r.Name, r.Key, r.Optional)
	}
	return "", false, unsupported("a variable of container %s with another valueFrom than fieldRef, resourceFieldRef, configMapKeyRef or secretKeyRef", c.spec.Name)
}

// checkWorkload returns an error for a field of a pod that the lab neither supports nor can ignore, where pods run their images. It ignores what
// only takes rights away: all programs of a lab have its user 0.
func checkWorkload(object *corev1.Pod) error {
	spec := &object.Spec
	for i := range spec.Containers {
		if err := checkContainer(&spec.Containers[i]); err != nil {
			return err
		}
	}
	for i := range spec.InitContainers {
		if err := checkContainer(&spec.InitContainers[i]); err != nil {
			return err
		}
	}
	if spec.ShareProcessNamespace != nil && *spec.ShareProcessNamespace {
		return unsupported("shareProcessNamespace")
	}
	return nil
}

func checkContainer(c *corev1.Container) error {
	switch {
	case c.TTY:
		return unsupported("tty of container %s", c.Name)
	case len(c.VolumeDevices) > 0:
		return unsupported("volumeDevices of container %s", c.Name)
	}
	return nil
}

// close frees the root of what was started.
func (l *launch) close() {
	if pipe, is := l.in.(*os.File); is {
		_ = pipe.Close()
	}
	if l.root != nil {
		_ = l.root.Close() // the descriptors are those of a container that has ended
	}
}

// message is the text of the container's termination message, or how it ended.
func (c *container) message(exit string) string {
	if !c.ofImage() {
		return exit
	}
	const most = 4096 // as kubelets
	text, err := c.pod.k.host.read(c.pod.volumeDir("termination-"+c.spec.Name)+"/log", most)
	if err == nil && text == "" && c.spec.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError && exit != "exit status 0" {
		return c.pod.k.Procs.Tail(c.logName(c.starts-1), 80)
	}
	if err != nil {
		c.pod.k.Log.Warn("reading a termination message", "pod", c.pod.name, "error", err)
	}
	return text
}

// postStart runs the hook of that name. A container whose hook fails is ended, and restarted as its policy says.
func (c *container) postStart(ctx context.Context, r *containerRun) {
	if c.spec.Lifecycle == nil || c.spec.Lifecycle.PostStart == nil {
		return
	}
	r.hooking = true
	c.pod.k.live.Go(func() {
		err := c.hook(r.alive, r, c.spec.Lifecycle.PostStart)
		c.pod.post(func() {
			if c.run != r {
				return
			}
			r.hooking = false
			if err != nil {
				c.pod.k.Log.Warn("postStart failed; the container is ended", "pod", c.pod.name, "container", c.spec.Name, "error", err)
				c.end(newGrace(r.alive, deletionGrace(c.pod.object)))
				return
			}
			if r.seen {
				c.seenRunning(r)
			}
		})
	})
}

// openInput gives a container with stdin a pipe, whose other end it returns. The pipe ends with the container.
func (c *container) openInput(l *launch) (*os.File, error) {
	if !c.spec.Stdin || !c.ofImage() {
		return nil, nil
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("opening the standard input of container %s: %w", c.spec.Name, err)
	}
	l.in = read
	return write, nil
}
