package kubelet

import (
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// evictionPeriod is the period in which a kubelet measures what pods store.
const evictionPeriod = 10 * time.Second

// watchStorage evicts the pod when the container stores more than its limit: in its root and its log.
func (c *container) watchStorage(r *containerRun) {
	limit, limited := c.spec.Resources.Limits[corev1.ResourceEphemeralStorage]
	if !limited || r.launch.root == nil {
		return
	}
	c.pod.k.live.Go(func() {
		ticker := time.NewTicker(evictionPeriod)
		defer ticker.Stop()
		for {
			select {
			case <-r.alive.Done():
				return
			case <-ticker.C:
			}
			used, err := c.pod.k.host.used(r.launch.root)
			if info, failed := os.Stat(r.file); failed == nil {
				used += info.Size()
			}
			if err == nil && used > limit.Value() {
				c.pod.post(func() { c.pod.evict(c.spec.Name, limit) })
				return
			}
		}
	})
}

// evict ends the pod's containers for good, and reports the pod as failed.
func (p *pod) evict(name string, limit resource.Quantity) {
	if p.stop != nil || p.evicted != "" {
		return
	}
	p.evicted = fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q.", name, limit.String())
	for _, c := range p.all() {
		if c.retry != nil {
			c.retry.Stop()
		}
		if c.run == nil {
			c.finished = true
			continue
		}
		c.end(newGrace(c.run.alive, 0))
	}
}
