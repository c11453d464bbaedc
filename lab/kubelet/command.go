package kubelet

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hitless/hitless/lab/subject"
)

// startError is the reason and message of a pod or container that cannot start, as in its status.
type startError struct{ reason, message string }

func (r startError) Error() string { return r.message }

func waitingFor(err error) *corev1.ContainerStateWaiting {
	var r startError
	if !errors.As(err, &r) {
		r = startError{reason: "CreateContainerError", message: err.Error()}
	}
	return &corev1.ContainerStateWaiting{Reason: r.reason, Message: r.message}
}

func unsupported(format string, args ...any) error {
	return startError{reason: "CreateContainerConfigError",
		message: fmt.Sprintf(format, args...) + " is not supported by the lab's kubelet; remove it from the pod"}
}

// checkSupported returns an error for a field of a pod that the lab does not support and cannot ignore.
func (k *kubelet) checkSupported(object *corev1.Pod) error {
	if k.Workloads != nil {
		return checkWorkload(object)
	}
	if len(object.Spec.InitContainers) > 0 {
		return unsupported("init container %s", object.Spec.InitContainers[0].Name)
	}
	for i := range object.Spec.Containers {
		c := &object.Spec.Containers[i]
		if c.Lifecycle != nil && c.Lifecycle.PostStart != nil {
			return unsupported("postStart of container %s", c.Name)
		}
		if len(c.EnvFrom) > 0 {
			return unsupported("envFrom of container %s", c.Name)
		}
		for _, probe := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe, c.StartupProbe} {
			switch {
			case probe == nil:
			case probe.GRPC != nil:
				return unsupported("a gRPC probe of container %s", c.Name)
			case probe.HTTPGet != nil && probe.HTTPGet.Scheme == corev1.URISchemeHTTPS:
				return unsupported("an HTTPS probe of container %s", c.Name)
			}
		}
	}
	return nil
}

// command returns the program, arguments and environment of a container.
func (c *container) command() (argv, env []string, err error) {
	switch name, _ := imageOf(c.spec.Image); {
	case name == "hitless":
		return c.fleetWorker()
	case name == subject.KubeProxy:
		return c.kubeProxy()
	case !strings.Contains(c.spec.Image, "agnhost"):
		return nil, nil, startError{reason: "ErrImagePull", message: fmt.Sprintf("the lab pulls no images: "+
			"use agnhost (netexec, pause), hitless (fleet-worker) or kube-proxy:VERSION instead of %s", c.spec.Image)}
	}
	values, err := c.environment()
	if err != nil {
		return nil, nil, err
	}
	words := append(append([]string(nil), c.spec.Command...), c.spec.Args...)
	if len(c.spec.Command) > 0 {
		if filepath.Base(words[0]) != "agnhost" {
			return nil, nil, startError{reason: "RunContainerError",
				message: fmt.Sprintf("pods of the lab have no file system: the command must be agnhost, not %s", words[0])}
		}
		words = words[1:]
	}
	if len(words) == 0 {
		words = []string{"pause"} // the default of the agnhost image
	}
	if words[0] != "netexec" && words[0] != "pause" {
		return nil, nil, startError{reason: "RunContainerError",
			message: fmt.Sprintf("the lab supports agnhost netexec and pause, not agnhost %s", words[0])}
	}
	argv = append([]string{c.pod.k.Backend.Path}, c.pod.k.Backend.Args...)
	for _, word := range words {
		argv = append(argv, expand(word, values))
	}
	return argv, values, nil
}

// fleetWorker returns the command of a container of the hitless image: this program with the container's arguments.
// Only fleet-worker is supported, because it does nothing that a pod may not do.
func (c *container) fleetWorker() (argv, env []string, err error) {
	if env, err = c.environment(); err != nil {
		return nil, nil, err
	}
	if len(c.spec.Command) > 0 || len(c.spec.Args) == 0 || c.spec.Args[0] != "fleet-worker" {
		return nil, nil, startError{reason: "RunContainerError",
			message: fmt.Sprintf("the lab supports hitless fleet-worker, not %q", append(append([]string(nil), c.spec.Command...), c.spec.Args...))}
	}
	argv = []string{c.pod.k.Backend.Path}
	for _, word := range c.spec.Args {
		argv = append(argv, expand(word, env))
	}
	return argv, env, nil
}

// environment returns the container's environment variables and those of backend.Identity.
func (c *container) environment() ([]string, error) {
	values := []string{"HOSTNAME=" + c.pod.name}
	for i := range c.spec.Env {
		variable := &c.spec.Env[i]
		value := expand(variable.Value, values)
		if from := variable.ValueFrom; from != nil {
			if from.FieldRef == nil {
				return nil, unsupported("valueFrom of %s in container %s without fieldRef", variable.Name, c.spec.Name)
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

// subscript matches a field path with a key: metadata.labels['app'].
var subscript = regexp.MustCompile(`^metadata\.(labels|annotations)\['([^']+)'\]$`)

// field returns the value of a field of the pod (downward API).
func (p *pod) field(path string) (string, error) {
	if m := subscript.FindStringSubmatch(path); m != nil {
		if m[1] == "labels" {
			return p.object.Labels[m[2]], nil
		}
		return p.object.Annotations[m[2]], nil
	}
	switch path {
	case "metadata.labels":
		return lines(p.object.Labels), nil
	case "metadata.annotations":
		return lines(p.object.Annotations), nil
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
	case "status.podIP":
		return p.addr.String(), nil
	case "status.podIPs":
		return joined(p.addrs), nil
	case "status.hostIP":
		return p.k.Node.Addr.String(), nil
	case "status.hostIPs":
		return joined(p.k.Node.Addrs()), nil
	}
	return "", unsupported("the environment variable from field %s", path)
}

// joined are addresses, separated by commas.
func joined(addrs []netip.Addr) string {
	var all []string
	for _, a := range addrs {
		all = append(all, a.String())
	}
	return strings.Join(all, ",")
}

var reference = regexp.MustCompile(`\$\$|\$\(([^()]+)\)`)

// expand replaces $(NAME) with the last value of NAME in values. Unknown names stay, and $$ becomes $
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
