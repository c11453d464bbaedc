// Package deploy holds the manifest of the proxier; its tests check it against the program.
package deploy

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/hitless/hitless/proxier"
)

// read decodes the documents of the manifest strictly, by kind.
func read(t *testing.T) map[string]any {
	t.Helper()
	data, err := os.ReadFile("daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]any{"ServiceAccount": &v1.ServiceAccount{}, "ClusterRole": &rbacv1.ClusterRole{},
		"ClusterRoleBinding": &rbacv1.ClusterRoleBinding{}, "DaemonSet": &appsv1.DaemonSet{}}
	found := map[string]any{}
	for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(document, &kind); err != nil {
			t.Fatal(err)
		}
		into := kinds[kind.Kind]
		if into == nil {
			t.Fatalf("unexpected kind %q", kind.Kind)
		}
		if err := yaml.UnmarshalStrict(document, into); err != nil {
			t.Fatalf("%s: %v", kind.Kind, err)
		}
		found[kind.Kind] = into
	}
	return found
}

func TestManifest(t *testing.T) {
	all := read(t)
	set, ok := all["DaemonSet"].(*appsv1.DaemonSet)
	if !ok || len(all) != 4 {
		t.Fatalf("the manifest has %d documents, and a DaemonSet: %v", len(all), ok)
	}
	pod := set.Spec.Template.Spec
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		if len(c.Command) < 2 || c.Command[1] != "proxier" {
			t.Fatalf("container %s runs %v", c.Name, c.Command)
		}
		flags := proxier.Command().Flags()
		if err := flags.Parse(c.Command[2:]); err != nil {
			t.Errorf("container %s: %v", c.Name, err)
		}
		if as := c.SecurityContext.RunAsUser; as == nil || *as != 0 {
			t.Errorf("container %s runs as the image's user, which cannot change the kernel", c.Name)
		}
	}
	main := pod.Containers[0]
	// Without a drop, a container keeps the runtime's default capabilities.
	may, only := main.SecurityContext.Capabilities, []v1.Capability{"NET_ADMIN"}
	if !slices.Equal(may.Add, only) || !slices.Equal(may.Drop, []v1.Capability{"ALL"}) || main.SecurityContext.Privileged != nil {
		t.Errorf("security context of the proxier %v", main.SecurityContext)
	}
	if !pod.HostNetwork || pod.ServiceAccountName != all["ServiceAccount"].(*v1.ServiceAccount).Name {
		t.Errorf("host network %v, account %s", pod.HostNetwork, pod.ServiceAccountName)
	}
	for _, probe := range []*v1.Probe{main.StartupProbe, main.ReadinessProbe, main.LivenessProbe} {
		if strings.Contains(probe.HTTPGet.Path, "healthz") {
			t.Error("a probe uses /healthz, which fails on a node that will be removed (KEP-3836)")
		}
	}
}

// The role allows exactly what the proxier watches.
func TestRole(t *testing.T) {
	role, ok := read(t)["ClusterRole"].(*rbacv1.ClusterRole)
	if !ok {
		t.Fatal("no ClusterRole")
	}
	var may []string
	for _, r := range role.Rules {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				may = append(may, strings.TrimSpace(group+" "+resource)+" "+strings.Join(r.Verbs, ","))
			}
		}
	}
	slices.Sort(may)
	want := []string{"discovery.k8s.io endpointslices list,watch", "nodes list,watch", "services list,watch"}
	if !slices.Equal(may, want) {
		t.Errorf("the role allows %q, want %q", may, want)
	}
}
