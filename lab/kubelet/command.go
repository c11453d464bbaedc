package kubelet

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// refusal is why a pod or container is not run: a reason in the kubelet's words, and a sentence.
type refusal struct{ reason, message string }

func (r refusal) Error() string { return r.message }

func waitingFor(err error) *corev1.ContainerStateWaiting {
	var r refusal
	if !errors.As(err, &r) {
		r = refusal{reason: "CreateContainerError", message: err.Error()}
	}
	return &corev1.ContainerStateWaiting{Reason: r.reason, Message: r.message}
}

func notPlayed(format string, args ...any) error {
	return refusal{reason: "CreateContainerConfigError",
		message: fmt.Sprintf(format, args...) + " (the lab's kubelet does not play this)"}
}

// playable says what of a pod the lab does not play and cannot ignore without lying; nil when there is nothing.
func playable(object *corev1.Pod) error {
	if len(object.Spec.InitContainers) > 0 {
		return notPlayed("init container %s", object.Spec.InitContainers[0].Name)
	}
	for i := range object.Spec.Containers {
		c := &object.Spec.Containers[i]
		if c.Lifecycle != nil && c.Lifecycle.PostStart != nil {
			return notPlayed("postStart of container %s", c.Name)
		}
		if len(c.EnvFrom) > 0 {
			return notPlayed("envFrom of container %s", c.Name)
		}
		for _, probe := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe, c.StartupProbe} {
			switch {
			case probe == nil:
			case probe.GRPC != nil:
				return notPlayed("a gRPC probe of container %s", c.Name)
			case probe.HTTPGet != nil && probe.HTTPGet.Scheme == corev1.URISchemeHTTPS:
				return notPlayed("an HTTPS probe of container %s", c.Name)
			}
		}
	}
	return nil
}

// command is what to run for a container: the program that plays agnhost, with the container's arguments, and its
// environment.
func (c *container) command() (argv, env []string, err error) {
	if ours(c.spec.Image) {
		return c.fleetWorker()
	}
	if !strings.Contains(c.spec.Image, "agnhost") {
		return nil, nil, refusal{reason: "ErrImagePull",
			message: fmt.Sprintf("the lab pulls no images: it plays agnhost (netexec, pause) and hitless; %s is not known", c.spec.Image)}
	}
	values, err := c.environment()
	if err != nil {
		return nil, nil, err
	}
	words := append(append([]string(nil), c.spec.Command...), c.spec.Args...)
	if len(c.spec.Command) > 0 {
		if filepath.Base(words[0]) != "agnhost" {
			return nil, nil, refusal{reason: "RunContainerError",
				message: fmt.Sprintf("the lab's pods have no files: the command must be agnhost, not %s", words[0])}
		}
		words = words[1:]
	}
	if len(words) == 0 {
		words = []string{"pause"} // the image's own default
	}
	if words[0] != "netexec" && words[0] != "pause" {
		return nil, nil, refusal{reason: "RunContainerError",
			message: fmt.Sprintf("the lab plays agnhost netexec and pause, not agnhost %s", words[0])}
	}
	argv = append([]string{c.pod.k.Backend.Path}, c.pod.k.Backend.Args...)
	for _, word := range words {
		argv = append(argv, expand(word, values))
	}
	return argv, values, nil
}

// ours reports whether an image is one of hitless: its name, without registry, folders, tag and digest, says so.
func ours(image string) bool {
	name, _, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], "@")
	name, _, _ = strings.Cut(name, ":")
	return name == "hitless"
}

// fleetWorker is a container of the image of hitless: this very program, with the container's arguments. Nothing but a worker of a fleet of
// probes is played, which does nothing that a pod may not.
func (c *container) fleetWorker() (argv, env []string, err error) {
	if env, err = c.environment(); err != nil {
		return nil, nil, err
	}
	if len(c.spec.Command) > 0 || len(c.spec.Args) == 0 || c.spec.Args[0] != "fleet-worker" {
		return nil, nil, refusal{reason: "RunContainerError",
			message: fmt.Sprintf("the lab plays hitless fleet-worker, not %q", append(append([]string(nil), c.spec.Command...), c.spec.Args...))}
	}
	argv = []string{c.pod.k.Backend.Path}
	for _, word := range c.spec.Args {
		argv = append(argv, expand(word, env))
	}
	return argv, env, nil
}

// environment is the container's own environment, and who the backend says it is.
func (c *container) environment() ([]string, error) {
	values := []string{"HOSTNAME=" + c.pod.name}
	for i := range c.spec.Env {
		variable := &c.spec.Env[i]
		value := expand(variable.Value, values)
		if from := variable.ValueFrom; from != nil {
			if from.FieldRef == nil {
				return nil, notPlayed("a value for %s of container %s that is not a field of the pod", variable.Name, c.spec.Name)
			}
			var err error
			if value, err = c.pod.field(from.FieldRef.FieldPath); err != nil {
				return nil, err
			}
		}
		values = append(values, variable.Name+"="+value)
	}
	return append(values, "HITLESS_POD="+c.pod.name, "HITLESS_NODE="+c.pod.k.name,
		"HITLESS_GENERATION="+c.pod.generation), nil
}

// subscript is the form of a field path that names a key: metadata.labels['app'].
var subscript = regexp.MustCompile(`^metadata\.(labels|annotations)\['([^']+)'\]$`)

// field is the value of a field of the pod (the downward API).
func (p *pod) field(path string) (string, error) {
	if m := subscript.FindStringSubmatch(path); m != nil {
		if m[1] == "labels" {
			return p.object.Labels[m[2]], nil
		}
		return p.object.Annotations[m[2]], nil
	}
	switch path {
	case "metadata.name":
		return p.name, nil
	case "metadata.namespace":
		return p.object.Namespace, nil
	case "metadata.uid":
		return string(p.object.UID), nil
	case "spec.nodeName":
		return p.k.name, nil
	case "spec.serviceAccountName":
		return p.object.Spec.ServiceAccountName, nil
	case "status.podIP", "status.podIPs":
		return p.addr.String(), nil
	case "status.hostIP", "status.hostIPs":
		return p.k.Node.Addr.String(), nil
	}
	return "", notPlayed("the field %s as a value of the environment", path)
}

var reference = regexp.MustCompile(`\$\$|\$\(([^()]+)\)`)

// expand replaces $(NAME) with the value that was set last; what is not set stays as it is, and $$ stands for $
// (https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/).
func expand(text string, values []string) string {
	return reference.ReplaceAllStringFunc(text, func(match string) string {
		if match == "$$" {
			return "$"
		}
		prefix := match[2:len(match)-1] + "="
		for i := len(values) - 1; i >= 0; i-- {
			if strings.HasPrefix(values[i], prefix) {
				return values[i][len(prefix):]
			}
		}
		return match
	})
}
