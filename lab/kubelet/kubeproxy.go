package kubelet

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/hitless/hitless/lab/subject"
)

// ProxyKubeconfig is the only file in the container of a kube-proxy: the lab's kubeconfig, with all permissions.
const ProxyKubeconfig = "/var/lib/kube-proxy/kubeconfig.conf"

// Proxies are the kube-proxies that containers can run. Without programs every image of a kube-proxy ends in ErrImagePull.
type Proxies struct {
	Programs   map[string]string // path of the program by version, such as v1.37.1
	Kubeconfig string            // path of the file that containers see as ProxyKubeconfig
}

// imageOf returns the name of an image without its registry and path, and its tag. A digest is ignored.
func imageOf(image string) (name, tag string) {
	name, _, _ = strings.Cut(image[strings.LastIndex(image, "/")+1:], "@")
	name, tag, _ = strings.Cut(name, ":")
	return name, tag
}

// kubeProxy returns the command of a container of the kube-proxy image: the program of the image's version with the
// container's flags. Its files are the node's own, and ProxyKubeconfig.
func (c *container) kubeProxy() (argv, env []string, err error) {
	path, err := c.pod.k.Proxies.program(c.spec.Image)
	if err != nil {
		return nil, nil, err
	}
	if !c.pod.object.Spec.HostNetwork {
		return nil, nil, startError{reason: "RunContainerError",
			message: fmt.Sprintf("container %s of kube-proxy would program its pod's own network: set hostNetwork: true", c.spec.Name)}
	}
	if env, err = c.environment(); err != nil {
		return nil, nil, err
	}
	words := append(append([]string(nil), c.spec.Command...), c.spec.Args...)
	if len(c.spec.Command) > 0 {
		if filepath.Base(words[0]) != subject.KubeProxy {
			return nil, nil, startError{reason: "RunContainerError",
				message: fmt.Sprintf("pods of the lab have no file system: the command must be kube-proxy, not %s", words[0])}
		}
		words = words[1:]
	}
	argv = []string{path}
	for _, word := range words {
		argv = append(argv, expand(word, env))
	}
	if err := c.checkProxyFiles(argv[1:]); err != nil {
		return nil, nil, err
	}
	for i, word := range argv {
		argv[i] = strings.ReplaceAll(word, ProxyKubeconfig, c.pod.k.Proxies.Kubeconfig)
	}
	return argv, env, nil
}

// program returns the program of an image of kube-proxy. The error lists the versions that the lab has.
func (p Proxies) program(image string) (string, error) {
	if len(p.Programs) == 0 {
		return "", startError{reason: "ErrImagePull", message: fmt.Sprintf("the lab pulls no images, and runs its proxies as programs: "+
			"`hitless lab up --proxy-daemonset` makes a lab that runs %s", image)}
	}
	_, version := imageOf(image)
	path, known := p.Programs[version]
	if !known {
		versions := slices.SortedFunc(maps.Keys(p.Programs), semver.Compare)
		return "", startError{reason: "ErrImagePull", message: fmt.Sprintf("the lab pulls no images, and %s is not one of its kube-proxies, %s; "+
			"`hitless lab up --proxy-daemonset --proxy-image kube-proxy@VERSION` makes a lab with another", image, strings.Join(versions, ", "))}
	}
	return path, nil
}

// checkProxyFiles returns an error for flags of kube-proxy whose file does not exist in the container.
func (c *container) checkProxyFiles(args []string) error {
	reaches := false // the API, or needs none
	for i, arg := range args {
		flag, value, given := strings.Cut(arg, "=")
		switch flag {
		case "--config":
			return startError{reason: "CreateContainerConfigError",
				message: fmt.Sprintf("--config of container %s is not supported by the lab's kubelet, which mounts no ConfigMaps: give the settings as flags", c.spec.Name)}
		case "--kubeconfig":
			if !given && i+1 < len(args) {
				value = args[i+1]
			}
			if value != ProxyKubeconfig {
				return startError{reason: "CreateContainerConfigError",
					message: fmt.Sprintf("container %s has no file %q: the only kubeconfig of a kube-proxy in the lab is %s", c.spec.Name, value, ProxyKubeconfig)}
			}
			reaches = true
		case "--master", "--cleanup", "--version":
			reaches = true
		}
	}
	if !reaches {
		return startError{reason: "CreateContainerConfigError",
			message: fmt.Sprintf("container %s of kube-proxy has no way to the API, because pods of the lab have no token: give --kubeconfig=%s", c.spec.Name, ProxyKubeconfig)}
	}
	return nil
}
