package kubelet

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// testProxies are the kube-proxies of a test's kubelet.
var testProxies = Proxies{Kubeconfig: "/tmp/lab/admin.kubeconfig",
	Programs: map[string]string{"v1.36.1": "/usr/bin/kube-proxy-v1.36.1", "v1.9.2": "/old", "v1.37.1": "/usr/bin/kube-proxy-v1.37.1"}}

// proxyPod returns a pod of the kube-proxy image as a DaemonSet would make it.
func proxyPod(name string, adjust ...func(*corev1.Pod, *corev1.Container)) *corev1.Pod {
	return webPod(name, func(p *corev1.Pod) {
		p.Spec.HostNetwork = true
		c := &p.Spec.Containers[0]
		c.Image, c.Command = "registry.k8s.io/kube-proxy:v1.37.1", []string{"/usr/local/bin/kube-proxy"}
		c.Args = []string{"--kubeconfig=" + ProxyKubeconfig, "--hostname-override=$(NODE_NAME)"}
		c.Env = []corev1.EnvVar{{Name: "NODE_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}}
		c.ReadinessProbe.HTTPGet.Path = "/healthz"
		for _, f := range adjust {
			f(p, c)
		}
	})
}

func withProxies(c *Config) { c.Proxies = testProxies }

// An image of kube-proxy runs the program of its version with the container's flags, in the node's network, whatever its registry.
func TestKubeProxyImageRunsItsVersion(t *testing.T) {
	flags := []string{"--kubeconfig=/tmp/lab/admin.kubeconfig", "--hostname-override=node-1"}
	for name, c := range map[string]struct {
		adjust func(*corev1.Container)
		want   []string
	}{
		"as released":   {func(*corev1.Container) {}, append([]string{"/usr/bin/kube-proxy-v1.37.1"}, flags...)},
		"other version": {func(c *corev1.Container) { c.Image = "kube-proxy:v1.36.1" }, append([]string{"/usr/bin/kube-proxy-v1.36.1"}, flags...)},
		"mirror with a port, and a digest": {func(c *corev1.Container) { c.Image = "mirror.example:5000/k8s/kube-proxy:v1.36.1@sha256:00" },
			append([]string{"/usr/bin/kube-proxy-v1.36.1"}, flags...)},
		"flags in the command": {func(c *corev1.Container) { c.Command, c.Args = append(c.Command, c.Args...), nil },
			append([]string{"/usr/bin/kube-proxy-v1.37.1"}, flags...)},
		"the kubeconfig as a word of its own": {func(c *corev1.Container) { c.Args = []string{"--kubeconfig", ProxyKubeconfig} },
			[]string{"/usr/bin/kube-proxy-v1.37.1", "--kubeconfig", "/tmp/lab/admin.kubeconfig"}},
		"a program that only prints": {func(c *corev1.Container) { c.Args = []string{"--version"} }, []string{"/usr/bin/kube-proxy-v1.37.1", "--version"}},
	} {
		t.Run(name, func(t *testing.T) {
			runTest(t, withProxies, func(b *testKubelet) {
				b.create(proxyPod("proxy", func(_ *corev1.Pod, container *corev1.Container) { c.adjust(container) }))
				b.at(1)
				if b.host.last == nil {
					t.Fatalf("it was not started: %+v", b.pod("proxy").Status.ContainerStatuses)
				}
				if diff := cmp.Diff(c.want, b.host.last.argv); diff != "" {
					t.Errorf("command (-want +got):\n%s", diff)
				}
				if b.host.last.sandbox.addr.IsValid() {
					t.Error("it runs in a network of its pod")
				}
			})
		})
	}
}

// A container of kube-proxy that the lab cannot run waits with a reason, and the message names what is missing and what there is.
func TestKubeProxyContainerThatCannotRun(t *testing.T) {
	for name, c := range map[string]struct {
		proxies *Proxies // testProxies when nil
		adjust  func(*corev1.Pod, *corev1.Container)
		reason  string
		said    []string
	}{
		"unknown version": {nil, func(_ *corev1.Pod, c *corev1.Container) { c.Image = "registry.k8s.io/kube-proxy:v1.99.0" },
			"ErrImagePull", []string{"kube-proxy:v1.99.0", "v1.9.2, v1.36.1, v1.37.1", "--proxy-image"}},
		"no tag":                           {nil, func(_ *corev1.Pod, c *corev1.Container) { c.Image = "registry.example:5000/kube-proxy" }, "ErrImagePull", []string{"v1.36.1"}},
		"a lab whose proxies are programs": {&Proxies{}, func(*corev1.Pod, *corev1.Container) {}, "ErrImagePull", []string{"v1.37.1", "--proxy-daemonset"}},
		"a network of its own":             {nil, func(p *corev1.Pod, _ *corev1.Container) { p.Spec.HostNetwork = false }, "RunContainerError", []string{"hostNetwork"}},
		"another program":                  {nil, func(_ *corev1.Pod, c *corev1.Container) { c.Command = []string{"/bin/sh"} }, "RunContainerError", []string{"/bin/sh"}},
		"a configuration file": {nil, func(_ *corev1.Pod, c *corev1.Container) {
			c.Args = append(c.Args, "--config=/var/lib/kube-proxy/config.conf")
		},
			"CreateContainerConfigError", []string{"--config", "ConfigMap", "flags"}},
		"another kubeconfig": {nil, func(_ *corev1.Pod, c *corev1.Container) { c.Args = []string{"--kubeconfig", "/etc/kubeconfig"} },
			"CreateContainerConfigError", []string{"/etc/kubeconfig", ProxyKubeconfig}},
		"no kubeconfig": {nil, func(_ *corev1.Pod, c *corev1.Container) { c.Args = c.Args[1:] }, "CreateContainerConfigError", []string{ProxyKubeconfig}},
	} {
		t.Run(name, func(t *testing.T) {
			proxies := testProxies
			if c.proxies != nil {
				proxies = *c.proxies
			}
			runTest(t, func(config *Config) { config.Proxies = proxies }, func(b *testKubelet) {
				b.create(proxyPod("proxy", c.adjust))
				b.at(30)
				pod := b.pod("proxy")
				waits := pod.Status.ContainerStatuses[0].State.Waiting
				if b.host.last != nil || waits == nil || isReady(pod) {
					t.Fatalf("started %v; status %+v", b.host.last, pod.Status)
				}
				if waits.Reason != c.reason {
					t.Errorf("reason %s, want %s", waits.Reason, c.reason)
				}
				for _, word := range c.said {
					if !strings.Contains(waits.Message, word) {
						t.Errorf("the message lacks %q: %s", word, waits.Message)
					}
				}
			})
		})
	}
}

// A kube-proxy that exits is restarted with back-off; one that is deleted gets SIGTERM and its exit code is reported.
func TestKubeProxyContainerEndsAsOthers(t *testing.T) {
	runTest(t, withProxies, func(b *testKubelet) {
		b.host.exitAfter["proxy"] = time.Second
		b.create(proxyPod("proxy"))
		b.at(9)
		status := b.pod("proxy").Status.ContainerStatuses[0]
		if w := status.State.Waiting; w == nil || w.Reason != "CrashLoopBackOff" || status.RestartCount != 1 || status.LastTerminationState.Terminated.ExitCode != 1 {
			t.Errorf("status after two exits: %+v", status)
		}
	})
	runTest(t, withProxies, func(b *testKubelet) {
		b.host.onTerm["proxy"] = -1
		b.create(proxyPod("proxy"))
		b.at(10)
		b.remove("proxy", 5)
		b.at(20)
		if diff := cmp.Diff([]string{"10 terminated", "15 killed"}, b.host.last.signals); diff != "" {
			t.Errorf("signals (-want +got):\n%s", diff)
		}
	})
}
