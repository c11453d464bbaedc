package kubelet

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// An image named hitless runs fleet-worker, whatever its registry, and no other command.
func TestHitlessImageRunsAFleetWorker(t *testing.T) {
	for image, isHitlessImage := range map[string]bool{"hitless": true, "registry.example:5000/team/hitless:v1@sha256:00": true, "hitless:1": true,
		"registry.example/hitless/agnhost:1": false, "not-hitless": false} {
		runTest(t, nil, func(b *testKubelet) {
			b.create(webPod("web", func(p *corev1.Pod) {
				p.Spec.Containers[0].Image, p.Spec.Containers[0].Args = image, []string{"fleet-worker", "--listen=:$(PORT)"}
				p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "PORT", Value: "7707"}}
			}))
			b.at(1)
			if b.host.last == nil {
				if isHitlessImage {
					t.Errorf("%s was not started: %+v", image, b.pod("web").Status)
				}
				return
			}
			if diff := cmp.Diff([]string{"/hitless", "fleet-worker", "--listen=:7707"}, b.host.last.argv); (diff == "") != isHitlessImage {
				t.Errorf("%s is an image of hitless: %v; arguments (-want +got):\n%s", image, isHitlessImage, diff)
			}
		})
	}
	runTest(t, nil, func(b *testKubelet) {
		b.create(webPod("web", func(p *corev1.Pod) {
			p.Spec.Containers[0].Image = "hitless:1"
			p.Spec.Containers[0].Args = []string{"proxier"}
		}))
		b.at(1)
		if b.host.last != nil {
			t.Errorf("started %q", b.host.last.argv)
		}
	})
}
