package kubelet

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// The image of hitless is this program as a worker of a fleet, whatever registry it is said to come from, and nothing else of it is played.
func TestTheImageOfHitlessIsAWorker(t *testing.T) {
	for image, ours := range map[string]bool{"hitless": true, "registry.example:5000/team/hitless:v1@sha256:00": true, "hitless:1": true,
		"registry.example/hitless/agnhost:1": false, "not-hitless": false} {
		inBubble(t, nil, func(b *bench) {
			b.create(webPod("web", func(p *corev1.Pod) {
				p.Spec.Containers[0].Image, p.Spec.Containers[0].Args = image, []string{"fleet-worker", "--listen=:$(PORT)"}
				p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "PORT", Value: "7707"}}
			}))
			b.at(1)
			if b.host.last == nil {
				if ours {
					t.Errorf("%s was not started: %+v", image, b.pod("web").Status)
				}
				return
			}
			if diff := cmp.Diff([]string{"/hitless", "fleet-worker", "--listen=:7707"}, b.host.last.argv); (diff == "") != ours {
				t.Errorf("%s is ours: %v; arguments (-want +got):\n%s", image, ours, diff)
			}
		})
	}
	inBubble(t, nil, func(b *bench) {
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
