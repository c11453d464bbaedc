package main

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/proxier"
	"github.com/hitless/hitless/proxier/health"
	"github.com/hitless/hitless/proxier/kernel"
)

// orderFaults write the right state by way of a wrong one. All are permanent.
var orderFaults = map[string]func(*injection, fault) error{
	"replace-updated": (*injection).replaceUpdated,
	"rewrite-changed": (*injection).rewriteChanged,
	"ranges-first":    (*injection).rangesFirst,
	"keep-drop":       operations(keepDrop),
	"clean-at-end":    (*injection).cleanAtEnd,
	"lease":           (*injection).lease,
	"early-health":    (*injection).earlyHealth,
}

// gap is how long a virtual server is missing, or is not complete.
const gap = 200 * time.Millisecond

// replace deletes a virtual server and adds it again, as it is or as given.
func (i *injection) replace(key kernel.Key, now *kernel.Virtual) error {
	server, found, err := i.Kernel.Server(key)
	if err != nil || !found {
		return err
	}
	if now == nil {
		now = &server.Virtual
	}
	if err := i.Kernel.Apply(kernel.DeleteVirtual{Key: key}); err != nil {
		return err
	}
	time.Sleep(gap)
	if err := i.Kernel.Apply(kernel.AddVirtual{Virtual: *now}); err != nil {
		return err
	}
	for _, r := range server.Reals {
		if err := i.Kernel.Apply(kernel.AddReal{Key: key, Real: r.Addr, Weight: r.Weight}); err != nil {
			return err
		}
	}
	return nil
}

// replaceUpdated replaces a virtual server instead of changing it.
func (i *injection) replaceUpdated(f fault) error {
	i.replacing(func(op kernel.Op) []kernel.Op {
		if o, is := op.(kernel.UpdateVirtual); is {
			i.failed(f, i.replace(o.Virtual.Key, &o.Virtual))
		}
		return []kernel.Op{op}
	})
	return nil
}

// rewriteChanged replaces all virtual servers of a Service whose spec changes.
func (i *injection) rewriteChanged(f fault) error {
	i.parts.Source = &rewriting{Source: i.parts.Source, specs: map[types.NamespacedName]v1.ServiceSpec{}, rewrite: func(s *v1.Service) {
		i.failed(f, i.rewrite(s))
	}}
	return nil
}

type rewriting struct {
	proxier.Source
	specs   map[types.NamespacedName]v1.ServiceSpec
	rewrite func(*v1.Service)
}

func (r *rewriting) TakeChanged() []types.NamespacedName {
	names := r.Source.TakeChanged()
	for _, name := range names {
		s := r.Source.Service(name)
		if s == nil {
			continue
		}
		if before, known := r.specs[name]; known && !reflect.DeepEqual(before, s.Spec) {
			r.rewrite(s)
		}
		r.specs[name] = s.Spec
	}
	return names
}

func (i *injection) rewrite(s *v1.Service) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	servers, err := i.Kernel.Servers()
	if err != nil {
		return err
	}
	for _, server := range servers {
		if serves := slices.Contains(addresses(s), server.Addr) || nodePort(s, server.Port); !serves {
			continue
		}
		if err := i.replace(server.Key, nil); err != nil {
			return err
		}
	}
	return nil
}

func addresses(s *v1.Service) (all []netip.Addr) {
	texts := slices.Clone(s.Spec.ClusterIPs)
	for _, in := range s.Status.LoadBalancer.Ingress {
		texts = append(texts, in.IP)
	}
	for _, text := range append(texts, s.Spec.ExternalIPs...) {
		if a, err := netip.ParseAddr(text); err == nil {
			all = append(all, a)
		}
	}
	return all
}

func nodePort(s *v1.Service, port uint16) bool {
	return slices.ContainsFunc(s.Spec.Ports, func(p v1.ServicePort) bool { return p.NodePort == int32(port) })
}

// rangesFirst restricts a Service before it allows its clients.
func (i *injection) rangesFirst(f fault) error {
	allowed := func(e kernel.Element) bool { return e.Set == kernel.Allowed }
	i.replacing(func(op kernel.Op) []kernel.Op {
		o, is := op.(kernel.ChangeSets)
		if !is || !slices.ContainsFunc(o.Add, allowed) {
			return []kernel.Op{op}
		}
		i.failed(f, i.Kernel.Apply(kernel.ChangeSets{Add: slices.DeleteFunc(slices.Clone(o.Add), allowed), Remove: o.Remove}))
		time.Sleep(gap)
		return []kernel.Op{kernel.ChangeSets{Add: slices.DeleteFunc(slices.Clone(o.Add), func(e kernel.Element) bool { return !allowed(e) })}}
	})
	return nil
}

// keepDrop never ends the drop of connections to a Service that had no local endpoint.
func keepDrop(op kernel.Op) []kernel.Op {
	o, is := op.(kernel.ChangeSets)
	if !is {
		return []kernel.Op{op}
	}
	o.Remove = slices.DeleteFunc(slices.Clone(o.Remove), func(e kernel.Element) bool { return e.Set == kernel.Drop })
	if len(o.Add)+len(o.Remove) == 0 {
		return nil
	}
	return []kernel.Op{o}
}

// cleanAtEnd deletes all virtual servers when the proxier ends.
func (i *injection) cleanAtEnd(f fault) error {
	i.parts.HealthChecks = cleaning{i.parts.HealthChecks, func() {
		servers, err := i.Servers()
		i.failed(f, err)
		for _, s := range servers {
			i.failed(f, i.Kernel.Apply(kernel.DeleteVirtual{Key: s.Key}))
		}
	}}
	return nil
}

type cleaning struct {
	proxier.HealthChecks
	clean func()
}

func (c cleaning) Close() {
	c.clean()
	c.HealthChecks.Close()
}

// leaseFor is how long the node serves without a sign of life of its proxier.
const leaseFor = 3 * time.Second

// lease drops all packets to the measured Service unless the proxier renews its lease each second.
func (i *injection) lease(f fault) error {
	err := nft(fmt.Sprintf("add table ip faulty-lease\nadd set ip faulty-lease alive { type ipv4_addr; flags timeout; }\n"+
		"add chain ip faulty-lease in { type filter hook prerouting priority -310; }\nflush chain ip faulty-lease in\n"+
		"add rule ip faulty-lease in ip daddr %s ip daddr != @alive drop\n", web))
	if err != nil {
		return err
	}
	renew := func() {
		i.failed(f, nft(fmt.Sprintf("flush set ip faulty-lease alive\nadd element ip faulty-lease alive { %s timeout %ds }\n", web, int(leaseFor.Seconds()))))
	}
	renew()
	go func() {
		for range time.Tick(time.Second) {
			renew()
		}
	}()
	return nil
}

// startDelay is longer than the load balancer needs to add a node again.
const startDelay = 20 * time.Second

// earlyHealth passes health checks at once when it starts again, and reads the API later. The proxier itself must not serve them.
func (i *injection) earlyHealth(fault) error {
	answers := i.parts.Node.Handler()
	if i.again {
		answers = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
		i.parts.Source = delayed{i.parts.Source}
	}
	_, err := health.Serve("0.0.0.0:10256", answers)
	return err
}

// delayed is a source that starts late.
type delayed struct{ proxier.Source }

func (d delayed) Run(ctx context.Context) error {
	time.Sleep(startDelay)
	return d.Source.Run(ctx)
}
