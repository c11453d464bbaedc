package kubelet

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/lab/procs"
)

// runImages is runTest with a kubelet whose pods run the programs of their images.
func runImages(t *testing.T, test func(*testKubelet)) {
	logs, err := procs.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	runTest(t, func(c *Config) {
		c.Workloads, c.Procs = &Workloads{DNS: "10.96.0.10"}, logs
		c.Log = slog.New(slog.DiscardHandler)
	}, test)
}

func command(name, image string, words ...string) corev1.Container {
	return corev1.Container{Name: name, Image: image, Command: words}
}

// A kubelet runs init containers one after the other, a sidecar from its turn on, and then the others. It ends a sidecar last.
func TestInitContainersAndSidecars(t *testing.T) {
	runImages(t, func(b *testKubelet) {
		b.host.endAfter["first"], b.host.endAfter["second"] = seconds(2), seconds(1)
		always := corev1.ContainerRestartPolicyAlways
		side := command("side", "busybox", "side")
		side.RestartPolicy = &always
		b.create(webPod("web", func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{command("first", "busybox", "first"), side, command("second", "busybox", "second")}
			p.Spec.Containers = []corev1.Container{command("main", "agnhost:2.66.1", "main")}
		}))
		b.at(1)
		pod := b.pod("web")
		if pod.Status.Phase != corev1.PodPending || conditionTrue(pod.Status.Conditions, corev1.PodInitialized) || pod.Status.PodIP == "" {
			t.Errorf("before the init containers are done: %+v", pod.Status)
		}
		b.at(6)
		if pod := b.pod("web"); !isReady(pod) || len(pod.Status.InitContainerStatuses) != 3 {
			t.Errorf("after: %+v", pod.Status)
		}
		b.remove("web", 30)
		b.at(8)
		want := []string{"0 first", "2 ended first", "2 side", "3 second", "4 ended second", "4 main", "6 ended main", "6 ended side"}
		b.host.mu.Lock()
		defer b.host.mu.Unlock()
		if diff := cmp.Diff(want, b.host.ran); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

// A pod whose init container fails for good fails, and its containers never start.
func TestInitContainerFails(t *testing.T) {
	runImages(t, func(b *testKubelet) {
		b.host.exitAfter["web"] = seconds(1)
		b.create(webPod("web", func(p *corev1.Pod) {
			p.Spec.RestartPolicy = corev1.RestartPolicyNever
			p.Spec.InitContainers = []corev1.Container{command("first", "busybox", "first")}
		}))
		b.at(5)
		if s := b.pod("web").Status; s.Phase != corev1.PodFailed || len(b.host.starts) != 1 {
			t.Errorf("%s after %q", s.Phase, b.host.starts)
		}
	})
}

func TestUnknownImageNamesTheKnownOnes(t *testing.T) {
	runImages(t, func(b *testKubelet) {
		b.create(webPod("web", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "docker.io/library/nginx:1" }))
		b.at(1)
		w := b.pod("web").Status.ContainerStatuses[0].State.Waiting
		if w == nil || w.Reason != "ErrImagePull" {
			t.Fatalf("%+v", w)
		}
		for _, name := range []string{"nginx:1", "agnhost", "busybox", "pause", "coredns"} {
			if !strings.Contains(w.Message, name) {
				t.Errorf("%q does not name %s", w.Message, name)
			}
		}
	})
}

// A pod with an unsupported field is refused, and the error names the field. The twin without the field starts.
func TestUnsupportedFieldsOfImages(t *testing.T) {
	yes := true
	for name, change := range map[string]func(*corev1.PodSpec){
		"shareProcessNamespace": func(s *corev1.PodSpec) { s.ShareProcessNamespace = &yes },
		"tty":                   func(s *corev1.PodSpec) { s.Containers[0].TTY = true },
		"volume big": func(s *corev1.PodSpec) {
			s.Volumes = []corev1.Volume{{Name: "big", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}}}
		},
		"": func(*corev1.PodSpec) {},
	} {
		runImages(t, func(b *testKubelet) {
			b.create(webPod("web", func(p *corev1.Pod) { change(&p.Spec) }))
			b.at(1)
			w := b.pod("web").Status.ContainerStatuses[0].State.Waiting
			if name == "" {
				if w != nil || len(b.host.starts) != 1 {
					t.Errorf("a pod without such a field: %+v", w)
				}
				return
			}
			if w == nil || !strings.Contains(w.Message, name) || len(b.host.starts) > 0 {
				t.Errorf("%s: %+v", name, w)
			}
		})
	}
}

// A pod with as few rights as `hitless run --kubeconfig` gives its pods starts.
func TestPodsWithFewRights(t *testing.T) {
	runImages(t, func(b *testKubelet) {
		b.create(webPod("web", func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(65532)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(1000)), AllowPrivilegeEscalation: new(false),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
		}))
		b.at(1)
		if w := b.pod("web").Status.ContainerStatuses[0].State.Waiting; w != nil || len(b.host.starts) != 1 {
			t.Errorf("%+v", w)
		}
	})
}

// Containers wait for a ConfigMap that does not exist yet, and get variables of all kinds.
func TestVariables(t *testing.T) {
	runImages(t, func(b *testKubelet) {
		api := b.client.CoreV1()
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		_, err := api.Services("default").Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "my-db", Namespace: "default"},
			Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.7", Ports: []corev1.ServicePort{{Name: "sql", Port: 5432, Protocol: corev1.ProtocolTCP}}}}, metav1.CreateOptions{})
		must(err)
		yes := true
		b.create(webPod("web", func(p *corev1.Pod) {
			c := &p.Spec.Containers[0]
			c.Args = []string{"netexec", "--greeting=$(GREETING)"}
			c.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")}
			c.EnvFrom = []corev1.EnvFromSource{{Prefix: "P_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "conf"}}}}
			c.Env = []corev1.EnvVar{
				{Name: "GREETING", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "conf"}, Key: "greeting"}}},
				{Name: "NONE", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}, Key: "x", Optional: &yes}}},
				{Name: "IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
				{Name: "CPUS", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}},
			}
		}))
		b.at(1)
		if w := b.pod("web").Status.ContainerStatuses[0].State.Waiting; w == nil || !strings.Contains(w.Message, "ConfigMap default/conf") {
			t.Errorf("without the ConfigMap: %+v", w)
		}
		_, err = api.ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "conf", Namespace: "default"},
			Data: map[string]string{"greeting": "hello"}}, metav1.CreateOptions{})
		must(err)
		b.at(4)
		if b.host.last == nil {
			t.Fatalf("not started: %+v", b.pod("web").Status)
		}
		for _, want := range []string{"P_greeting=hello", "GREETING=hello", "IP=10.244.1.2", "CPUS=2", "MY_DB_SERVICE_HOST=10.96.0.7", "MY_DB_SERVICE_PORT_SQL=5432",
			"MY_DB_PORT_5432_TCP=tcp://10.96.0.7:5432", "HOSTNAME=web"} {
			if !slices.Contains(b.host.last.env, want) {
				t.Errorf("no %s in %q", want, b.host.last.env)
			}
		}
		if slices.ContainsFunc(b.host.last.env, func(v string) bool { return strings.HasPrefix(v, "NONE=") }) {
			t.Error("an optional variable without a Secret is set")
		}
		if diff := cmp.Diff([]string{"/agnhost", "netexec", "--greeting=hello"}, b.host.last.argv); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

func TestVolumes(t *testing.T) {
	runImages(t, func(b *testKubelet) {
		_, err := b.client.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "key", Namespace: "default"},
			Data: map[string][]byte{"a": []byte("1"), "b": []byte("2")}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		read, all := int32(0o400), int32(0o640)
		b.create(webPod("web", func(p *corev1.Pod) {
			p.Labels = map[string]string{"app": "web"}
			p.Spec.Volumes = []corev1.Volume{
				{Name: "empty", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "some", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "key", DefaultMode: &all,
					Items: []corev1.KeyToPath{{Key: "b", Path: "x/b", Mode: &read}}}}},
				{Name: "fields", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
					{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "key"}}},
					{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}}}}}},
			}
		}))
		b.at(1)
		b.host.mu.Lock()
		defer b.host.mu.Unlock()
		const dir = "/var/lib/kubelet/pods/uid-web/volumes/"
		for name, want := range map[string][]volumeFile{
			"empty":  nil,
			"some":   {{"x/b", []byte("2"), 0o400}},
			"fields": {{"a", []byte("1"), 0o644}, {"b", []byte("2"), 0o644}, {"labels", []byte(`app="web"`), 0o644}},
		} {
			if diff := cmp.Diff(want, b.host.volumes[dir+name], cmp.AllowUnexported(volumeFile{})); diff != "" {
				t.Errorf("%s (-want +got)\n%s", name, diff)
			}
		}
	})
}

// The files that name servers and hosts follow the pod's DNS policy.
func TestResolvConf(t *testing.T) {
	two := "2"
	for name, test := range map[string]struct {
		spec corev1.PodSpec
		want string
	}{
		"cluster": {corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirst},
			"search shop.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n"},
		"node":         {corev1.PodSpec{DNSPolicy: corev1.DNSDefault}, ""},
		"host network": {corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirst, HostNetwork: true}, ""},
		"host network with the cluster's": {corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirstWithHostNet, HostNetwork: true},
			"search shop.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n"},
		"own": {corev1.PodSpec{DNSPolicy: corev1.DNSNone, DNSConfig: &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.1"}, Searches: []string{"x.test"}}},
			"search x.test\nnameserver 192.0.2.1\n"},
		"both": {corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirst, DNSConfig: &corev1.PodDNSConfig{Searches: []string{"x.test"},
			Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: &two}, {Name: "edns0"}}}},
			"search shop.svc.cluster.local svc.cluster.local cluster.local x.test\nnameserver 10.96.0.10\noptions ndots:2 edns0\n"},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &pod{k: &kubelet{Config: Config{Workloads: &Workloads{DNS: "10.96.0.10"}}}, namespace: "shop", object: &corev1.Pod{Spec: test.spec}}
			if diff := cmp.Diff(test.want, p.resolvConf()); diff != "" {
				t.Errorf("%s (-want +got)\n%s", name, diff)
			}
		})
	}
}

// A pod that stores more than its limit fails as evicted and is not restarted; one that stores less runs on.
func TestEviction(t *testing.T) {
	for stored, evicted := range map[int64]bool{4 << 20: false, 6 << 20: true} {
		runImages(t, func(b *testKubelet) {
			b.create(webPod("web", func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("5Mi")}
			}))
			b.at(5)
			b.host.mu.Lock()
			b.host.stored = stored
			b.host.mu.Unlock()
			b.at(60)
			s := b.pod("web").Status
			if (s.Phase == corev1.PodFailed && s.Reason == "Evicted") != evicted || len(b.host.starts) != 1 {
				t.Errorf("%d bytes: %s, %s, started %q", stored, s.Phase, s.Reason, b.host.starts)
			}
		})
	}
}
