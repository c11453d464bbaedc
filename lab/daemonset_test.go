package lab

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hitless/hitless/lab/kubelet"
	"github.com/hitless/hitless/lab/subject"
)

// The pods of the DaemonSet have the flags of the subject as the lab starts it, with the node's name of the downward API.
func TestDaemonSetHasTheSubjectsFlags(t *testing.T) {
	spec, err := subject.Parse("kube-proxy@v1.25.3/iptables")
	if err != nil {
		t.Fatal(err)
	}
	set := proxyDaemonSet(subject.Program{Spec: spec, Fallback: "on"}, []string{"GOGC=off"})
	pod := set.Spec.Template.Spec
	c := pod.Containers[0]
	if diff := cmp.Diff(spec.Args("$(NODE_NAME)", kubelet.ProxyKubeconfig, "on"), c.Args); diff != "" {
		t.Errorf("flags (-want +got):\n%s", diff)
	}
	env := map[string]string{}
	for _, variable := range c.Env {
		if env[variable.Name] = variable.Value; variable.ValueFrom != nil {
			env[variable.Name] = variable.ValueFrom.FieldRef.FieldPath
		}
	}
	if diff := cmp.Diff(map[string]string{"NODE_NAME": "spec.nodeName", "GOGC": "off"}, env); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if c.Image != "registry.k8s.io/kube-proxy:v1.25.3" || !pod.HostNetwork || set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.IntValue() != 1 {
		t.Errorf("image %s, hostNetwork %t, strategy %+v", c.Image, pod.HostNetwork, set.Spec.UpdateStrategy)
	}
	if !slices.Contains(c.Args, "--feature-gates=ProxyTerminatingEndpoints=true") {
		t.Errorf("%q lacks what terminatingFallback=on needs in this version", c.Args)
	}
}

// Pods can run each kube-proxy of a lab with the DaemonSet, and none elsewhere.
func TestImagesOfALab(t *testing.T) {
	l := &Lab{Kubeconfig: "kubeconfig"}
	for _, version := range []string{"v1.36.1", "v1.37.1"} {
		l.choice.Subjects = append(l.choice.Subjects, subject.Program{Spec: subject.Spec{Name: "kube-proxy", Version: version, Mode: "ipvs"}, Path: "/bin/" + version})
	}
	if p := l.proxyImages(); len(p.Programs) > 0 {
		t.Errorf("without the DaemonSet: %+v", p)
	}
	l.choice.DaemonSet = true
	want := kubelet.Proxies{Kubeconfig: "kubeconfig", Programs: map[string]string{"v1.36.1": "/bin/v1.36.1", "v1.37.1": "/bin/v1.37.1"}}
	if diff := cmp.Diff(want, l.proxyImages()); diff != "" {
		t.Errorf("with the DaemonSet (-want +got):\n%s", diff)
	}
}
