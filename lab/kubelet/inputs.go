package kubelet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// inputs are what a pod's containers get from the API, as of the pod's start.
type inputs struct {
	services []string                     // variables of Services
	data     map[string]map[string][]byte // of ConfigMaps and Secrets, by kind/name; nil for an optional one that does not exist
	volumes  map[string]string            // directory or file on the node, by the volume's name
}

// collector reads a pod's inputs.
type collector struct {
	*pod
	ctx context.Context
	inputs
}

// inputsAgain is the time after which the kubelet reads missing inputs again.
const inputsAgain = 2 * time.Second

// prepare reads the inputs and then starts the containers. It tries again while something is missing, as a kubelet does.
func (p *pod) prepare(ctx context.Context) {
	p.k.live.Go(func() {
		c := collector{pod: p, ctx: ctx, inputs: inputs{data: map[string]map[string][]byte{}, volumes: map[string]string{}}}
		err := c.collect()
		p.post(func() {
			switch {
			case p.stop != nil:
			case err != nil:
				p.startErr = err
				p.after(inputsAgain, func() {
					if p.stop == nil {
						p.prepare(ctx)
					}
				})
			default:
				p.inputs, p.startErr = &c.inputs, nil
				p.advance(ctx)
			}
		})
	})
}

func (c *collector) collect() error {
	var err error
	if c.services, err = c.serviceVariables(); err != nil {
		return err
	}
	for _, spec := range slices.Concat(c.object.Spec.InitContainers, c.object.Spec.Containers) {
		for _, from := range spec.EnvFrom {
			if r := from.ConfigMapRef; r != nil {
				err = c.read("ConfigMap", r.Name, r.Optional)
			}
			if r := from.SecretRef; r != nil && err == nil {
				err = c.read("Secret", r.Name, r.Optional)
			}
			if err != nil {
				return err
			}
		}
		for _, v := range spec.Env {
			if v.ValueFrom == nil {
				continue
			}
			if r := v.ValueFrom.ConfigMapKeyRef; r != nil {
				err = c.read("ConfigMap", r.Name, r.Optional)
			}
			if r := v.ValueFrom.SecretKeyRef; r != nil && err == nil {
				err = c.read("Secret", r.Name, r.Optional)
			}
			if err != nil {
				return err
			}
		}
	}
	for i := range c.object.Spec.Volumes {
		if err := c.addVolume(&c.object.Spec.Volumes[i]); err != nil {
			return err
		}
	}
	return nil
}

// read reads a ConfigMap or Secret once.
func (c *collector) read(kind, name string, optional *bool) error {
	id := kind + "/" + name
	if _, known := c.data[id]; known {
		return nil
	}
	data := map[string][]byte{}
	var err error
	if kind == "Secret" {
		var s *corev1.Secret
		if s, err = c.k.Client.CoreV1().Secrets(c.namespace).Get(c.ctx, name, metav1.GetOptions{}); err == nil {
			maps.Copy(data, s.Data)
		}
	} else {
		var m *corev1.ConfigMap
		if m, err = c.k.Client.CoreV1().ConfigMaps(c.namespace).Get(c.ctx, name, metav1.GetOptions{}); err == nil {
			maps.Copy(data, m.BinaryData)
			for key, text := range m.Data {
				data[key] = []byte(text)
			}
		}
	}
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		data, err = nil, nil
	}
	if err != nil {
		return startError{reason: "CreateContainerConfigError", message: fmt.Sprintf("reading the %s %s/%s: %v", kind, c.namespace, name, err)}
	}
	c.data[id] = data
	return nil
}

// key returns a value of a ConfigMap or Secret.
func (in *inputs) key(kind, name, key string, optional *bool) (value string, set bool, err error) {
	data, set := in.data[kind+"/"+name][key]
	if !set && (optional == nil || !*optional) {
		return "", false, startError{reason: "CreateContainerConfigError", message: fmt.Sprintf("couldn't find key %s in %s %s", key, kind, name)}
	}
	return string(data), set, nil
}

// envFrom returns the variables of a whole ConfigMap or Secret.
func (in *inputs) envFrom(from *corev1.EnvFromSource) (values []string, err error) {
	var id string
	switch {
	case from.ConfigMapRef != nil:
		id = "ConfigMap/" + from.ConfigMapRef.Name
	case from.SecretRef != nil:
		id = "Secret/" + from.SecretRef.Name
	}
	data := in.data[id]
	for _, key := range slices.Sorted(maps.Keys(data)) {
		values = append(values, from.Prefix+key+"="+string(data[key]))
	}
	return values, nil
}

// token returns a token of the pod's service account.
func (c *collector) token(p *corev1.ServiceAccountTokenProjection) ([]byte, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: p.ExpirationSeconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: c.name, UID: c.object.UID}}}
	if p.Audience != "" {
		request.Spec.Audiences = []string{p.Audience}
	}
	account := c.object.Spec.ServiceAccountName
	got, err := c.k.Client.CoreV1().ServiceAccounts(c.namespace).CreateToken(c.ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return nil, startError{reason: "ContainerCreating", message: fmt.Sprintf("asking for a token of the service account %s/%s: %v", c.namespace, account, err)}
	}
	return []byte(got.Status.Token), nil
}

// serviceVariables are the variables of the namespace's Services and of the API's, as pkg/kubelet/envvars makes them.
func (c *collector) serviceVariables() (values []string, err error) {
	list, err := c.k.Client.CoreV1().Services(c.namespace).List(c.ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing the Services of %s: %w", c.namespace, err)
	}
	all := map[string]*corev1.Service{}
	if links := c.object.Spec.EnableServiceLinks; links == nil || *links {
		for i := range list.Items {
			all[list.Items[i].Name] = &list.Items[i]
		}
	}
	const master = "kubernetes"
	if api, err := c.k.Client.CoreV1().Services(metav1.NamespaceDefault).Get(c.ctx, master, metav1.GetOptions{}); err == nil {
		if _, own := all[master]; !own {
			all[master] = api
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		values = append(values, serviceLinks(all[name])...)
	}
	return values, nil
}

func serviceLinks(s *corev1.Service) (values []string) {
	ip := s.Spec.ClusterIP
	if ip == "" || ip == corev1.ClusterIPNone || len(s.Spec.Ports) == 0 {
		return nil
	}
	word := func(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }
	set := func(value string, name ...string) { values = append(values, strings.Join(name, "")+"="+value) }
	prefix := word(s.Name)
	set(ip, prefix, "_SERVICE_HOST")
	set(fmt.Sprint(s.Spec.Ports[0].Port), prefix, "_SERVICE_PORT")
	for _, port := range s.Spec.Ports {
		if port.Name != "" {
			set(fmt.Sprint(port.Port), prefix, "_SERVICE_PORT_", word(port.Name))
		}
	}
	for i, port := range s.Spec.Ports {
		protocol := string(port.Protocol)
		if protocol == "" {
			protocol = string(corev1.ProtocolTCP)
		}
		url := strings.ToLower(protocol) + "://" + hostPort(ip, int(port.Port))
		if i == 0 {
			set(url, prefix, "_PORT")
		}
		one := fmt.Sprintf("%s_PORT_%d_%s", prefix, port.Port, strings.ToUpper(protocol))
		set(url, one)
		set(strings.ToLower(protocol), one, "_PROTO")
		set(fmt.Sprint(port.Port), one, "_PORT")
		set(ip, one, "_ADDR")
	}
	return values
}
