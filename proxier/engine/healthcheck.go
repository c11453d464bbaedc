package engine

import (
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/proxier/kernel"
)

// HealthCheck is what a healthCheckNodePort reports.
type HealthCheck struct {
	Port    uint16
	Local   int  // ready endpoints on this node, without those that the kernel rejects
	Failing bool // an operation of the Service failed, so the kernel may not serve all of them yet
}

// HealthCheck returns the state of a Service's healthCheckNodePort; nil for none.
func (e *Engine) HealthCheck(name types.NamespacedName) *HealthCheck {
	wanted := e.table.HealthCheck(name)
	if wanted == nil {
		return nil
	}
	keys := e.table.KeysOf(name)
	check := &HealthCheck{Port: wanted.Port, Local: len(wanted.Local)}
	for _, pod := range wanted.Local {
		if e.rejectsEndpoint(keys, pod) {
			check.Local--
		}
	}
	check.Failing = slices.ContainsFunc(keys, func(k kernel.Key) bool { return e.pending.keys[k] })
	return check
}

// rejectsEndpoint reports whether the kernel permanently rejects a pod as a real server of any of the virtual servers.
func (e *Engine) rejectsEndpoint(keys []kernel.Key, pod netip.Addr) bool {
	add := kernel.AddReal{}.Name()
	return slices.ContainsFunc(keys, func(k kernel.Key) bool {
		for s, r := range e.rejections[k] {
			if s.op == add && s.real.Addr() == pod && r.permanent() {
				return true
			}
		}
		return false
	})
}
