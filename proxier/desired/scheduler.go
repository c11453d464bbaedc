package desired

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// SchedulerAnnotation of a Service names the IPVS scheduler of its virtual servers, instead of the node's.
const SchedulerAnnotation = "hitless/ipvs-scheduler"

// Schedulers returns the IPVS schedulers that a virtual server may have. Those that are missing send all clients of an
// address to one real server (dh, fo, lblc, lblcr, ovf), and dh refuses new connections while that one drains.
func Schedulers() []string { return []string{"lc", "mh", "nq", "rr", "sed", "sh", "wlc", "wrr"} }

// KnownScheduler reports whether a scheduler is one of Schedulers.
func KnownScheduler(name string) bool { return slices.Contains(Schedulers(), name) }

// AskedScheduler returns the scheduler that a Service asks for; empty for that of the node.
func AskedScheduler(svc *v1.Service) string {
	if svc == nil {
		return ""
	}
	return strings.TrimSpace(svc.Annotations[SchedulerAnnotation])
}

// scheduler returns the scheduler of the Service's virtual servers. One that cannot be had is refused, and the Service is
// served by the node's.
func (c *computation) scheduler() string {
	asked := AskedScheduler(c.svc)
	if asked == "" {
		return c.options.Scheduler
	}
	if !KnownScheduler(asked) {
		c.refuse(BadScheduler, "%q is none of %s; it has %s", asked, strings.Join(Schedulers(), ", "), c.options.Scheduler)
		return c.options.Scheduler
	}
	if why := c.options.NoScheduler[asked]; why != "" {
		c.refuse(BadScheduler, "%s; it has %s", why, c.options.Scheduler)
		return c.options.Scheduler
	}
	return asked
}
